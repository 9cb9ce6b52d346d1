"""Truncated Quantile Critics: with a fixed number of dropped atoms (TQC), or with ACC's own choice (ACC)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch as th
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, ReplayBufferSamples, Schedule

from acc_rl.algos.policies import QuantileCnnPolicy, QuantileMultiInputPolicy, QuantilePolicy
from acc_rl.algos.soft import SoftActorCritic
from acc_rl.core.bias import BiasSettings, FixedBias
from acc_rl.nn.losses import quantile_huber
from acc_rl.nn.q_beta import dropped_per_net, truncate


class _QuantileCritics(SoftActorCritic):
    """Both algorithms: they differ in their bias rule alone."""

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": QuantilePolicy,
        "CnnPolicy": QuantileCnnPolicy,
        "MultiInputPolicy": QuantileMultiInputPolicy,
    }
    default_bias = BiasSettings()

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        *,
        learning_starts: int = 5000,
        n_critics: int = 5,
        n_atoms: int = 25,
        policy_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.update(learning_starts=learning_starts, n_critics=n_critics)
        kwargs["policy_kwargs"] = {"n_atoms": n_atoms, **(policy_kwargs or {})}
        super().__init__(policy, env, learning_rate, **kwargs)

    def check_settings(self) -> None:
        super().check_settings()
        self._check_dropped(self.policy_kwargs["n_critics"], self.policy_kwargs["n_atoms"])

    def _check_dropped(self, n_critics: int, n_atoms: int) -> None:
        low, high = self.bias.range
        if not _leaves_an_atom(high - low, n_critics, n_atoms):
            raise ValueError(
                f"bias.range is {self.bias.range}: up to {high - low:g} atoms per net would be dropped, "
                f"but there are only n_atoms={n_atoms}; use a narrower range or more atoms"
            )

    def td_target(self, batch: ReplayBufferSamples, beta: float) -> th.Tensor:
        """y = r + gamma * (z - alpha * log pi) for the kept atoms z of the target critics, (batch, kept)"""
        next_actions, next_log_prob = self.actor.action_log_prob(batch.next_observations)
        z = self.critic_target(batch.next_observations, next_actions)
        kept = truncate(z, dropped_per_net(beta, self.bias.range[1]))
        return batch.rewards + self.discounts(batch) * (kept - self.temperature * next_log_prob[:, None])

    def critic_loss(self, z: th.Tensor, target: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        return quantile_huber(z, target)

    def policy_value(self, z: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        n_critics, _, n_atoms = z.shape
        return z.mean(dim=(0, 2)), th.full_like(z, 1 / (n_critics * n_atoms))

    def bias_metrics(self) -> Iterator[tuple[str, float]]:
        yield "dropped_per_net", dropped_per_net(self.beta, self.bias.range[1])
        yield from super().bias_metrics()


class ACC(_QuantileCritics):
    """TQC whose number of dropped target atoms follows the returns of the most recent episodes.

    ``bias`` takes settings that differ from the paper's, for instance ``bias={"start_step": 5000}``.
    All other arguments are those of SB3's SAC.
    """

    @property
    def dropped_per_net(self) -> float:
        """d, how many of the largest target atoms are dropped per net just now"""
        return dropped_per_net(self.beta, self.bias.range[1])


class TQC(_QuantileCritics):
    """The same algorithm with a fixed bias: ``dropped_per_net`` target atoms less per net, always.

    ``bias`` sets when the gap between returns and critic is measured for the log.
    """

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        *,
        dropped_per_net: float = 2,
        **kwargs: Any,
    ) -> None:
        self.dropped_per_net = dropped_per_net
        super().__init__(policy, env, learning_rate, **kwargs)

    def make_bias_rule(self) -> FixedBias:
        return FixedBias(self.bias.range[1] - self.dropped_per_net, self.bias)

    def _check_dropped(self, n_critics: int, n_atoms: int) -> None:
        if not (0 <= self.dropped_per_net < n_atoms and _leaves_an_atom(self.dropped_per_net, n_critics, n_atoms)):
            raise ValueError(
                f"dropped_per_net is {self.dropped_per_net!r}, but must be in [0, n_atoms) = [0, {n_atoms})"
            )


def _leaves_an_atom(dropped: float, n_critics: int, n_atoms: int) -> bool:
    return round(dropped * n_critics) < n_critics * n_atoms
