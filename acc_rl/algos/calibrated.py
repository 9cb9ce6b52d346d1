"""What makes an SB3 off-policy algorithm an ACC: one hook into its loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, PyTorchObs, ReplayBufferSamples
from stable_baselines3.common.utils import obs_as_tensor
from typing_extensions import Self

from acc_rl.algos.buffers import SharedNStepReplayBuffer, SharedReplayBuffer
from acc_rl.core.bias import AdaptiveBias, BiasSettings, FixedBias
from acc_rl.core.episodes import Array, Observations, ReturnTracker, at
from acc_rl.nn.allocator import keep_freed_memory

CHUNK = 1024
"""pairs per forward pass when the critic is compared with the returns: a batch that still fits into the caches"""


class Calibrated(OffPolicyAlgorithm):
    """Mixin: watches whole episodes and lets the bias rule turn ``beta``.

    An algorithm adds ``value_estimate`` and reads ``self.beta`` where it computes its target.
    """

    default_bias: BiasSettings
    action_space_type: ClassVar[type[spaces.Space[Any]]] = spaces.Box
    bias_rule: FixedBias
    tracker: ReturnTracker

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        *args: Any,
        bias: BiasSettings | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.bias = self.default_bias.merged(bias)
        self._bias_metrics: dict[str, float] = {}
        self._metrics: dict[str, tuple[th.Tensor, int]] = {}
        self.largest_reward = 0.0
        """in absolute value, as the critic learns from it"""
        if env is not None:
            env = maybe_make_env(env, kwargs.get("verbose", 0))
            self._check_action_space(env)
        super().__init__(policy, env, *args, **kwargs)  # type: ignore[arg-type]

    def _check_action_space(self, env: GymEnv) -> None:
        if not isinstance(env.action_space, self.action_space_type):
            others = {spaces.Box: "acc, acc-sac, acc-td3 and acc-ddpg", spaces.Discrete: "acc-dqn and acc-qrdqn"}
            raise ValueError(
                f"{type(self).__name__} needs a {self.action_space_type.__name__} action space, but the env's is "
                f"{env.action_space}: {others.get(type(env.action_space), 'no algorithm here')} can learn it"
            )

    # --- what an algorithm adds ---

    def value_estimate(self, obs: PyTorchObs, actions: th.Tensor) -> th.Tensor:
        """Q(s, a) of the online critic, (batch,)"""
        raise NotImplementedError

    def entropy_bonus(self, obs: PyTorchObs) -> th.Tensor:
        """-alpha * log pi(a|s) with a ~ pi(s), (batch,); only a soft critic contains it"""
        raise NotImplementedError

    def tail_value(self, obs: PyTorchObs) -> th.Tensor:
        """The online critic's value of the state where a time limit cut the episode, (batch,)"""
        raise NotImplementedError

    def check_settings(self) -> None:
        """Raise a ValueError that names what is wrong, before anything is built."""
        for value, need, method in (
            (self.bias.returns, "soft", "entropy_bonus"),
            (self.bias.tail, "bootstrap", "tail_value"),
        ):
            if value == need and getattr(type(self), method) is getattr(Calibrated, method):
                name = "returns" if need == "soft" else "tail"
                raise ValueError(f"bias.{name} is {need!r}, but {type(self).__name__} has no {method}")

    def make_bias_rule(self) -> FixedBias:
        return AdaptiveBias(self.bias)

    # --- what algorithms share ---

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
        return None if total is None else total.item() / count

    # --- the loop ---

    @property
    def beta(self) -> float:
        return self.bias_rule.beta

    def _setup_model(self) -> None:
        # load(..., bias={...}) arrives here, and changes what was saved
        self.default_bias = self.bias = self.default_bias.merged(self.bias)
        self.check_settings()
        chosen, given = self._choose_replay_buffer(), dict(self.replay_buffer_kwargs)
        super()._setup_model()
        if chosen:  # SB3 has put its own there, which a loaded model would take
            self.replay_buffer_class, self.replay_buffer_kwargs = None, given
            self.optimize_memory_usage = False  # in SB3's sense, which makes ``learn`` mark ends that are none
        self.bias_rule = self.make_bias_rule()
        self.tracker = ReturnTracker(self.n_envs, self.gamma, self.bias)

    def _choose_replay_buffer(self) -> bool:
        """The frugal ones, where SB3 would take its own"""
        if self.replay_buffer_class is not None or self.replay_buffer is not None:
            return False
        n_steps = {"n_steps": self.n_steps, "gamma": self.gamma} if self.n_steps > 1 else {}
        if n_steps and isinstance(self.observation_space, spaces.Dict):
            raise ValueError(f"n_steps is {self.n_steps}, but must be 1 for observations that are dictionaries")
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
        if reset_num_timesteps:
            self.bias_rule.restart_clock()
        if reset_num_timesteps or self._last_obs is None:  # SB3 resets the envs
            self.tracker.forget_open(self.n_envs)
        result = super()._setup_learn(total_timesteps, callback, reset_num_timesteps, *args, **kwargs)
        first = self._last_obs if self._vec_normalize_env is None else self._last_original_obs
        assert first is not None
        self._require_finite("observation", first)
        return result

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
        normalizer = self._vec_normalize_env
        obs, next_obs, raw_reward = self._last_obs, new_obs, reward
        if normalizer is not None:
            obs = self._last_original_obs
            next_obs, raw_reward = normalizer.get_original_obs(), normalizer.get_original_reward()
        assert obs is not None
        self._require_finite("action", buffer_action)
        final: dict[int, Observations] = {}
        for i in np.flatnonzero(dones).tolist():
            terminal = infos[i].get("terminal_observation")
            if terminal is not None and normalizer is not None:
                terminal = normalizer.unnormalize_obs(terminal)
            final[i] = at(next_obs, i) if terminal is None else terminal
            self._require_finite("final observation", final[i], env=i)
        self._require_finite("observation", next_obs)
        self._require_finite("reward", raw_reward)

        self.largest_reward = max(self.largest_reward, float(np.abs(reward).max()))
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)
        limits = replay_buffer.handle_timeout_termination  # else the critic takes them for terminals
        timeouts = [limits and info.get("TimeLimit.truncated", False) for info in infos]
        ended = self.tracker.add(obs, buffer_action, raw_reward, dones, timeouts, final)
        if ended and self.bias_rule.due(self.num_timesteps):
            self._calibrate()

    def _calibrate(self) -> None:
        """gap = mean over the stored pairs of R(s, a) - Q(s, a); the rule turns beta by it."""
        normalizer = self._vec_normalize_env
        pairs = self.tracker.pairs(
            lambda obs: self._batched(self.entropy_bonus, obs),
            lambda obs: self._batched(self.tail_value, obs),
            # the critic learns from rewards that are scaled when they are sampled: compare on that scale
            (lambda rewards: rewards) if normalizer is None else normalizer.normalize_reward,
        )
        if pairs is None:
            warnings.warn(f"bias.tail is {self.bias.tail}, which leaves no pair to compare: beta stays", stacklevel=2)
            self.tracker.trim()
            return
        values = self._batched(self.value_estimate, pairs.observations, pairs.actions)
        gap = float(np.mean(pairs.returns - values))
        self.bias_rule.update(gap, self.num_timesteps)
        self.tracker.trim()
        self._bias_metrics = {
            "gap": gap,
            "mean_q": float(values.mean()),
            "mean_return": float(pairs.returns.mean()),
        }

    def _batched(self, function: Callable[..., th.Tensor], obs: Observations, actions: Array | None = None) -> Array:
        """``function`` of raw observations (and actions) in numpy, chunk by chunk."""
        if self._vec_normalize_env is not None:
            obs = self._vec_normalize_env.normalize_obs(obs)
        n = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        results = []
        with th.no_grad():
            for part in (slice(i, i + CHUNK) for i in range(0, n, CHUNK)):
                inputs = [obs_as_tensor(at(obs, part), self.device)]
                if actions is not None:
                    inputs.append(th.as_tensor(actions[part], device=self.device))
                results.append(function(*inputs))
        return th.cat(results).double().cpu().numpy()

    def _require_finite(self, what: str, values: Observations, env: int | None = None) -> None:
        """Stop before a NaN enters the replay buffer, and say what it was and where."""
        for key, array in values.items() if isinstance(values, dict) else [(None, values)]:
            array = np.asarray(array)
            if array.dtype.kind != "f" or np.isfinite(array).all():
                continue
            where = np.argwhere(~np.isfinite(array))[0].tolist()
            if env is None:
                env, *where = where
            name = what if key is None else f"{what}[{key!r}]"
            value = array[~np.isfinite(array)][0]
            cause = "the policy has diverged" if what == "action" else "the environment returned it"
            raise ValueError(
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
        yield "beta", self.beta
        if self.bias_rule.scale is not None:
            yield "scale", self.bias_rule.scale
        yield from self._bias_metrics.items()

    def dump_logs(self) -> None:
        for name, (total, count) in self._metrics.items():
            self.logger.record(f"train/{name}", total.item() / count)
        self._metrics.clear()
        for name, value in self.bias_metrics():
            self.logger.record(f"bias/{name}", value)
        super().dump_logs()

    # --- saving: SB3 stores state dicts of what is named here, without pickling it ---

    @property
    def calibration(self) -> _CalibrationState:
        return _CalibrationState(self.bias_rule, self.tracker)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "bias_rule", "tracker", "_metrics"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        state_dicts, variables = super()._get_torch_save_params()
        return [*state_dicts, "calibration"], variables


class _CalibrationState:
    """beta, its scale and counters, and the stored and open episodes, as SB3 saves a module."""

    def __init__(self, rule: FixedBias, tracker: ReturnTracker) -> None:
        self.rule, self.tracker = rule, tracker

    def state_dict(self) -> dict[str, Any]:
        # tensors, because torch refuses numpy arrays when it loads weights only
        tracker = _map_arrays(_to_tensor, self.tracker.state_dict())
        return {"bias_rule": self.rule.state_dict(), "tracker": tracker}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        self.rule.load_state_dict(state["bias_rule"])
        self.tracker.load_state_dict(_map_arrays(_to_numpy, state["tracker"]))


def _map_arrays(function: Callable[[Any], Any], tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _map_arrays(function, value) for key, value in tree.items()}
    return function(tree)


def _to_tensor(leaf: Any) -> Any:
    return th.as_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf


def _to_numpy(leaf: Any) -> Any:
    return leaf.cpu().numpy() if isinstance(leaf, th.Tensor) else leaf
