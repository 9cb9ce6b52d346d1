"""Whole episodes as they were met, and the returns that the critic is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from acc_rl.core.bias import BiasSettings

Array: TypeAlias = npt.NDArray[Any]
Observations: TypeAlias = Array | dict[str, Array]


def discounted_returns(rewards: npt.ArrayLike, gamma: float, final: float = 0.0) -> npt.NDArray[np.float64]:
    """R_t = r_t + gamma * R_{t+1} with R_T = final, in one pass from the end."""
    returns = np.asarray(rewards, dtype=np.float64).tolist()
    following = final
    for t in reversed(range(len(returns))):
        following = returns[t] = returns[t] + gamma * following
    return np.array(returns, dtype=np.float64)


def at(observations: Observations, index: Any) -> Observations:
    """``observations[index]``, for arrays and for dictionaries of arrays alike."""
    if isinstance(observations, dict):
        return {key: value[index] for key, value in observations.items()}
    return observations[index]  # type: ignore[no-any-return]


def join(parts: Sequence[Observations], how: Callable[[list[Array]], Array]) -> Observations:
    """``how(parts)`` (np.stack, np.concatenate), for arrays and for dictionaries of arrays alike."""
    if isinstance(parts[0], dict):
        return {key: how([part[key] for part in parts]) for key in parts[0]}
    return how(list(parts))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Episode:
    """T transitions from a reset to an end."""

    observations: Observations
    """s_0 ... s_{T-1}"""
    actions: Array
    rewards: npt.NDArray[np.float64]
    final_observation: Observations
    """s_T"""
    truncated: bool
    """ended by a time limit, not by the task"""

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Pairs:
    """State-action pairs and the return that followed each."""

    observations: Observations
    actions: Array
    returns: npt.NDArray[np.float64]


class ReturnTracker:
    """Collects the steps of any number of parallel envs into whole episodes and keeps the most recent of them."""

    def __init__(self, n_envs: int, gamma: float, settings: BiasSettings | None = None) -> None:
        self.gamma = gamma
        self.settings = settings or BiasSettings()
        self.episodes: list[Episode] = []
        self.forget_open(n_envs)

    def forget_open(self, n_envs: int) -> None:
        """Drop the unfinished episodes: the envs were reset, their ends will not come."""
        self._open: list[list[tuple[Observations, Array, float]]] = [[] for _ in range(n_envs)]

    @property
    def n_pairs(self) -> int:
        return sum(map(len, self.episodes))

    def add(
        self,
        observations: Observations,
        actions: Array,
        rewards: Array,
        ended: Sequence[bool] | Array,
        truncated: Sequence[bool] | Array,
        final_observations: Mapping[int, Observations],
    ) -> bool:
        """One step of every env; True if an episode ended. ``final_observations[i]`` is s_T of an env that ended."""
        # rows are copied: many vectorised envs write the next step into the same memory
        for i, steps in enumerate(self._open):
            row = at(observations, i)
            row = {k: np.array(v) for k, v in row.items()} if isinstance(row, dict) else np.array(row)
            steps.append((row, np.array(actions[i]), float(rewards[i])))
            if ended[i]:
                self.episodes.append(_close(steps, final_observations[i], bool(truncated[i])))
                self._open[i] = []
        return any(ended)

    def trim(self) -> None:
        """Let the oldest episodes go until at most ``pairs_kept`` pairs remain."""
        n_pairs, oldest = self.n_pairs, 0
        while n_pairs > self.settings.pairs_kept:
            n_pairs -= len(self.episodes[oldest])
            oldest += 1
        del self.episodes[:oldest]

    def pairs(
        self,
        entropy_bonus: Callable[[Observations], Array],
        tail_value: Callable[[Observations], Array],
        scale_rewards: Callable[[Array], Array] = lambda rewards: rewards,
    ) -> Pairs | None:
        """All stored pairs with their returns, or None where there are none to compare.

        returns="soft" adds ``entropy_bonus(s_t) = -alpha * log pi`` of every step after the first,
        tail="bootstrap" adds ``gamma^(T-t) * tail_value(s_T)`` to episodes that a time limit cut,
        tail=("drop", n) leaves their last n pairs out.
        """
        if not self.episodes:
            return None
        observations = join([e.observations for e in self.episodes], np.concatenate)
        rewards = scale_rewards(np.concatenate([e.rewards for e in self.episodes])).astype(np.float64)
        ends = np.cumsum([len(e) for e in self.episodes])
        if self.settings.returns == "soft":
            # r_t + gamma * (bonus_{t+1} + ...): the bonus of the next step is paid with this step's reward
            bonus = np.append(entropy_bonus(observations)[1:], 0.0)
            bonus[ends - 1] = 0.0
            rewards = rewards + self.gamma * bonus
        final = np.zeros(len(self.episodes))
        cut = np.array([e.truncated for e in self.episodes])
        if self.settings.tail == "bootstrap" and cut.any():
            final[cut] = tail_value(join([e.final_observation for e in self.episodes if e.truncated], np.stack))
        per_episode = zip(np.split(rewards, ends[:-1]), final, strict=True)
        returns = np.concatenate([discounted_returns(r, self.gamma, f) for r, f in per_episode])
        actions = np.concatenate([e.actions for e in self.episodes])
        keep = self._kept(ends, cut)
        return Pairs(at(observations, keep), actions[keep], returns[keep]) if keep.any() else None

    def _kept(self, ends: Array, cut: Array) -> Array:
        keep = np.ones(ends[-1], dtype=bool)
        if isinstance(self.settings.tail, tuple):
            starts = np.append(0, ends[:-1])
            for start, end in zip(starts[cut], ends[cut], strict=True):
                keep[max(start, end - self.settings.tail[1]) : end] = False
        return keep

    def cut(self, index: int, final: Observations) -> None:
        """Close the open episode of one env as if a time limit had cut it at ``final``."""
        if self._open[index]:
            self.episodes.append(_close(self._open[index], final, True))
            self._open[index] = []

    def state_dict(self) -> dict[str, Any]:
        """The steps of all episodes one after the other: thousands of short episodes make few arrays."""
        stored = [(e.observations, e.actions, e.rewards) for e in self.episodes]
        steps = [step for steps in self._open for step in steps]
        return {
            "stored": _joined(stored, np.concatenate),
            "finals": join([e.final_observation for e in self.episodes], np.stack) if stored else {},
            "truncated": np.array([e.truncated for e in self.episodes], bool),
            "lengths": np.array([len(e) for e in self.episodes], np.int64),
            "open": _joined(steps, np.stack),
            "open_lengths": np.array([len(steps) for steps in self._open], np.int64),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.episodes, start = [], 0
        for i, length in enumerate(state["lengths"].tolist()):
            parts = {key: _copied(at(part, slice(start, start + length))) for key, part in state["stored"].items()}
            final, truncated = _copied(at(state["finals"], i)), bool(state["truncated"][i])
            self.episodes.append(Episode(**parts, final_observation=final, truncated=truncated))  # type: ignore[arg-type]
            start += length
        lengths = state["open_lengths"].tolist()
        if len(lengths) != len(self._open):  # another number of envs starts with fresh episodes
            return
        self._open, start = [], 0
        for length in lengths:
            steps = [{key: at(part, start + t) for key, part in state["open"].items()} for t in range(length)]
            self._open.append([_step(**step) for step in steps])
            start += length


def _step(observations: Observations, actions: Any, rewards: Any) -> tuple[Observations, Array, float]:
    return _copied(observations), np.array(actions), float(rewards)


def _joined(rows: Sequence[Sequence[Any]], how: Callable[[list[Array]], Array]) -> dict[str, Any]:
    columns = zip(("observations", "actions", "rewards"), zip(*rows, strict=True), strict=True) if rows else ()
    return {name: join(list(column), how) for name, column in columns}


def _copied(observations: Observations) -> Observations:
    """A part would keep the whole in memory."""
    if isinstance(observations, dict):
        return {key: np.array(value) for key, value in observations.items()}
    return np.array(observations)


def _close(steps: list[tuple[Observations, Array, float]], final: Observations, truncated: bool) -> Episode:
    observations, actions, rewards = zip(*steps, strict=True)
    return Episode(join(observations, np.stack), np.stack(actions), np.array(rewards), final, truncated)
