"""What makes an SB3 off-policy algorithm an ACC: hooks into its loop that forward to its ``Calibration``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import (
    GymEnv,
    MaybeCallback,
    PyTorchObs,
    ReplayBufferSamples,
    TrainFreq,
    TrainFrequencyUnit,
)
from typing_extensions import Self

from acc_rl.algos.arguments import described, signature
from acc_rl.algos.buffers import (
    SharedNStepReplayBuffer,
    SharedReplayBuffer,
    close_open_episodes,
    steps_of_targets,
)
from acc_rl.algos.calibration import Calibration
from acc_rl.algos.estimates import ModelEstimator, raw_transition
from acc_rl.algos.saving import Saved
from acc_rl.core.checks import first_non_finite, is_number, is_whole
from acc_rl.core.controller import Controller, make_controller
from acc_rl.core.errors import AccError, SettingError
from acc_rl.core.observations import Array, Observations
from acc_rl.core.settings import EARLY, PAPER, BiasSettings
from acc_rl.nn.allocator import keep_freed_memory
from acc_rl.nn.head import Law
from acc_rl.nn.knob import Knob

MANY_ENVS = 8
"""envs from which episodes that ended are no longer typical of all"""


class Calibrated(Saved):
    """Mixin: an algorithm adds ``make_knob`` and ``value_estimate``; ``calibration.target`` makes its targets."""

    default_bias: ClassVar[BiasSettings] = BiasSettings()
    """what differs from the paper's, beside what the knob decides"""
    default_controller: ClassVar[str] = "acc"
    action_space_type: ClassVar[type[spaces.Space[Any]]] = spaces.Box
    state_attributes: ClassVar[tuple[str, ...]] = ("largest_reward", "_stored_at")
    """names of the attributes, plain data, that a checkpoint keeps; a subclass adds its own"""
    calibration: Calibration
    estimator: ModelEstimator

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__signature__ = signature(cls)  # type: ignore[attr-defined]
        if "__doc__" in vars(cls) and cls.__doc__:
            cls.__doc__ = described(cls.__doc__, signature(cls))

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        *args: Any,
        bias: BiasSettings | Mapping[str, Any] | None = None,
        controller: str | Controller | None = None,
        **kwargs: Any,
    ) -> None:
        self.bias: Any = bias
        self.controller = controller
        self._bias_given = BiasSettings()
        self._metrics: dict[str, tuple[th.Tensor, int]] = {}
        self.largest_reward = 0.0
        """in absolute value, as the critic learns from it"""
        self._stored_at = 0
        """``num_timesteps`` of the last transition that was stored"""
        if env is not None:
            env = maybe_make_env(env, kwargs.get("verbose", 0))
            self.check_action_space(env.action_space)
        super().__init__(policy, env, *args, **kwargs)  # type: ignore[arg-type]

    @classmethod
    def check_action_space(cls, space: spaces.Space[Any]) -> None:
        if not isinstance(space, cls.action_space_type):
            others = {spaces.Box: "acc-x, acc, acc-sac, acc-td3 and acc-ddpg", spaces.Discrete: "acc-dqn and acc-qrdqn"}
            raise SettingError(
                f"{cls.__name__} needs a {cls.action_space_type.__name__} action space, but the env's is {space}: "
                f"{others.get(type(space), 'no algorithm here')} can learn it"
            )
        if getattr(space, "start", 0):
            raise SettingError(f"the env's actions are {space}, but must begin with 0: a wrapper can shift them")

    # --- what an algorithm adds ---

    def make_knob(self) -> Knob:
        """The family of its targets; called before the nets are built"""
        raise NotImplementedError

    def value_estimate(self, obs: PyTorchObs, actions: th.Tensor) -> th.Tensor:
        """Q(s, a) of the online critic, (batch,)"""
        raise NotImplementedError

    def target_value(self, obs: PyTorchObs, beta: float) -> th.Tensor:
        """Q_beta(s, a) of the target critics for a fresh action, (batch,)"""
        value = self.value_estimate(obs, self.estimator.act(obs)[0])
        return self.calibration.target(Law(value[None, :, None]), beta).mean().squeeze(0)

    def check_settings(self) -> None:
        """Raise a SettingError that names what is wrong, before anything is built."""
        if not (is_number(self.gamma) and 0 <= self.gamma <= 1):
            raise SettingError(f"gamma is {self.gamma!r}, but must be a number in [0, 1]")
        self.gamma = float(self.gamma)  # numpy's would make SB3's returns double
        for name in ("n_steps", "batch_size"):
            if not is_whole(value := getattr(self, name), 1):
                raise SettingError(f"{name} is {value!r}, but must be an integer >= 1")
        told = self.replay_buffer_kwargs.get("n_steps", self.n_steps)
        if self.replay_buffer_class is None and told != self.n_steps:
            raise SettingError(
                f"replay_buffer_kwargs has n_steps = {told!r}, but n_steps is {self.n_steps}: set the latter"
            )

    # --- what algorithms share ---

    @property
    def beta(self) -> float:
        return self.calibration.beta

    @property
    def reward_scale(self) -> float:
        """What sampled rewards are divided by: the critic's values times this are in units of the env's rewards"""
        return 1.0

    def discounts(self, batch: ReplayBufferSamples) -> th.Tensor:
        """gamma (gamma^n with n-step returns), 0 after a terminal state; (batch, 1)"""
        # a time limit is not a terminal: the buffer's dones leave it out, so the target bootstraps through it
        return (1 - batch.dones) * (self.gamma if batch.discounts is None else batch.discounts)

    def largest_bonus(self) -> float:
        """What a step can be worth beside its reward"""
        return 0.0

    def value_limit(self) -> float:
        """(r_max + bonus) / (1 - gamma): no return can be larger, if the largest reward seen is the largest there is"""
        return (self.largest_reward + self.largest_bonus()) / max(1 - self.gamma, 1e-12)

    def mean_target(self) -> float | None:
        """The critics' targets on average since the last line of the log, or None before training"""
        total, count = self._metrics.get("target", (None, 0))
        return None if total is None else total.item() / count * self.reward_scale

    # --- building ---

    def _setup_model(self) -> None:
        # load(..., bias={...}) arrives here, and changes what was given when the model was made
        self._bias_given = self._bias_given.merged(self.bias)
        self.check_settings()
        knob = self.make_knob()
        controller = make_controller(self.default_controller if self.controller is None else self.controller)
        controller.seed = self.seed or 0
        self.bias = self._complete(knob, controller)
        chosen, given = self._choose_replay_buffer(), dict(self.replay_buffer_kwargs)
        super()._setup_model()
        if chosen:  # SB3 has put its own there, which a loaded model would take
            self.replay_buffer_class, self.replay_buffer_kwargs = None, given
            self.optimize_memory_usage = False  # in SB3's sense, which makes ``learn`` mark ends that are none
        self.estimator = ModelEstimator(self)
        self._check_returns()
        self._warn_of_many_envs()
        assert isinstance(self.train_freq, TrainFreq)  # since SB3 has set up the model
        self.calibration = Calibration(
            knob,
            controller,
            self.bias,
            self.n_envs,
            self.gamma,
            steps_of_targets(self),
            may_be_endless=self._bias_given.evidence is None,
            at_ends=self.train_freq.unit == TrainFrequencyUnit.EPISODE,
        )

    def _complete(self, knob: Knob, controller: Controller) -> BiasSettings:
        """All settings: the paper's, the knob's, the algorithm's and the user's, later ones before earlier ones"""
        settings = PAPER.merged(knob.settings(controller.adapts)).merged(self.default_bias)
        if "confident" in (settings.rule, self._bias_given.rule):
            settings = settings.merged(EARLY)
        if not controller.adapts:
            return settings.merged({k: v for k, v in self._bias_given.given().items() if k != "range"})
        settings = settings.merged(self._bias_given)
        assert settings.range is not None
        knob.check(*settings.range)
        return settings

    def _check_returns(self) -> None:
        for name, wanted, there in (
            ("returns", "soft", self.estimator.soft),
            ("tail", "bootstrap", self.estimator.bootstraps),
            ("evidence", "steps", self.estimator.bootstraps),
        ):
            if getattr(self.bias, name) == wanted and not there:
                lacks = "entropy_bonus" if name == "returns" else "tail_value"
                raise SettingError(f"bias.{name} is {wanted!r}, but {type(self).__name__} has no {lacks}")

    def _warn_of_many_envs(self) -> None:
        n, frequency = self.n_envs, self.train_freq
        if n > MANY_ENVS and self.bias.tail != "bootstrap":
            warnings.warn(
                f"n_envs is {n} and bias.tail {self.bias.tail!r}: only ended episodes count, short ones first, "
                "so that the critic seems to overestimate; use bias.tail='bootstrap'",
                stacklevel=2,
            )
        if isinstance(frequency, TrainFreq) and frequency.unit == TrainFrequencyUnit.STEP:
            done, collected = self.gradient_steps, frequency.frequency
            if collected <= done < collected * n:
                warnings.warn(
                    f"n_envs is {n}: {done} gradient steps follow {collected * n} env steps, less than one per step; "
                    "gradient_steps=-1 makes as many as env steps",
                    stacklevel=2,
                )

    def _choose_replay_buffer(self) -> bool:
        """The frugal ones, where SB3 would take its own"""
        if self.replay_buffer_class is not None or self.replay_buffer is not None:
            return False
        n_steps = {"n_steps": self.n_steps, "gamma": self.gamma} if self.n_steps > 1 else {}
        if n_steps and isinstance(self.observation_space, spaces.Dict):
            raise SettingError(f"n_steps is {self.n_steps}, but must be 1 for observations that are dictionaries")
        buffer_class = SharedNStepReplayBuffer if n_steps else SharedReplayBuffer
        self.replay_buffer = buffer_class(
            self.buffer_size,
            self.observation_space,
            self.action_space,
            device=self.device,
            n_envs=self.n_envs,
            **{**n_steps, **self.replay_buffer_kwargs},
        )
        return True

    # --- the loop ---

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        name = tb_log_name or type(self).__name__
        return super().learn(total_timesteps, callback, log_interval, name, reset_num_timesteps, progress_bar)

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[int, BaseCallback]:
        keep_freed_memory()
        if self.num_timesteps != self._stored_at:
            # a callback ended ``learn`` after env.step and before the transition was stored: the envs have moved on
            self._last_obs = None
        self.envs_were_reset = reset_num_timesteps or self._last_obs is None  # by SB3, in what follows
        if self.envs_were_reset:
            self.forget_open()
        result = super()._setup_learn(total_timesteps, callback, reset_num_timesteps, *args, **kwargs)
        if self.verbose and (notice := self.too_short(self._total_timesteps)):
            warnings.warn(notice, stacklevel=3)
        self._stored_at = self.num_timesteps
        first = self._last_obs if self._vec_normalize_env is None else self._last_original_obs
        assert first is not None
        self._require_finite("observation", first)
        return result

    def forget_open(self) -> None:
        """The envs are reset: the ends of open episodes will not come"""
        self.calibration.reset(self.n_envs)
        close_open_episodes(self.replay_buffer)

    def too_short(self, steps: int) -> str:
        """What to say of as many steps in all, if anything"""
        if steps > self.learning_starts:
            return ""
        return (
            f"{steps} steps and learning_starts {self.learning_starts}: nothing will be learned; "
            "take more steps, or a smaller learning_starts"
        )

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: Array,
        new_obs: Observations,
        reward: Array,
        dones: Array,
        infos: list[dict[str, Any]],
    ) -> None:
        # here _last_obs is still s_t and buffer_action is what the critic will see
        transition = raw_transition(self, buffer_action, new_obs, reward, dones, infos)
        normalizer = self._vec_normalize_env
        self._require_finite("action", buffer_action)
        for i, final in transition[-1].items():
            self._require_finite("final observation", final, env=i)
        after = new_obs if normalizer is None else normalizer.get_original_obs()
        self._require_finite("observation", after)
        self._require_finite("reward", transition[2])
        self.largest_reward = max(self.largest_reward, float(np.abs(reward).max()))
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)
        self._stored_at = self.num_timesteps
        warm_up = self.num_timesteps <= self.learning_starts
        self.calibration.observe(self.estimator, warm_up, transition, after)

    def _require_finite(self, what: str, values: Observations, env: int | None = None) -> None:
        """Stop before a NaN enters the replay buffer, and say what it was and where."""
        for key, array in values.items() if isinstance(values, dict) else [(None, values)]:
            found = first_non_finite(array)
            if found is None:
                continue
            value, where = found
            if env is None:
                env, *where = where
            name = what if key is None else f"{what}[{key!r}]"
            cause = "the policy has diverged" if what == "action" else "the environment returned it"
            raise AccError(
                f"{name} of env {env} is {value}{f' at index {where}' if where else ''} "
                f"at step {self.num_timesteps}: {cause}; it was not stored"
            )

    # --- logging: metrics stay tensors until they are written ---

    def record_metrics(self, metrics: Mapping[str, th.Tensor]) -> None:
        """Averaged until the next log line."""
        for name, value in metrics.items():
            total, count = self._metrics.get(name, (None, 0))
            self._metrics[name] = (value.detach() if total is None else total + value.detach(), count + 1)

    def bias_metrics(self) -> Iterator[tuple[str, float]]:
        yield from self.calibration.metrics().items()

    def dump_logs(self) -> None:
        for name, (total, count) in self._metrics.items():
            self.logger.record(f"train/{name}", total.item() / count)
        self._metrics.clear()
        for name, value in self.bias_metrics():
            self.logger.record(f"bias/{name}", value)
        super().dump_logs()

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "bias", "estimator", "_metrics"]
