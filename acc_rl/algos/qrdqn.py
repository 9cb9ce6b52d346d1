"""QR-DQN, plain or calibrated by ACC."""

from __future__ import annotations

import torch as th
from stable_baselines3.common.type_aliases import PyTorchObs

from acc_rl.algos.discrete import GreedyQ, of_actions
from acc_rl.core.errors import needs
from acc_rl.nn.head import Head, Law, Quantiles
from acc_rl.nn.knob import Knob, Truncate

with needs("contrib", "QR-DQN needs sb3-contrib"):
    import sb3_contrib


class QRDQN(GreedyQ, sb3_contrib.QRDQN):
    """QR-DQN as sb3-contrib has it; ``bias`` sets when the gap between returns and critic is measured for the log."""

    peer = "qrdqn"

    def make_head(self) -> Head:
        n_atoms = self.policy_kwargs.get("n_quantiles", 200)
        return Quantiles(n_atoms, factor=n_atoms)  # QR-DQN sums over its atoms

    def make_knob(self) -> Knob:
        """As in ACC for continuous actions, d starts at a tenth of the atoms and may reach a fifth"""
        n_atoms = self.head.n_outputs
        return Truncate.of(1, n_atoms, d_max=n_atoms / 5, plain=0)

    def next_law(self, obs: PyTorchObs, beta: float) -> Law:
        """The kept atoms of the greedy action"""
        z = self.quantile_net_target(obs).permute(2, 0, 1)
        return self.calibration.target(self.head.law(of_actions(z, self.head.values(z).argmax(dim=0))), beta)

    def outputs(self, obs: PyTorchObs) -> th.Tensor:
        return self.quantile_net(obs).permute(2, 0, 1)  # type: ignore[no-any-return]


class ACCQRDQN(QRDQN):
    """QR-DQN whose ``d`` largest target atoms are dropped, d following the recent returns."""

    default_controller = "acc"

    @property
    def dropped_per_net(self) -> float:
        """d, how many of the largest target atoms are dropped just now"""
        return self.calibration.knob.shown(self.beta)
