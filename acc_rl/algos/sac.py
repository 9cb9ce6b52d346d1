"""Soft Actor-Critic, plain (SAC) and with ACC's general shift of its targets (ACCSAC)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch as th
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, ReplayBufferSamples, Schedule

from acc_rl.algos.policies import SoftCnnPolicy, SoftMultiInputPolicy, SoftPolicy
from acc_rl.algos.soft import SoftActorCritic
from acc_rl.core.bias import AdaptiveBias, BiasSettings, FixedBias
from acc_rl.nn.losses import squared_loss
from acc_rl.nn.q_beta import SHIFT_RANGE, shift


class SAC(SoftActorCritic):
    """SAC with the fast ensemble; ``bias`` sets when the gap between returns and critic is measured for the log."""

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": SoftPolicy,
        "CnnPolicy": SoftCnnPolicy,
        "MultiInputPolicy": SoftMultiInputPolicy,
    }
    default_bias = BiasSettings(start=0.0, range=SHIFT_RANGE, lr=0.4)

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        *,
        learning_starts: int = 5000,
        n_critics: int = 2,
        **kwargs: Any,
    ) -> None:
        super().__init__(policy, env, learning_rate, learning_starts=learning_starts, n_critics=n_critics, **kwargs)

    def make_bias_rule(self) -> FixedBias:
        return FixedBias(0.0, self.bias)

    def td_target(self, batch: ReplayBufferSamples, beta: float) -> th.Tensor:
        """y = r + gamma * (Q_beta - alpha * log pi), Q_beta the shifted minimum of the target critics; (batch, 1)"""
        next_actions, next_log_prob = self.actor.action_log_prob(batch.next_observations)
        q = shift(self.critic_target(batch.next_observations, next_actions).amin(dim=0), beta)
        return batch.rewards + self.discounts(batch) * (q - self.temperature * next_log_prob[:, None])

    def critic_loss(self, z: th.Tensor, target: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        return squared_loss(z, target, factor=0.5)

    def policy_value(self, z: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        value, smallest = z.min(dim=0)
        return value.squeeze(1), th.zeros_like(z).scatter_(0, smallest[None], 1)


class ACCSAC(SAC):
    """SAC whose targets are shifted by ``beta * |Q| / 100``, with beta following the most recent returns."""

    def make_bias_rule(self) -> FixedBias:
        return AdaptiveBias(self.bias)
