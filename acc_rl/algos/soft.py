"""The training loop that the soft actor-critics share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch as th
from stable_baselines3 import SAC
from stable_baselines3.common.type_aliases import GymEnv, PyTorchObs, ReplayBufferSamples, Schedule
from stable_baselines3.common.utils import polyak_update
from torch import nn

from acc_rl.algos.calibrated import Calibrated
from acc_rl.algos.policies import EnsembleCritic


@contextmanager
def frozen(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """No gradients for the critics' own parameters: the actor's loss needs those of their inputs alone."""
    for parameter in parameters:
        parameter.requires_grad = False
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad = True


class SoftActorCritic(Calibrated, SAC):
    """Per gradient step ``critic_updates`` critic updates, each on its own minibatch, then one of actor and alpha."""

    critic: EnsembleCritic  # type: ignore[assignment]
    critic_target: EnsembleCritic  # type: ignore[assignment]

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        *,
        critic_updates: int = 1,
        **kwargs: Any,
    ) -> None:
        self.critic_updates = critic_updates
        self._n_critic_updates = 0
        super().__init__(policy, env, learning_rate, **kwargs)

    def check_settings(self) -> None:
        super().check_settings()
        if not (isinstance(self.critic_updates, int) and self.critic_updates >= 1):
            raise ValueError(f"critic_updates is {self.critic_updates!r}, but must be a whole number >= 1")

    def _setup_model(self) -> None:
        super()._setup_model()
        self._critic_parameters = list(self.critic.parameters())
        self._target_parameters = list(self.critic_target.parameters())

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_critic_parameters", "_target_parameters"]

    # --- what an algorithm adds ---

    @abstractmethod
    def td_target(self, batch: ReplayBufferSamples, beta: float) -> th.Tensor:
        """What the critics regress to, computed from Q_beta of the target critics."""

    @abstractmethod
    def critic_loss(self, z: th.Tensor, target: th.Tensor) -> th.Tensor:
        """Loss of the online critics' outputs z, (n_critics, batch, n_atoms)."""

    @abstractmethod
    def policy_value(self, z: th.Tensor) -> th.Tensor:
        """(n_critics, batch, n_atoms) -> (batch,), what the actor maximises."""

    # --- training ---

    def train(self, gradient_steps: int, batch_size: int = 256) -> None:
        self.policy.set_training_mode(True)
        optimizers = [self.actor.optimizer, self.critic.optimizer, self.ent_coef_optimizer]
        self._update_learning_rate([optimizer for optimizer in optimizers if optimizer is not None])
        for _ in range(gradient_steps):
            for _ in range(self.critic_updates):
                batch = self._sample(batch_size)
                self.record_metrics(self._update_critic(batch))
            self.record_metrics(self._update_actor_and_temperature(batch))
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def _sample(self, batch_size: int) -> ReplayBufferSamples:
        assert self.replay_buffer is not None
        return self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)

    def _update_critic(self, batch: ReplayBufferSamples) -> dict[str, th.Tensor]:
        if self.use_sde:
            self.actor.reset_noise()
        with th.no_grad():
            target = self.td_target(batch, self.beta)
        loss = self.critic_loss(self.critic(batch.observations, batch.actions), target)
        self.critic.optimizer.zero_grad()
        loss.backward()
        self.critic.optimizer.step()
        self._n_critic_updates += 1
        if self._n_critic_updates % self.target_update_interval == 0:
            self._update_target()
        return {"critic_loss": loss}

    @th.no_grad()
    def _update_target(self) -> None:
        for target, online in zip(self._target_parameters, self._critic_parameters, strict=True):
            target.lerp_(online, self.tau)
        # statistics of batch normalisation are copied, see https://github.com/DLR-RM/stable-baselines3/issues/996
        polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)

    def _update_actor_and_temperature(self, batch: ReplayBufferSamples) -> dict[str, th.Tensor]:
        alpha = self.temperature
        actions, log_prob = self.actor.action_log_prob(batch.observations)
        with frozen(self._critic_parameters):
            value = self.policy_value(self.critic(batch.observations, actions))
        assert value.shape == log_prob.shape
        actor_loss = (alpha * log_prob - value).mean()
        self.actor.optimizer.zero_grad()
        actor_loss.backward()
        self.actor.optimizer.step()
        metrics = {"actor_loss": actor_loss, "ent_coef": alpha}
        if self.ent_coef_optimizer is not None:
            assert self.log_ent_coef is not None
            assert isinstance(self.target_entropy, float)
            # the logarithm itself, not its exponential: https://github.com/rail-berkeley/softlearning/issues/37
            loss = -(self.log_ent_coef * (log_prob.detach() + self.target_entropy)).mean()
            self.ent_coef_optimizer.zero_grad()
            loss.backward()
            self.ent_coef_optimizer.step()
            metrics["ent_coef_loss"] = loss
        return metrics

    # --- the soft value ---

    @property
    def temperature(self) -> th.Tensor:
        """alpha, fixed or learned"""
        return self.ent_coef_tensor if self.log_ent_coef is None else self.log_ent_coef.detach().exp()

    def entropy_bonus(self, obs: PyTorchObs) -> th.Tensor:
        return -self.temperature * self.actor.action_log_prob(obs)[1]

    def tail_value(self, obs: PyTorchObs) -> th.Tensor:
        """Q(s_T, a), a ~ pi(s_T), and with soft returns the entropy of that action too"""
        actions, log_prob = self.actor.action_log_prob(obs)
        value = self.value_estimate(obs, actions)
        return value - self.temperature * log_prob if self.bias.returns == "soft" else value
