"""The actor and temperature of the soft actor-critics."""

from __future__ import annotations

import math
from typing import Any

import torch as th
from stable_baselines3 import SAC
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.type_aliases import GymEnv, PyTorchObs, ReplayBufferSamples, Schedule
from stable_baselines3.common.utils import polyak_update

from acc_rl.algos.actor_critic import ActorCritic, descend
from acc_rl.nn.optimizer import step


class SoftActorCritic(ActorCritic, SAC):  # type: ignore[misc]
    """A critic that contains the policy's entropy, weighted by the temperature alpha."""

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule,
        *,
        policy_delay: int = 1,
        **kwargs: Any,
    ) -> None:
        self.policy_delay = policy_delay
        super().__init__(policy, env, learning_rate, **kwargs)

    def policy_value(self, values: th.Tensor) -> th.Tensor:
        """(n_critics, batch) -> (batch,), what the actor maximises"""
        return values.mean(dim=0)

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.log_ent_coef is not None:
            fused = self.device.type in ("cpu", "cuda")
            self.ent_coef_optimizer = th.optim.Adam([self.log_ent_coef], self.lr_schedule(1), fused=fused)

    @property
    def target_interval(self) -> int:
        return self.target_update_interval

    @property
    def temperature(self) -> th.Tensor:
        """alpha, fixed or learned"""
        return self.estimator.temperature()

    def optimizers(self) -> list[th.optim.Optimizer]:
        return super().optimizers() + ([] if self.ent_coef_optimizer is None else [self.ent_coef_optimizer])

    def next_actions(self, obs: PyTorchObs) -> tuple[th.Tensor, th.Tensor | float]:
        actions, log_prob = self.actor.action_log_prob(obs)
        return actions, -self.temperature * log_prob[:, None]

    def update_critic(self, batch: ReplayBufferSamples) -> None:
        if self.use_sde:
            self.actor.reset_noise()
        super().update_critic(batch)
        self._copy_batch_norm_stats()

    def _copy_batch_norm_stats(self) -> None:
        # as they are, see https://github.com/DLR-RM/stable-baselines3/issues/996
        if self.batch_norm_stats:
            polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)

    def update_actor(self, batch: ReplayBufferSamples) -> None:
        """Ascend E[policy_value - alpha * log pi], then move alpha so that the entropy meets its target."""
        alpha = self.temperature
        actions, log_prob = self.actor.action_log_prob(batch.observations)
        value = self.policy_value(self.head.values(self.critic(batch.observations, actions, frozen=True)))
        assert value.shape == log_prob.shape
        actor_loss = (alpha * log_prob - value).mean()
        descend(self.actor.optimizer, actor_loss)
        self.record_metrics({"actor_loss": actor_loss, "ent_coef": alpha})
        if self.ent_coef_optimizer is not None:
            self._update_temperature(log_prob.detach())
        self._copy_batch_norm_stats()  # the critics have seen one more batch

    def _update_temperature(self, log_prob: th.Tensor) -> None:
        """loss = -log(alpha) * (log pi + target entropy), with the logarithm itself as factor, not alpha"""
        # https://github.com/rail-berkeley/softlearning/issues/37
        assert self.log_ent_coef is not None
        assert self.ent_coef_optimizer is not None
        assert isinstance(self.target_entropy, float)
        excess = (log_prob.mean() + self.target_entropy).reshape(1)
        self.record_metrics({"ent_coef_loss": -self.log_ent_coef * excess})
        self.log_ent_coef.grad = -excess
        step(self.ent_coef_optimizer)

    def largest_bonus(self) -> float:
        """alpha * log(2^n): no distribution on [-1, 1]^n has more entropy"""
        return self.reward_scale * float(self.temperature) * get_action_dim(self.action_space) * math.log(2)
