"""Q-learning with discrete actions: the loop of DQN and QR-DQN, and DQN, plain or calibrated by ACC."""

from __future__ import annotations

from abc import abstractmethod

import stable_baselines3 as sb3
import torch as th
from gymnasium import spaces
from stable_baselines3.common.type_aliases import PyTorchObs, ReplayBufferSamples
from torch import nn

from acc_rl.algos.calibrated import Calibrated
from acc_rl.algos.estimates import chosen
from acc_rl.core.settings import BiasSettings
from acc_rl.nn.head import Head, Law, Scalar
from acc_rl.nn.knob import Knob, MixWithMin
from acc_rl.nn.optimizer import step


class GreedyQ(Calibrated):
    """The loop of both: one network, one loss, gradients clipped by their norm."""

    action_space_type = spaces.Discrete
    default_controller = "fixed"
    default_bias = BiasSettings(tail="bootstrap")  # exploration takes actions that the critic does not count on
    max_grad_norm: float | None
    head: Head

    @abstractmethod
    def make_head(self) -> Head:
        """What the network's outputs mean; called before it is built"""

    @abstractmethod
    def next_law(self, obs: PyTorchObs, beta: float) -> Law:
        """The law of Q_beta at the greedy action, (batch, m)"""

    @abstractmethod
    def outputs(self, obs: PyTorchObs) -> th.Tensor:
        """Of the online network for each action, (n_actions, batch, n_outputs)"""

    def _setup_model(self) -> None:
        self.head = self.make_head()
        super()._setup_model()

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "head"]

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        assert self.replay_buffer is not None
        self.policy.set_training_mode(True)
        optimizer = self.policy.optimizer
        self._update_learning_rate(optimizer)
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            with th.no_grad():
                target = self.td_target(batch, self.beta)
            z = of_actions(self.outputs(batch.observations), batch.actions.long().squeeze(1))
            loss = self.head.loss(z, target)
            optimizer.zero_grad()
            loss.backward()
            if self.max_grad_norm is not None:
                nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            step(optimizer)
            mean_target = target.mean().mean()
            if self.calibration.controller.wants_td_error:
                self.calibration.trained(self.head.values(z.detach()).mean() - mean_target)
            self.record_metrics({"loss": loss, "target": mean_target})
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def td_target(self, batch: ReplayBufferSamples, beta: float) -> Law:
        """y = r + gamma * Q_beta(s', a'), what the online network regresses to"""
        return self.next_law(batch.next_observations, beta).bellman(batch.rewards, self.discounts(batch))

    def target_value(self, obs: PyTorchObs, beta: float) -> th.Tensor:
        return self.next_law(obs, beta).mean()

    def value_estimate(self, obs: PyTorchObs, actions: th.Tensor) -> th.Tensor:
        return chosen(self.head.values(self.outputs(obs)).t(), actions)


class DQN(GreedyQ, sb3.DQN):  # type: ignore[misc]
    """DQN as SB3 has it; ``bias`` sets when the gap between returns and critic is measured for the log."""

    peer = "dqn"

    def make_head(self) -> Head:
        return Scalar(huber=True)

    def make_knob(self) -> Knob:
        """Between the double estimate (0) and the plain maximum (1)"""
        return MixWithMin(plain=1.0)

    def next_law(self, obs: PyTorchObs, beta: float) -> Law:
        """beta * max_a Q(a) + (1 - beta) * Q(argmax_a Q_online(a))"""
        q, online = self.q_net_target(obs), self.q_net(obs)
        plain, double = q.amax(dim=1, keepdim=True), q.gather(1, online.argmax(dim=1, keepdim=True))
        # the double estimate is never larger, so it is the minimum of the two
        mixed = self.calibration.target(Law(th.stack([plain, double])), beta)
        return mixed if mixed.atoms.dim() == 2 else Law(mixed.atoms[0])  # one of both, or one of each

    def outputs(self, obs: PyTorchObs) -> th.Tensor:
        return self.q_net(obs).t()[..., None]  # type: ignore[no-any-return]


class ACCDQN(DQN):
    """DQN whose target lies between the plain maximum and the double estimate, where the recent returns put it."""

    default_controller = "acc"


def of_actions(z: th.Tensor, actions: th.Tensor) -> th.Tensor:
    """(n_actions, batch, n_outputs), (batch,) -> (1, batch, n_outputs)"""
    return z[actions, th.arange(z.shape[1], device=z.device)][None]
