"""Q-learning with discrete actions: DQN and QR-DQN calibrated by ACC."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch as th
from gymnasium import spaces
from sb3_contrib import QRDQN
from stable_baselines3 import DQN
from stable_baselines3.common.type_aliases import GymEnv, PyTorchObs, ReplayBufferSamples
from torch import nn

from acc_rl.algos.calibrated import Calibrated
from acc_rl.algos.estimates import chosen
from acc_rl.core.bias import BiasSettings
from acc_rl.nn.losses import quantile_huber_loss
from acc_rl.nn.q_beta import double_mix, dropped_per_net, truncate


class GreedyQ(Calibrated):
    """The loop of both: one network, one loss, gradients clipped by their norm."""

    action_space_type = spaces.Discrete
    max_grad_norm: float | None

    @abstractmethod
    def td_target(self, batch: ReplayBufferSamples, beta: float) -> th.Tensor:
        """What the online network regresses to."""

    @abstractmethod
    def td_loss(self, batch: ReplayBufferSamples, target: th.Tensor) -> th.Tensor:
        """Loss of the online network's estimates for the actions taken."""

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        assert self.replay_buffer is not None
        self.policy.set_training_mode(True)
        optimizer = self.policy.optimizer
        self._update_learning_rate(optimizer)
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            with th.no_grad():
                target = self.td_target(batch, self.beta)
            loss = self.td_loss(batch, target)
            optimizer.zero_grad()
            loss.backward()
            if self.max_grad_norm is not None:
                nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            optimizer.step()
            self.record_metrics({"loss": loss, "target": target.mean()})
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    @abstractmethod
    def q_values(self, obs: PyTorchObs) -> th.Tensor:
        """Q of the online network, (batch, n_actions)"""

    def value_estimate(self, obs: PyTorchObs, actions: th.Tensor) -> th.Tensor:
        return chosen(self.q_values(obs), actions)

    def tail_value(self, obs: PyTorchObs) -> th.Tensor:
        return self.q_values(obs).amax(dim=1)


class ACCDQN(GreedyQ, DQN):  # type: ignore[misc]
    """DQN whose target lies between the plain maximum and the double estimate, where the recent returns put it."""

    default_bias = BiasSettings(start=0.5, range=(0.0, 1.0), lr=0.02)

    def td_target(self, batch: ReplayBufferSamples, beta: float) -> th.Tensor:
        q = double_mix(self.q_net_target(batch.next_observations), self.q_net(batch.next_observations), beta)
        return batch.rewards + self.discounts(batch) * q

    def td_loss(self, batch: ReplayBufferSamples, target: th.Tensor) -> th.Tensor:
        return nn.functional.smooth_l1_loss(self.q_net(batch.observations).gather(1, batch.actions.long()), target)

    def q_values(self, obs: PyTorchObs) -> th.Tensor:
        q: th.Tensor = self.q_net(obs)
        return q


class ACCQRDQN(GreedyQ, QRDQN):
    """QR-DQN whose ``d`` largest target atoms are dropped, d following the recent returns.

    As in ACC for continuous actions, d starts at a tenth of the atoms and may reach a fifth.
    """

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        *args: Any,
        bias: BiasSettings | Mapping[str, Any] | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        n_atoms = (policy_kwargs or {}).get("n_quantiles", 200)
        self.default_bias = BiasSettings(start=n_atoms / 10, range=(0.0, n_atoms / 5), lr=n_atoms / 250)
        super().__init__(policy, env, *args, bias=bias, policy_kwargs=policy_kwargs, **kwargs)

    def check_settings(self) -> None:
        super().check_settings()
        n_atoms = self.policy_kwargs.get("n_quantiles", 200)
        low, high = self.bias.range
        if round(high - low) >= n_atoms:
            raise ValueError(
                f"bias.range is {self.bias.range}: up to {high - low:g} atoms would be dropped, "
                f"but there are only n_quantiles={n_atoms}; use a narrower range or more atoms"
            )

    @property
    def dropped_per_net(self) -> float:
        """d, how many of the largest target atoms are dropped just now"""
        return dropped_per_net(self.beta, self.bias.range[1])

    def td_target(self, batch: ReplayBufferSamples, beta: float) -> th.Tensor:
        """y = r + gamma * z for the kept atoms z of the greedy action, (batch, kept)"""
        z = self.quantile_net_target(batch.next_observations)
        kept = truncate(_of_actions(z, z.mean(dim=1).argmax(dim=1))[None], dropped_per_net(beta, self.bias.range[1]))
        return batch.rewards + self.discounts(batch) * kept

    def td_loss(self, batch: ReplayBufferSamples, target: th.Tensor) -> th.Tensor:
        z = _of_actions(self.quantile_net(batch.observations), batch.actions.long().squeeze(1))
        # QR-DQN sums over its atoms
        return z.shape[1] * quantile_huber_loss(z[None], target)

    def q_values(self, obs: PyTorchObs) -> th.Tensor:
        z: th.Tensor = self.quantile_net(obs)
        return z.mean(dim=1)

    def bias_metrics(self) -> Iterator[tuple[str, float]]:
        yield "dropped_per_net", self.dropped_per_net
        yield from super().bias_metrics()


def _of_actions(z: th.Tensor, actions: th.Tensor) -> th.Tensor:
    """(batch, n_atoms, n_actions), (batch,) -> (batch, n_atoms)"""
    return z[th.arange(len(z), device=z.device), :, actions]
