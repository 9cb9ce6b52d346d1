"""ACC for an off-policy algorithm of your own, or of SB3's as it is."""

from __future__ import annotations

from typing import Any

import torch as th
from stable_baselines3.common.type_aliases import PyTorchObs
from torch import nn

from acc_rl.algos.buffers import steps_of_targets
from acc_rl.algos.calibrated import Calibrated
from acc_rl.algos.estimates import mean_of_critics
from acc_rl.core.errors import SettingError
from acc_rl.nn.knob import Knob, Shift, shift


class AnyQ(Calibrated):
    """Mixin in front of any SB3 algorithm that bootstraps from a target network: ``class ACCMine(AnyQ, Mine)``.

    Whatever the target network returns is shifted to Q_beta = beta * |Q| / 100 + Q, so the algorithm's own ``train``
    stays as it is. The shift keeps the order of values: minima and maxima taken afterwards are shifted alike.
    """

    def make_knob(self) -> Knob:
        return Shift.of(self.gamma ** steps_of_targets(self), each=True)

    def target_network(self) -> nn.Module:
        return self.critic_target  # type: ignore[attr-defined, no-any-return]

    def value_estimate(self, obs: PyTorchObs, actions: th.Tensor) -> th.Tensor:
        """The mean of the critics, for critics as SB3's and sb3-contrib's"""
        return mean_of_critics(self.critic(obs, actions.flatten(1)))  # type: ignore[attr-defined]

    def _setup_model(self) -> None:
        super()._setup_model()
        controller = type(self.calibration.controller)
        if controller.wants_td_error:
            raise SettingError(
                f"controller is {controller.__name__}, which needs the TD error, but {type(self).__name__} trains by "
                "itself and does not report it: take another one"
            )
        self.target_network().register_forward_hook(self._shift_output)

    def _shift_output(self, network: nn.Module, inputs: Any, q: Any) -> Any:
        return shift(q, self.beta) if isinstance(q, th.Tensor) else tuple(shift(each, self.beta) for each in q)
