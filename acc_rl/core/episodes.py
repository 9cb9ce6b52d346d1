"""Whole episodes as they were collected, and the one place where their returns are computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from acc_rl.core.observations import Array, Floats, Observations, copied, flat, index_observations, join, nested

ENDLESS = 10_000
"""steps of an env without an end, from which its task counts as one that never ends"""
LONGEST = 100_000
"""steps that are kept of an open episode, at most"""


class Estimator(Protocol):
    """A critic and its policy on raw observations, in numpy."""

    @property
    def soft(self) -> bool:
        """Whether the critic contains the entropy bonus"""

    @property
    def bootstraps(self) -> bool:
        """Whether it can say what follows a time limit"""

    def values(self, observations: Observations, actions: Array) -> Floats:
        """Q(s, a) now"""

    def bonus(self, observations: Observations) -> Floats:
        """-alpha * log pi(a|s) of a fresh action"""

    def tail(self, observations: Observations) -> Floats:
        """Q(s, a) of a fresh action where a time limit cut the episode, without its bonus"""

    def greedy(self, observations: Observations) -> Array | None:
        """The action that ``tail`` takes, where exploration takes others; None where a policy is learned"""

    def targets(self, observations: Observations, beta: float) -> Floats:
        """Q_beta(s, a) of the target critics for a fresh action, the same one for each beta"""

    def scale_rewards(self, rewards: Floats) -> Floats:
        """Rewards on the scale that the critic learns from"""


def discounted_returns(rewards: npt.ArrayLike, gamma: float, final: float = 0.0) -> Floats:
    """R_t = r_t + gamma * R_{t+1} with R_T = final, in one pass from the end."""
    returns = np.asarray(rewards, dtype=np.float64).tolist()
    following = final
    for t in reversed(range(len(returns))):
        following = returns[t] = returns[t] + gamma * following
    return np.array(returns, dtype=np.float64)


def discounted_bonus(bonus: npt.ArrayLike, gamma: float, n_steps: int = 1) -> Floats:
    """B_t = gamma^n * (b_{t+n} + B_{t+n}), 0 past the end: an n-step target contains every n-th bonus, the first not"""
    b = np.asarray(bonus, dtype=np.float64)
    if n_steps >= len(b):
        return np.zeros(len(b))
    result = np.zeros(len(b) + n_steps)
    for t in reversed(range(len(b) - n_steps)):
        result[t] = gamma**n_steps * (b[t + n_steps] + result[t + n_steps])
    return result[: len(b)]


@dataclass(frozen=True)
class Episode:
    """T transitions from a reset to an end."""

    observations: Observations
    """s_0 ... s_{T-1}"""
    actions: Array
    rewards: Floats
    final_observation: Observations
    """s_T"""
    truncated: bool
    """ended by a time limit, not by the task"""
    estimates: Floats
    """Q(s_t, a_t) when the pair was collected; NaN where nobody asked for it"""
    end: int
    """number of its last step, as all envs are counted"""

    def __len__(self) -> int:
        return len(self.rewards)

    def latest(self, n: int) -> Episode:
        """Its last n steps"""
        last = slice(-n, None)
        arrays = {name: getattr(self, name)[last] for name in ("actions", "rewards", "estimates")}
        return replace(self, observations=index_observations(self.observations, last), **arrays)


@dataclass(frozen=True)
class Pairs:
    """State-action pairs, what followed each, and what the critic says of it."""

    plain: Floats
    """discounted rewards to the end of the episode"""
    bonus: Floats
    """the discounted entropy bonus of the steps after the first, to the end of the episode"""
    tail: Floats
    """gamma^(u-t) * (Q(s_u) - R_u): at u a time limit cut the episode (R_u = 0), or the action is not greedy; else 0"""
    tail_bonus: Floats
    """the bonus at s_u, discounted alike"""
    weight: Floats
    """gamma^(u-t), 0 where the episode terminated before"""
    estimates: Floats
    """Q(s, a)"""
    episode: npt.NDArray[np.int64]
    """number of the episode that each pair is from"""
    left: npt.NDArray[np.int64]
    """steps from the pair to a time limit; very many where the episode terminated"""

    def returns(self, soft: bool = False, bootstrap: bool = False) -> Floats:
        """R(s, a), with the entropy bonus and the critic's value of what its policy did not do itself if asked for"""
        total = self.plain + self.bonus * soft + (self.tail + self.tail_bonus * soft) * bootstrap
        return np.asarray(total, dtype=np.float64)

    def without_tail(self, dropped: int) -> Pairs:
        """All but the last ``dropped`` pairs before each time limit"""
        keep = self.left > dropped
        return Pairs(**{name: getattr(self, name)[keep] for name in self.__dataclass_fields__})

    def within(self, n: int, gamma: float) -> Pairs:
        """The same with returns that stop after n steps, where Q(s_{t+n}, a_{t+n}) stands for the rest.

        An episode's end comes before that, as it does without.
        """
        inside = np.flatnonzero(self.episode[n:] == self.episode[:-n]) if n < len(self) else np.empty(0, np.int64)
        tail, tail_bonus, weight = self.tail.copy(), self.tail_bonus.copy(), self.weight.copy()
        after, weight[inside] = inside + n, gamma**n
        tail[inside] = gamma**n * (self.estimates[after] - self.plain[after])
        tail_bonus[inside] = -(gamma**n) * self.bonus[after]
        return replace(self, tail=tail, tail_bonus=tail_bonus, weight=weight, episode=self._blocks(n))

    def _blocks(self, n: int) -> npt.NDArray[np.int64]:
        """Numbers of the blocks of n steps, which are as good as independent where returns stop after n steps"""
        index = np.arange(len(self))
        first = index[np.searchsorted(self.episode, self.episode)]
        return np.cumsum((index - first) % n == 0) - 1

    def __len__(self) -> int:
        return len(self.plain)


def clustered(values: Floats, episode: npt.NDArray[np.int64], divisor: float = 1.0) -> tuple[float, float]:
    """mean(values) / divisor and its standard error, pairs of one episode counted as one cluster (NaN with one)"""
    mean = float(values.mean())
    sums = np.bincount(episode - episode.min(), weights=values - mean)
    clusters = len(np.unique(episode))
    if clusters < 2:
        return mean / divisor, math.nan
    error = math.sqrt(float(np.square(sums).sum()) * clusters / (clusters - 1)) / len(values)
    return mean / divisor, error / divisor


def spread_observations(episodes: Sequence[Episode], n: int) -> Observations:
    """At most n observations, evenly spaced over all steps"""
    observations = join([e.observations for e in episodes], np.concatenate)
    total = sum(map(len, episodes))
    return index_observations(observations, np.linspace(0, total - 1, min(n, total)).astype(np.int64))


class Episodes:
    """Collects the steps of any number of parallel envs into whole episodes and keeps the most recent of them."""

    def __init__(self, n_envs: int, gamma: float, n_steps: int = 1) -> None:
        self.gamma, self.n_steps = gamma, n_steps
        self.episodes: list[Episode] = []
        self.steps = 0
        """of every env"""
        self.forget_open(n_envs)

    def forget_open(self, n_envs: int) -> None:
        """Drop the unfinished episodes: the envs were reset, their ends will not come."""
        self._open: list[list[tuple[Observations, Array, float, float]]] = [[] for _ in range(n_envs)]

    @property
    def n_pairs(self) -> int:
        return sum(map(len, self.episodes))

    @property
    def open_lengths(self) -> list[int]:
        return list(map(len, self._open))

    def add(
        self,
        observations: Observations,
        actions: Array | Sequence[Any],
        rewards: Array | Sequence[float],
        ended: Sequence[bool] | Array,
        truncated: Sequence[bool] | Array,
        final_observations: Mapping[int, Observations],
        estimates: Array | None = None,
    ) -> list[Episode]:
        """One step of every env; the episodes that ended. ``final_observations[i]`` is s_T of an env that ended."""
        done = []
        self.steps += 1
        # rows are copied: many vectorised envs write the next step into the same memory
        for i, steps in enumerate(self._open):
            row = copied(index_observations(observations, i))
            q = math.nan if estimates is None else float(estimates[i])
            steps.append((row, np.array(actions[i]), float(rewards[i]), q))
            if len(steps) > LONGEST:  # the end may never come
                del steps[: LONGEST // 2]
            if ended[i]:
                done.append(_close(steps, final_observations[i], bool(truncated[i]), self.steps))
                self._open[i] = []
        self.episodes += done
        return done

    def cut(self, index: int, final: Observations) -> None:
        """Close the open episode of one env as if a time limit had cut it at ``final``."""
        if self._open[index]:
            self.episodes.append(_close(self._open[index], final, True, self.steps))
            self._open[index] = []

    def trim(self, pairs_kept: int) -> None:
        """Let the oldest episodes go until at most ``pairs_kept`` pairs remain."""
        n_pairs, oldest = self.n_pairs, 0
        while n_pairs > pairs_kept:
            n_pairs -= len(self.episodes[oldest])
            oldest += 1
        del self.episodes[:oldest]

    def keep(self, steps: int) -> None:
        """Let all go but the last ``steps`` steps of every env, of open episodes too."""
        self.episodes = self.recent(steps)
        self._open = [part[-steps:] for part in self._open]

    def recent(self, steps: int, observations: Observations | None = None) -> list[Episode]:
        """The last ``steps`` steps of every env; episodes that are open are cut at ``observations``, if given.

        What counts is when a pair was collected: among whole episodes the short ones would come first.
        """
        since = self.steps - steps
        found = [e.latest(e.end - since) for e in self.episodes if e.end > since]
        if observations is not None:
            now = [(part[-steps:], index_observations(observations, i)) for i, part in enumerate(self._open) if part]
            found += [_close(part, final, True, self.steps) for part, final in now]
        return found

    def pairs(self, critic: Estimator, episodes: list[Episode] | None = None, estimate: bool = True) -> Pairs | None:
        """All pairs of the stored episodes, or of ``episodes``, with what followed them; None where there are none.

        ``estimate`` asks the critic for Q(s, a) now; otherwise it is what it was when the pair was collected.
        """
        episodes = self.episodes if episodes is None else episodes
        if not episodes:
            return None
        lengths, truncated = np.array([len(e) for e in episodes]), np.array([e.truncated for e in episodes])
        ends = np.cumsum(lengths)
        observations = join([e.observations for e in episodes], np.concatenate)
        actions = np.concatenate([e.actions for e in episodes])
        rewards = critic.scale_rewards(np.concatenate([e.rewards for e in episodes]))
        bonus = critic.bonus(observations) if critic.soft else np.zeros(len(rewards))
        bonus = np.concatenate([discounted_bonus(b, self.gamma, self.n_steps) for b in np.split(bonus, ends[:-1])])
        plain = np.concatenate([discounted_returns(r, self.gamma) for r in np.split(rewards, ends[:-1])])
        tail, tail_bonus, weight = self._bootstrapped(critic, episodes, observations, actions, plain)
        q = critic.values(observations, actions) if estimate else np.concatenate([e.estimates for e in episodes])
        return Pairs(
            plain=plain,
            bonus=bonus,
            tail=tail,
            tail_bonus=tail_bonus,
            weight=weight,
            estimates=q,
            episode=np.repeat(np.arange(len(episodes)), lengths),
            left=np.where(np.repeat(truncated, lengths), np.repeat(ends, lengths) - np.arange(len(q)), 2**62),
        )

    def _bootstrapped(
        self, critic: Estimator, episodes: Sequence[Episode], observations: Observations, actions: Array, plain: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """``tail``, ``tail_bonus`` and ``weight`` of all pairs: their returns stop after the first pair that is cut"""
        lengths, index = np.array([len(e) for e in episodes]), np.arange(len(plain))
        last = np.cumsum(lengths) - 1
        limits = last[[e.truncated for e in episodes]]
        cut, value, bonus = np.isin(index, limits), np.zeros(len(index)), np.zeros(len(index))
        if critic.bootstraps and len(limits):
            finals = join([e.final_observation for e in episodes if e.truncated], np.stack)
            value[limits] = critic.tail(finals)
            bonus[limits] = critic.bonus(finals) if critic.soft else 0.0
        if critic.bootstraps and (greedy := critic.greedy(observations)) is not None:
            explored = np.setdiff1d(np.flatnonzero(actions.reshape(-1) != greedy), last - lengths + 1)
            if len(explored):
                cut[explored - 1] = True
                value[explored - 1] = critic.tail(index_observations(observations, explored)) - plain[explored]
        stop = np.minimum.accumulate(np.where(cut | np.isin(index, last), index, len(index))[::-1])[::-1]
        weight = np.power(self.gamma, stop - index + 1.0, dtype=np.float64) * cut[stop]
        return weight * value[stop], weight * bonus[stop], weight

    # --- state: the steps of all episodes one after the other, so that thousands of short ones make few arrays ---

    def state_dict(self) -> dict[str, Array]:
        stored = [(e.observations, e.actions, e.rewards, e.estimates) for e in self.episodes]
        steps = [step for steps in self._open for step in steps]
        finals = {"final": join([e.final_observation for e in self.episodes], np.stack)} if stored else {}
        return {
            **flat("stored", _joined(stored, np.concatenate)),
            **flat("stored", finals),
            **flat("open", _joined(steps, np.stack)),
            "truncated": np.array([e.truncated for e in self.episodes], bool),
            "lengths": np.array([len(e) for e in self.episodes], np.int64),
            "ages": np.array([self.steps - e.end for e in self.episodes], np.int64),
            "open_lengths": np.array([len(steps) for steps in self._open], np.int64),
        }

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        stored, start = nested("stored", state), 0
        final = stored.pop("final", None)
        self.episodes = []
        for i, length in enumerate(state["lengths"].tolist()):
            part = {key: copied(index_observations(each, slice(start, start + length))) for key, each in stored.items()}
            last = copied(index_observations(final, i))
            truncated, end = bool(state["truncated"][i]), self.steps - int(state["ages"][i])
            self.episodes.append(Episode(**part, final_observation=last, truncated=truncated, end=end))  # type: ignore[arg-type]
            start += length
        lengths = state["open_lengths"].tolist()
        if len(lengths) != len(self._open):  # another number of envs starts with fresh episodes
            return
        rows, start = nested("open", state), 0
        self._open = []
        for length in lengths:
            steps = [{key: index_observations(part, start + t) for key, part in rows.items()} for t in range(length)]
            self._open.append([_step(**step) for step in steps])
            start += length


COLUMNS = ("observations", "actions", "rewards", "estimates")


def _step(observations: Observations, actions: Any, rewards: Any, estimates: Any) -> tuple[Any, Array, float, float]:
    return copied(observations), np.array(actions), float(rewards), float(estimates)


def _joined(rows: Sequence[Sequence[Any]], how: Callable[[list[Array]], Array]) -> dict[str, Observations]:
    columns = zip(COLUMNS, zip(*rows, strict=True), strict=True) if rows else ()
    return {name: join(list(column), how) for name, column in columns}


def _close(steps: Sequence[tuple[Any, ...]], final: Observations, truncated: bool, end: int) -> Episode:
    observations, actions, rewards, estimates = zip(*steps, strict=True)
    arrays = join(observations, np.stack), np.stack(actions), np.array(rewards)
    return Episode(*arrays, final, truncated, np.array(estimates), end)
