"""Replay buffers that store each observation once, in single precision. They draw the same samples as SB3's."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

import numpy as np
import psutil
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from acc_rl.algos.transfer import to_device
from acc_rl.core.observations import Array, Observations

SHARED = -1
"""the next observation is the observation of the row after"""
ALONE = ""
"""the key of an observation that is no dictionary"""
GROWTH = 1.25
PLAIN_N_STEPS: int = signature(NStepReplayBuffer).parameters["n_steps"].default


class SharedReplayBuffer(ReplayBuffer):
    """SB3's ``ReplayBuffer`` in a third of the memory.

    The next observation of a transition is the observation of the row after it, in the ring as in time. Where they
    differ (an episode ended, the envs were reset, there is no row after yet) it is kept apart. Whether they differ is
    seen when the row after is added: no flag of an env is trusted.
    """

    observations: Any
    next_observations: Any

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
    ) -> None:
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = False  # in SB3's sense: it would lose the ends of episodes
        self.handle_timeout_termination = handle_timeout_termination
        rows = (self.buffer_size, n_envs)
        parts: Mapping[str, spaces.Space[Any]]
        parts = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {ALONE: observation_space}
        self._rows = {key: np.zeros((*rows, *self._shape(key)), _single(part.dtype)) for key, part in parts.items()}
        self.observations = self._rows if isinstance(observation_space, spaces.Dict) else self._rows[ALONE]
        following = {key: _NextObservations(self, key) for key in self._rows}
        self.next_observations = self._like_space(following)
        self.actions = np.zeros((*rows, self.action_dim), self._maybe_cast_dtype(action_space.dtype))
        self.rewards = np.zeros(rows, np.float32)
        self.dones = np.zeros(rows, np.uint8)
        self.timeouts = np.zeros(rows, np.uint8)
        self.reset()
        self._warn_if_too_large()

    def reset(self) -> None:
        super().reset()
        self.added = 0
        """transitions (of each env) ever added; the newest has the number ``added - 1``"""
        self.first = 0
        """number of the transition that went into row 0 first"""
        self._apart = np.full((self.buffer_size, self.n_envs), SHARED, np.int32)
        # observations that stand apart are numbered as they come and go in the same order
        self._first_end = self._next_end = 0
        self._ends = {key: np.zeros((self.n_envs, *rows.shape[2:]), rows.dtype) for key, rows in self._rows.items()}

    def _warn_if_too_large(self) -> None:
        free = psutil.virtual_memory().available
        if self.nbytes > free:
            warnings.warn(
                f"the replay buffer takes {self.nbytes / 1e9:.2f} GB when it is full, but {free / 1e9:.2f} GB of "
                "memory are free: use a smaller buffer_size",
                stacklevel=2,
            )

    def _shape(self, key: str) -> tuple[int, ...]:
        return self.obs_shape[key] if isinstance(self.obs_shape, dict) else self.obs_shape

    @property
    def oldest(self) -> int:
        """The number of the oldest transition that is still there"""
        return max(self.first, self.added - self.buffer_size)

    @property
    def nbytes(self) -> int:
        arrays = [*self._rows.values(), *self._ends.values(), self.actions, self.rewards]
        return sum(array.nbytes for array in (*arrays, self.dones, self.timeouts, self._apart))

    # --- adding ---

    def add(
        self,
        obs: Observations,
        next_obs: Observations,
        action: Array,
        reward: Array,
        done: Array,
        infos: list[dict[str, Any]],
    ) -> None:
        stored = self._as_stored(obs)
        self._settle_newest(stored)
        self._free(self.pos)
        for key, rows in self._rows.items():
            rows[self.pos] = stored[key]
        self.actions[self.pos] = action.reshape(self.n_envs, self.action_dim)
        self.rewards[self.pos] = reward
        self.dones[self.pos] = done
        if self.handle_timeout_termination:
            self.timeouts[self.pos] = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        self._apart[self.pos] = self._put_apart(self._as_stored(next_obs))
        self.added += 1
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0

    def _as_stored(self, observations: Observations) -> dict[str, Array]:
        parts = observations if isinstance(observations, dict) else {ALONE: observations}
        # in the stored precision before they are compared; discrete ones come without their last axis
        return {k: np.asarray(parts[k]).astype(r.dtype).reshape(r.shape[1:]) for k, r in self._rows.items()}

    def _settle_newest(self, following: dict[str, Array]) -> None:
        """The newest transitions get their row after: what equals it need not be kept apart."""
        if self.added == self.first:
            return
        numbers = self._apart[self.pos - 1]
        base = keep = int(numbers[0])
        assert base == self._next_end - self.n_envs
        for env, number in enumerate(numbers.tolist()):
            slots = {key: ends[number % len(ends)] for key, ends in self._ends.items()}
            if all(np.array_equal(slot, following[key][env]) for key, slot in slots.items()):
                numbers[env] = SHARED
                continue
            for key, ends in self._ends.items():
                ends[keep % len(ends)] = slots[key]
            numbers[env] = keep
            keep += 1
        self._next_end = keep

    def _free(self, row: int) -> None:
        """The row will be overwritten: its observations that stand apart are the oldest of these."""
        if self.full:
            self._first_end = max(self._first_end, int(self._apart[row].max()) + 1)

    def _put_apart(self, observations: Mapping[str, Array]) -> Array:
        """Their numbers"""
        count = len(next(iter(observations.values())))
        numbers = np.arange(self._next_end, self._next_end + count)
        self._next_end += count
        self._grow_ends(self._next_end - self._first_end)
        for key, ends in self._ends.items():
            ends[numbers % len(ends)] = observations[key]
        return numbers

    def _grow_ends(self, needed: int) -> None:
        if needed <= len(next(iter(self._ends.values()))):
            return
        numbers = np.arange(self._first_end, self._next_end)
        for key, ends in self._ends.items():
            grown = np.zeros((int(needed * GROWTH) + self.n_envs, *ends.shape[1:]), ends.dtype)
            grown[numbers % len(grown)] = ends[numbers % len(ends)]
            self._ends[key] = grown

    # --- sampling ---

    def _get_samples(self, batch_inds: Array, env: VecNormalize | None = None) -> Any:
        envs = np.random.randint(0, high=self.n_envs, size=(len(batch_inds),))  # noqa: NPY002, as SB3 draws
        index = batch_inds * self.n_envs + envs
        obs = self._like_space({key: _flat(rows).take(index, axis=0) for key, rows in self._rows.items()})
        next_obs = self._like_space(self.next_of(batch_inds, envs))
        terminated = _flat(self.dones).take(index) * (1 - _flat(self.timeouts).take(index))
        rewards = _flat(self.rewards).take(index).reshape(-1, 1)
        samples = DictReplayBufferSamples if isinstance(obs, dict) else ReplayBufferSamples
        batch = samples(
            observations=_on_host(self._normalize_obs(obs, env)),
            actions=_on_host(_flat(self.actions).take(index, axis=0)),
            next_observations=_on_host(self._normalize_obs(next_obs, env)),
            # a time limit is not a terminal
            dones=_on_host(terminated.astype(np.float32).reshape(-1, 1)),
            rewards=_on_host(self._normalize_reward(rewards, env)),
        )
        return to_device(batch, self.device)

    def next_of(self, rows: Array, envs: Array) -> dict[str, Array]:
        """The next observations of the transitions in these rows"""
        following = (rows + 1) % self.buffer_size * self.n_envs + envs
        numbers = _flat(self._apart).take(rows * self.n_envs + envs)
        apart = np.flatnonzero(numbers != SHARED)
        found = {key: _flat(stored).take(following, axis=0) for key, stored in self._rows.items()}
        if len(apart):
            for key, ends in self._ends.items():
                found[key][apart] = ends[numbers[apart] % len(ends)]
        return found

    def _like_space(self, parts: dict[str, Any]) -> Any:
        return parts.get(ALONE, parts)

    # --- on disk: transitions by their numbers ---

    def transitions(self, first: int, last: int) -> dict[str, Array]:
        """Transitions ``first`` ... ``last - 1``, and what was settled about the one before them when they came"""
        rows = self._row_of(np.arange(first, last))
        before = np.arange(max(first - 1, self.oldest), last)
        settled = self._row_of(before[:-1] if last == self.added else before)
        where, envs = np.nonzero(self._apart[settled] != SHARED)
        numbers = self._apart[settled[where], envs]
        parts: dict[str, Array] = {
            "actions": self.actions[rows],
            "rewards": self.rewards[rows],
            "dones": self.dones[self._row_of(before)],
            "timeouts": self.timeouts[self._row_of(before)],
            "end_numbers": before[where],
            "end_envs": envs,
        }
        parts |= {f"observations/{key}": stored[rows] for key, stored in self._rows.items()}
        return parts | {f"ends/{key}": ends[numbers % len(ends)] for key, ends in self._ends.items()}

    def newest(self) -> dict[str, Array]:
        """The next observations of the newest transition, about which nothing is settled yet, and its flags"""
        if self.added == self.first:
            return {}
        numbers = self._apart[self.pos - 1]
        newest = {f"next/{key}": ends[numbers % len(ends)] for key, ends in self._ends.items()}
        return newest | {"dones": self.dones[self.pos - 1], "timeouts": self.timeouts[self.pos - 1]}

    def load(
        self, added: int, first: int, segments: Iterable[tuple[int, Mapping[str, Array]]], newest: Mapping[str, Array]
    ) -> None:
        """What ``transitions`` gave, in order, each with the number of its first, and ``newest`` after them"""
        self.reset()
        self.added, self.first = added, first
        self.pos = (added - first) % self.buffer_size
        self.full = added - first >= self.buffer_size
        for start, parts in segments:
            self._load_segment(start, parts)
        if added > first:
            ends = {key: newest[f"next/{key}"] for key in self._ends}
            self._apart[self.pos - 1] = self._put_apart(ends)
            self.dones[self.pos - 1], self.timeouts[self.pos - 1] = newest["dones"], newest["timeouts"]

    def _load_segment(self, start: int, parts: Mapping[str, Array]) -> None:
        numbers = np.arange(start, start + len(parts["actions"]))
        flagged = np.arange(numbers[-1] + 1 - len(parts["dones"]), numbers[-1] + 1)
        skipped = int(np.searchsorted(numbers, self.oldest))
        rows = self._row_of(numbers[skipped:])
        self.actions[rows], self.rewards[rows] = parts["actions"][skipped:], parts["rewards"][skipped:]
        for key, stored in self._rows.items():
            stored[rows] = parts[f"observations/{key}"][skipped:]
        there = flagged >= self.oldest
        for flags, name in ((self.dones, "dones"), (self.timeouts, "timeouts")):
            flags[self._row_of(flagged[there])] = parts[name][there]
        there = parts["end_numbers"] >= self.oldest
        ends = self._put_apart({key: parts[f"ends/{key}"][there] for key in self._ends})
        self._apart[self._row_of(parts["end_numbers"][there]), parts["end_envs"][there]] = ends

    def _row_of(self, numbers: Array) -> Array:
        return (numbers - self.first) % self.buffer_size


class SharedNStepReplayBuffer(NStepReplayBuffer, SharedReplayBuffer):
    """With n-step returns"""

    def to_torch(self, array: Array, copy: bool = True) -> th.Tensor:
        return th.from_numpy(array)  # on the host, until the minibatch is whole

    def _get_samples(self, batch_inds: Array, env: VecNormalize | None = None) -> Any:
        return to_device(super()._get_samples(batch_inds, env), self.device)


def steps_of_targets(model: Any) -> int:
    """n of the n-step returns that the model learns from: of a buffer of one's own, SB3 leaves it to the buffer"""
    buffer_class = getattr(model, "replay_buffer_class", None)
    if buffer_class is None:
        return int(getattr(model, "n_steps", 1))
    if not issubclass(buffer_class, NStepReplayBuffer):
        return 1
    return int((model.replay_buffer_kwargs or {}).get("n_steps", PLAIN_N_STEPS))


def close_open_episodes(buffer: ReplayBuffer | None) -> None:
    """The envs are reset: no n-step return may go on into the episodes that follow, so these are truncated here"""
    if isinstance(buffer, NStepReplayBuffer) and buffer.size() > 0:
        newest = buffer.pos - 1
        is_open = buffer.dones[newest] == 0
        buffer.dones[newest, is_open] = buffer.timeouts[newest, is_open] = 1


class _NextObservations:
    """Reads like SB3's array, (rows, envs, ...), of one key where observations are dictionaries"""

    def __init__(self, buffer: SharedReplayBuffer, key: str) -> None:
        self.buffer, self.key = buffer, key

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.buffer._rows[self.key].shape
        return shape

    @property
    def dtype(self) -> Any:
        return self.buffer._rows[self.key].dtype

    def __len__(self) -> int:
        return self.buffer.buffer_size

    def __getitem__(self, index: Any) -> Array:
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) > 2 or any(each is Ellipsis for each in parts):
            whole: Array = np.asarray(self)[index]
            return whole
        shape = self.buffer.buffer_size, self.buffer.n_envs
        if len(parts) == 2 and all(map(_are_places, parts, shape)):  # what minibatches ask for, once per update
            rows, envs = np.broadcast_arrays(*parts)
        else:
            rows, envs = (np.asarray(each[index]) for each in np.broadcast_arrays(*np.ogrid[: shape[0], : shape[1]]))
        found = self.buffer.next_of(rows.ravel(), envs.ravel())[self.key]
        return found.reshape(*rows.shape, *found.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self[:].astype(dtype or self.dtype, copy=False)


def bytes_per_transition(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> int:
    """In memory and on disk, without the ends of episodes"""
    tiny = SharedReplayBuffer(1, observation_space, action_space, device="cpu")
    return tiny.nbytes - sum(ends.nbytes for ends in tiny._ends.values())


def _on_host(arrays: Any) -> Any:
    """As tensors that share the memory of what was gathered just now"""
    return (
        {key: th.from_numpy(array) for key, array in arrays.items()}
        if isinstance(arrays, dict)
        else th.from_numpy(arrays)
    )


def _single(dtype: Any) -> Any:
    return np.float32 if dtype == np.float64 else dtype


def _are_places(index: Any, size: int) -> bool:
    """Whether it is an array of integers 0 ... size - 1"""
    if not isinstance(index, np.ndarray) or index.dtype.kind not in "iu" or not index.size:
        return False
    return bool(index.min() >= 0 and index.max() < size)


def _flat(array: Array) -> Array:
    """Rows and envs as one axis, without a copy"""
    return array.reshape(-1, *array.shape[2:])
