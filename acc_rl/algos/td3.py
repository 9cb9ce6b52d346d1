"""Deterministic actor-critics: TD3 and DDPG, plain or calibrated by ACC."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch as th
from stable_baselines3 import TD3 as SB3TD3
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, PyTorchObs, ReplayBufferSamples, Schedule
from stable_baselines3.common.utils import polyak_update

from acc_rl.algos.actor_critic import ActorCritic, descend, soft_update
from acc_rl.algos.actors import DeterministicActor
from acc_rl.algos.buffers import steps_of_targets
from acc_rl.algos.policies import DeterministicCnnPolicy, DeterministicMultiInputPolicy, DeterministicPolicy
from acc_rl.core.errors import SettingError
from acc_rl.nn.head import Head, Scalar
from acc_rl.nn.knob import Knob, MixWithMin, Shift
from acc_rl.nn.layers import statistics


class TD3(ActorCritic, SB3TD3):  # type: ignore[misc]
    """TD3 with the fast ensemble; ``bias`` sets when the gap between returns and critic is measured for the log.

    Exploration adds normal noise of standard deviation ``exploration_noise`` (on actions scaled to [-1, 1]) unless an
    ``action_noise`` is given. With several critic updates per step the target critics follow after every
    ``policy_delay`` of them, and the actor is updated once, at the end.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": DeterministicPolicy,
        "CnnPolicy": DeterministicCnnPolicy,
        "MultiInputPolicy": DeterministicMultiInputPolicy,
    }
    default_controller = "fixed"
    peer = "td3"
    actor: DeterministicActor  # type: ignore[assignment]

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 1e-3,
        *,
        learning_starts: int = 5000,
        batch_size: int = 100,
        exploration_noise: float = 0.1,
        **kwargs: Any,
    ) -> None:
        self.exploration_noise = exploration_noise
        kwargs.update(learning_starts=learning_starts, batch_size=batch_size)
        super().__init__(policy, env, learning_rate, **kwargs)

    def check_settings(self) -> None:
        super().check_settings()
        if not 0 <= self.exploration_noise < np.inf:
            raise SettingError(f"exploration_noise is {self.exploration_noise!r}, but must be a number >= 0")

    def _setup_model(self) -> None:
        super()._setup_model()
        self._actor_parameters = [*self.actor.parameters(), *statistics(self.actor)]
        self._actor_target_parameters = [*self.actor_target.parameters(), *statistics(self.actor_target)]
        self._own_noise = self.action_noise is None
        if self._own_noise and self.exploration_noise > 0:
            shape = self.action_space.shape
            assert shape is not None
            self.action_noise = NormalActionNoise(np.zeros(shape), np.full(shape, self.exploration_noise))

    def _excluded_save_params(self) -> list[str]:
        own = ["action_noise"] if self._own_noise else []  # a loaded model makes it anew, for its number of envs
        return [*super()._excluded_save_params(), *own, "_actor_parameters", "_actor_target_parameters"]

    def make_head(self) -> Head:
        return Scalar()

    def make_knob(self) -> Knob:
        return MixWithMin()

    @property
    def target_interval(self) -> int:
        return self.policy_delay

    def next_actions(self, obs: PyTorchObs) -> tuple[th.Tensor, float]:
        """The target actor's, with noise"""
        actions = self.actor_target(obs)
        noise = th.empty_like(actions).normal_(0, self.target_policy_noise)
        return (actions + noise.clamp(-self.target_noise_clip, self.target_noise_clip)).clamp(-1, 1), 0.0

    def update_actor(self, batch: ReplayBufferSamples) -> None:
        """Ascend Q_1(s, pi(s))"""
        z = self.critic(batch.observations, self.actor(batch.observations), frozen=True, n_first=1)
        loss = -self.head.values(z).mean()
        descend(self.actor.optimizer, loss)
        soft_update(self._actor_target_parameters, self._actor_parameters, self.tau)
        if self.critic_batch_norm_stats or self.actor_batch_norm_stats:
            polyak_update(self.critic_batch_norm_stats, self.critic_batch_norm_stats_target, 1.0)
            polyak_update(self.actor_batch_norm_stats, self.actor_batch_norm_stats_target, 1.0)
        self.record_metrics({"actor_loss": loss})


class ACCTD3(TD3):
    """TD3 whose targets lie between each critic's own estimate and the smallest, where the recent returns put them."""

    default_controller = "acc"


class DDPG(TD3):
    """DDPG: one critic, no delay, no target noise."""

    default_n_critics = 1
    peer = "ddpg"

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 1e-3,
        *,
        policy_delay: int = 1,
        target_policy_noise: float = 0.0,
        **kwargs: Any,
    ) -> None:
        kwargs.update(policy_delay=policy_delay, target_policy_noise=target_policy_noise)
        super().__init__(policy, env, learning_rate, **kwargs)

    def make_knob(self) -> Knob:
        return Shift.of(self.gamma ** steps_of_targets(self), each=True)


class ACCDDPG(DDPG):
    """DDPG whose targets are shifted by ``beta * |Q| / 100``, with beta following the most recent returns."""

    default_controller = "acc"
