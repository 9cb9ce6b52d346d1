"""What the actor-critics share: k critic updates, then one actor update."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch as th
from stable_baselines3.common.type_aliases import GymEnv, PyTorchObs, ReplayBufferSamples, Schedule

from acc_rl.algos.calibrated import Calibrated
from acc_rl.algos.policies import EnsembleCritic, nets_of
from acc_rl.algos.saving import Stateful
from acc_rl.core.checks import is_whole
from acc_rl.core.errors import SettingError
from acc_rl.nn.head import Head, Law
from acc_rl.nn.optimizer import step
from acc_rl.nn.scaling import RewardScale

BOUND = 5.0
"""scaled returns are in [-5, 5]"""


@th.no_grad()
def soft_update(targets: Sequence[th.Tensor], online: Sequence[th.Tensor], tau: float) -> None:
    """target = (1 - tau) * target + tau * online"""
    for target, parameter in zip(targets, online, strict=True):
        target.lerp_(parameter, tau)


def descend(optimizer: th.optim.Optimizer | None, loss: th.Tensor) -> None:
    assert optimizer is not None
    optimizer.zero_grad()
    loss.backward()
    step(optimizer)


def with_argument(policy_kwargs: dict[str, Any] | None, name: str, given: int | None, default: int) -> dict[str, Any]:
    """``policy_kwargs`` with an argument of the algorithm, which may stand in either place"""
    there = (policy_kwargs or {}).get(name, given)
    if given is not None and there != given:
        raise SettingError(f"{name} is {given!r}, but policy_kwargs has {there!r}: give one of them")
    return {**(policy_kwargs or {}), name: default if there is None else there}


class ActorCritic(Calibrated):
    """Per gradient step ``critic_updates`` critic updates, each on its own minibatch, then one actor update.

    The latter only where ``policy_delay`` critic updates have been made since the last one.

    An algorithm adds ``make_head``, ``make_knob``, ``next_actions``, ``update_actor`` and ``target_interval``.
    """

    critic: EnsembleCritic
    critic_target: EnsembleCritic
    default_n_critics: ClassVar[int] = 2
    policy_delay: int
    state_attributes = (*Calibrated.state_attributes, "_n_critic_updates")

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule,
        *,
        n_critics: int | None = None,
        critic_updates: int = 1,
        normalize_observations: bool | None = False,
        reward_scaling: bool = False,
        policy_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.critic_updates, self.reward_scaling = critic_updates, reward_scaling
        self._n_critic_updates = 0
        policy_kwargs = with_argument(policy_kwargs, "n_critics", n_critics, self.default_n_critics)
        if normalize_observations is not False:
            policy_kwargs = {"normalize_observations": normalize_observations, **policy_kwargs}
        super().__init__(policy, env, learning_rate, policy_kwargs=policy_kwargs, **kwargs)

    def check_settings(self) -> None:
        super().check_settings()
        counts = {"critic_updates": self.critic_updates, "policy_delay": self.policy_delay}
        counts |= {name: value for name, value in self.policy_kwargs.items() if name in ("n_critics", "n_atoms")}
        for name, value in counts.items():
            if not is_whole(value, 1):
                raise SettingError(f"{name} is {value!r}, but must be an integer >= 1")
        nets = self.policy_kwargs.get("nets", "mlp")
        if self.batch_size == 1 and "batchnorm" in (nets_of(nets, "pi"), nets_of(nets, "qf")):
            raise SettingError("batch_size is 1, but nets='batchnorm' takes mean and variance of a batch: 2 or more")

    def _setup_model(self) -> None:
        self.head, given = self.make_head(), self.policy_kwargs
        self.policy_kwargs = {**given, "n_atoms": self.head.n_outputs}  # the critics have as many outputs as it reads
        super()._setup_model()
        if given.get("normalize_observations", False) is None:  # the policy has decided
            given = {**given, "normalize_observations": self.policy.normalize_observations}
        self.policy_kwargs = given
        self.scale = RewardScale(self.gamma, BOUND)
        self._critic_parameters = list(self.critic.parameters())
        self._target_parameters = list(self.critic_target.parameters())

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "head", "scale", "_critic_parameters", "_target_parameters"]

    # --- scales ---

    @property
    def reward_scale(self) -> float:
        return self.scale.value if self.reward_scaling else 1.0

    def _store_transition(
        self, replay_buffer: Any, action: Any, new_obs: Any, reward: Any, dones: Any, infos: Any
    ) -> None:
        super()._store_transition(replay_buffer, action, new_obs, reward, dones, infos)
        if self.reward_scaling:
            self.scale.add(reward, dones)
        self.policy.collected(new_obs)  # type: ignore[operator]

    def beside_nets(self) -> dict[str, Stateful]:
        return {**super().beside_nets(), "scale": self.scale}

    def forget_open(self) -> None:
        super().forget_open()
        self.scale.forget_open()

    # --- what an algorithm adds ---

    @abstractmethod
    def make_head(self) -> Head:
        """What the critics' outputs mean, and how many they have; called before the nets are built"""

    @abstractmethod
    def next_actions(self, obs: PyTorchObs) -> tuple[th.Tensor, th.Tensor | float]:
        """The actions that the targets bootstrap with, and their entropy bonus, (batch, 1)"""

    @abstractmethod
    def update_actor(self, batch: ReplayBufferSamples) -> None:
        """One step of the actor, on the last minibatch."""

    @property
    @abstractmethod
    def target_interval(self) -> int:
        """Critic updates per update of the target critics."""

    # --- training ---

    def td_target(
        self, batch: ReplayBufferSamples, beta: float, following: tuple[th.Tensor, th.Tensor | float] | None = None
    ) -> Law:
        """y = r + gamma * (Q_beta(s', a') + bonus), the law that the critics regress to; ``following``: a', bonus"""
        actions, bonus = following or self.next_actions(batch.next_observations)
        if self.critic.ensemble.over_batch:
            _, z = self.critic_target.both(batch.observations, batch.actions, batch.next_observations, actions)
        else:
            z = self.critic_target(batch.next_observations, actions)
        rewards = batch.rewards / self.reward_scale if self.reward_scaling else batch.rewards
        law = self.calibration.target(self.head.law(z), beta)
        return law.bellman(rewards, self.discounts(batch), bonus)

    def target_value(self, obs: PyTorchObs, beta: float) -> th.Tensor:
        z = self.critic_target(obs, self.next_actions(obs)[0])
        value = self.calibration.target(self.head.law(z), beta).mean()
        return value if value.dim() == 1 else value.mean(dim=0)

    def value_estimate(self, obs: PyTorchObs, actions: th.Tensor) -> th.Tensor:
        """The mean of all critics and atoms: what the critics have learned, without the pessimism of a minimum"""
        return self.head.values(self.critic(obs, actions)).mean(dim=0)

    def optimizers(self) -> list[th.optim.Optimizer]:
        return [self.actor.optimizer, self.critic.optimizer]  # type: ignore[list-item]

    def train(self, gradient_steps: int, batch_size: int = 256) -> None:
        assert self.replay_buffer is not None
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.optimizers())
        for _ in range(gradient_steps):
            for _ in range(self.critic_updates):
                batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
                self.update_critic(batch)
            if self._n_critic_updates % self.policy_delay < self.critic_updates:
                self.update_actor(batch)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def update_critic(self, batch: ReplayBufferSamples) -> None:
        with th.no_grad():
            following = self.next_actions(batch.next_observations)
            target = self.td_target(batch, self.beta, following)
        if self.critic.ensemble.over_batch:
            z, _ = self.critic.both(batch.observations, batch.actions, batch.next_observations, following[0])
        else:
            z = self.critic(batch.observations, batch.actions)
        loss = self.head.loss(z, target)
        descend(self.critic.optimizer, loss)
        self._n_critic_updates += 1
        if self._n_critic_updates % self.target_interval == 0:
            soft_update(self._target_parameters, self._critic_parameters, self.tau)
        mean_target = target.mean().mean()
        if self.calibration.controller.wants_td_error:
            self.calibration.trained(self.head.values(z.detach()).mean() - mean_target)
        self.record_metrics({"critic_loss": loss, "target": mean_target})
