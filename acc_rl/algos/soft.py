"""The actor and temperature of the soft actor-critics."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch as th
from stable_baselines3 import SAC
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.type_aliases import PyTorchObs, ReplayBufferSamples
from stable_baselines3.common.utils import polyak_update

from acc_rl.algos.actor_critic import ActorCritic
from acc_rl.algos.actors import Backward, GaussianActor


class SoftActorCritic(ActorCritic, SAC):  # type: ignore[misc]
    """A critic that contains the policy's entropy, weighted by the temperature alpha."""

    @abstractmethod
    def policy_value(self, z: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """(n_critics, batch, n_atoms) -> (batch,), what the actor maximises, and its derivative with respect to z."""

    @property
    def target_interval(self) -> int:
        return self.target_update_interval

    @property
    def temperature(self) -> th.Tensor:
        """alpha, fixed or learned"""
        return self.ent_coef_tensor if self.log_ent_coef is None else self.log_ent_coef.detach().exp()

    def optimizers(self) -> list[th.optim.Optimizer]:
        return super().optimizers() + ([] if self.ent_coef_optimizer is None else [self.ent_coef_optimizer])

    def update_critic(self, batch: ReplayBufferSamples) -> None:
        if self.use_sde:
            self.actor.reset_noise()
        super().update_critic(batch)
        # statistics of batch normalisation are copied, see https://github.com/DLR-RM/stable-baselines3/issues/996
        polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)

    def update_actor(self, batch: ReplayBufferSamples) -> None:
        """Ascend E[policy_value - alpha * log pi], then move alpha so that the entropy meets its target."""
        alpha = self.temperature
        actions, log_prob, backward = self._action_log_prob_vjp(batch.observations)
        z, to_actions = self.critic.action_vjp(batch.observations, actions)
        value, d_value = self.policy_value(z)
        assert value.shape == log_prob.shape
        actor_loss = (alpha * log_prob - value).mean()
        backward(to_actions(d_value.div_(-len(value))), (alpha / len(value)).expand_as(log_prob))
        self.actor.optimizer.step()
        self.record_metrics({"actor_loss": actor_loss, "ent_coef": alpha})
        if self.ent_coef_optimizer is not None:
            assert self.log_ent_coef is not None
            assert isinstance(self.target_entropy, float)
            # loss = -log(alpha) * excess, with the logarithm itself as factor, not alpha:
            # https://github.com/rail-berkeley/softlearning/issues/37
            excess = (log_prob.mean() + self.target_entropy).reshape(1)
            self.record_metrics({"ent_coef_loss": -self.log_ent_coef * excess})
            self.log_ent_coef.grad = -excess
            self.ent_coef_optimizer.step()

    def largest_bonus(self) -> float:
        """alpha * log(2^n): no distribution on [-1, 1]^n has more entropy"""
        return float(self.temperature) * get_action_dim(self.action_space) * math.log(2)

    def _action_log_prob_vjp(self, obs: PyTorchObs) -> tuple[th.Tensor, th.Tensor, Backward]:
        if isinstance(self.actor, GaussianActor):
            return self.actor.action_log_prob_vjp(obs)
        # SB3's own actor, for generalised state-dependent exploration
        with th.enable_grad():
            results = self.actor.action_log_prob(obs)

        def backward(*grads: th.Tensor) -> None:
            self.actor.optimizer.zero_grad()
            th.autograd.backward(results, grads)

        actions, log_prob = results
        return actions.detach(), log_prob.detach(), backward

    def entropy_bonus(self, obs: PyTorchObs) -> th.Tensor:
        return -self.temperature * self.actor.action_log_prob(obs)[1]

    def tail_value(self, obs: PyTorchObs) -> th.Tensor:
        """Q(s_T, a), a ~ pi(s_T), and with soft returns the entropy of that action too"""
        actions, log_prob = self.actor.action_log_prob(obs)
        value = self.value_estimate(obs, actions)
        return value - self.temperature * log_prob if self.bias.returns == "soft" else value
