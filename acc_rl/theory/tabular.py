"""Algorithm 1 with tables instead of nets, on a small task whose true values are known.

The family is that of the two classical estimators: the target is r + gamma * Q_beta(s') with

    Q_beta(s') = beta * max_a A(s', a) + (1 - beta) * B(s', argmax_a A(s', a)),  beta in [0, 1]

where each step teaches one of the tables A and B, chosen by a coin, with the other in the part of B. beta = 0 is double
Q-learning. Q-learning is beta = 1 with one table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from acc_rl.core.controller import Calibrating, Evidence
from acc_rl.core.episodes import discounted_returns
from acc_rl.core.errors import SettingError
from acc_rl.core.settings import PAPER, BiasSettings

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

ALGORITHMS = ("Q-learning", "double Q-learning", "ACC")
SETTINGS = PAPER.merged(
    BiasSettings(start=0.5, range=(0.0, 1.0), lr=0.02, update_interval=100, start_step=0, pairs_kept=500)
)
"""the library's values for a range of 1; episodes are short, so the rule looks ten times as often as in the paper"""
START = 0
LARGEST, MOST_SEEDS = 10**8, 10**4
"""steps of all walks, which are kept in memory, and walks"""
DRAWN = 1000
"""steps whose random numbers are drawn at once"""


@dataclass(frozen=True)
class Task:
    """Moves are certain, a reward is mean +- noise with equal chance, the last state is the end."""

    following: Ints
    """(states, actions) -> state"""
    mean: Floats
    noise: Floats
    gamma: float

    def __post_init__(self) -> None:
        assert self.following.shape == self.mean.shape == self.noise.shape
        assert (self.following[-1] == self.end).all()
        assert not self.mean[-1].any()

    @property
    def end(self) -> int:
        return len(self.following) - 1


def grid_world(size: int = 3) -> Task:
    """Van Hasselt's grid (Double Q-learning, 2010): from one corner to the other, four moves, walls hold one back.

    Each step brings -12 or +10, on average -1; in the goal any action brings 5 and ends the episode.
    """
    states = size * size
    row, column = np.divmod(np.arange(states), size)
    moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    following = np.full((states + 1, len(moves)), states)
    for action, (down, right) in enumerate(moves):
        following[:-1, action] = np.clip(row + down, 0, size - 1) * size + np.clip(column + right, 0, size - 1)
    mean, noise = np.full(following.shape, -1.0), np.full(following.shape, 11.0)
    following[states - 1], mean[states - 1], noise[states - 1] = states, 5.0, 0.0
    mean[states], noise[states] = 0.0, 0.0
    return Task(following, mean, noise, gamma=0.95)


def optimal_q(task: Task, precision: float = 1e-12) -> Floats:
    """Q = mean + gamma * max_a Q(s', a), repeated until it changes by less than ``precision``"""
    q, change = np.zeros_like(task.mean), np.inf
    while change >= precision:
        new = task.mean + task.gamma * q.max(axis=1)[task.following]
        q, change = new, float(np.abs(new - q).max())
    return q


def policy_q(task: Task, policy: Floats) -> Floats:
    """Q of stochastic policies (..., states, actions): V = (I - gamma * P)^-1 r, Q = mean + gamma * V(s')"""
    states, actions = task.mean.shape
    assert policy.shape[-2:] == (states, actions)
    moves = np.zeros((*policy.shape[:-2], states, states))
    for action in range(actions):
        moves[..., np.arange(states), task.following[:, action]] += policy[..., action]
    reward = (policy * task.mean).sum(axis=-1)
    v = np.linalg.solve(np.eye(states) - task.gamma * moves, reward[..., None])[..., 0]
    return task.mean + task.gamma * v[..., task.following]


@dataclass(frozen=True)
class Walk:
    """What the start state was thought to be worth, and what it was; arrays are (algorithms, times, seeds)."""

    steps: Ints
    """env steps at each time"""
    optimum: float
    """max_a Q*(start, a)"""
    estimate: Floats
    """max_a Q(start, a), Q the mean of the tables"""
    achieved: Floats
    """true Q(start, argmax_a Q(start, a)) of the policy that explores at that time"""
    beta: Floats

    def bias(self, reference: str) -> Floats:
        """estimate - optimum ("optimal") or estimate - achieved ("followed")"""
        return self.estimate - (self.optimum if reference == "optimal" else self.achieved)


def mean_and_error(values: Floats) -> tuple[Floats, Floats]:
    """Mean over seeds (last axis) and its standard error"""
    return values.mean(axis=-1), values.std(axis=-1, ddof=1) / np.sqrt(values.shape[-1])


class Tables:
    """Tables A and B of all runs, side by side."""

    def __init__(self, task: Task, runs: int, single: npt.NDArray[np.bool_]) -> None:
        assert single.shape == (runs,)
        shape = (2, runs, *task.mean.shape)
        self.task, self.single, self.runs = task, np.flatnonzero(single), np.arange(runs)
        self.q, self.visits, self.seen = np.zeros(shape), np.zeros(shape), np.zeros(shape[1:3])
        self.mean = np.zeros(shape[1:])
        """of the two tables: what is acted on and compared with returns"""

    def act(self, state: Ints, chance: Floats, choice: Floats) -> Ints:
        """A random action with probability n(s)^(-1/2), else the best of the tables' mean"""
        self.seen[self.runs, state] += 1
        best = self.mean[self.runs, state].argmax(axis=-1)
        explore = chance < self.seen[self.runs, state] ** -0.5
        action: Ints = np.where(explore, (choice * self.task.mean.shape[1]).astype(np.int64), best)
        return action

    def learn(self, state: Ints, action: Ints, reward: Floats, new: Ints, table: Ints, beta: Floats) -> None:
        """Q += n(s, a)^(-0.8) * (r + gamma * Q_beta(s') - Q), in the table that the coin chose"""
        a, b = self.q[table, self.runs, new], self.q[1 - table, self.runs, new]
        best = a.argmax(axis=-1)
        value = beta * a[self.runs, best] + (1 - beta) * b[self.runs, best]  # 0 at the end, which is never taught
        place = (table, self.runs, state, action)
        self.visits[place] += 1
        self.q[place] += self.visits[place] ** -0.8 * (reward + self.task.gamma * value - self.q[place])
        for values in (self.q, self.visits):  # one table: its twin is a copy
            one, *rest = (index[self.single] for index in place)
            values[(1 - one, *rest)] = values[(one, *rest)]
        self.mean[place[1:]] = self.q[:, self.runs, state, action].mean(axis=0)

    def policy(self) -> Floats:
        """Probabilities of all actions in all states, as ``act`` would take them next"""
        best = self.mean.argmax(axis=-1)
        explore = (self.seen[..., None] + 1) ** -0.5
        actions = self.task.mean.shape[1]
        policy: Floats = explore / actions + (1 - explore) * (best[..., None] == np.arange(actions))
        return policy


class Calibrators:
    """One ACC rule per seed, fed with whole episodes; an episode's pairs lie side by side in the history."""

    def __init__(self, task: Task, steps: int, seeds: int, settings: BiasSettings) -> None:
        self.task, self.settings = task, settings
        self.rules = [Calibrating() for _ in range(seeds)]
        for rule in self.rules:
            rule.begin(settings)
        self.updated = [0] * seeds
        """step of the last update"""
        self.beta = np.full(seeds, settings.start)
        self.states, self.actions = np.zeros((2, seeds, steps), dtype=np.int64)
        self.rewards, self.returns = np.zeros((2, seeds, steps))
        self.starts: list[deque[int]] = [deque() for _ in range(seeds)]
        """where the kept episodes begin"""
        self.begun = [0] * seeds
        """where the open episode begins"""
        self.step = 0

    def add(self, state: Ints, action: Ints, reward: Floats, new: Ints, q: Floats) -> Floats:
        """One step of every seed; q (seeds, states, actions) are the estimates now. Returns beta."""
        at, self.step = self.step, self.step + 1
        self.states[:, at], self.actions[:, at], self.rewards[:, at] = state, action, reward
        for i in np.flatnonzero(new == self.task.end).tolist():
            episode = slice(self.begun[i], self.step)
            self.returns[i, episode] = discounted_returns(self.rewards[i, episode], self.task.gamma)
            self.starts[i].append(self.begun[i])
            self.begun[i] = self.step
            if self.settings.due(self.step, self.updated[i]):
                self._update(i, q[i])
        return self.beta

    def _update(self, i: int, q: Floats) -> None:
        """gap = mean of R(s, a) - Q(s, a) over the kept episodes; then the oldest of them go"""
        starts, kept = self.starts[i], slice(self.starts[i][0], self.step)
        estimates = q[self.states[i, kept], self.actions[i, kept]]
        gap = float((self.returns[i, kept] - estimates).mean())
        self.rules[i].measured(Evidence(gap, float("nan"), self.step))
        self.updated[i] = self.step
        self.beta[i] = self.rules[i].beta
        assert self.settings.pairs_kept is not None
        while starts and self.step - starts[0] > self.settings.pairs_kept:
            starts.popleft()


def walk(
    task: Task,
    steps: int,
    seeds: int,
    rng: np.random.Generator,
    settings: BiasSettings = SETTINGS,
    times: int = 100,
    progress: Callable[[int], None] = lambda step: None,
) -> Walk:
    """Q-learning, double Q-learning and ACC from the same random numbers, ``seeds`` times beside each other."""
    _require("walks", seeds, 2 <= seeds <= MOST_SEEDS, f">= 2 for a standard error, and <= {MOST_SEEDS}")
    most = LARGEST // seeds
    _require("steps", steps, times <= steps <= most, f">= {times} and <= {most} with {seeds} walks")
    runs, acc = len(ALGORITHMS) * seeds, slice(2 * seeds, None)
    tables = Tables(task, runs, single=np.arange(runs) < seeds)
    calibrators = Calibrators(task, steps, seeds, settings)
    beta = np.repeat([1.0, 0.0, settings.start], seeds)
    state = np.full(runs, START)
    marks = np.linspace(steps / times, steps, times).astype(np.int64)
    rows: list[tuple[Floats, Floats, Floats]] = []
    for step, draws in enumerate(_draws(rng, steps, seeds), start=1):
        chance, choice, sign, coin = np.tile(draws, len(ALGORITHMS))
        action = tables.act(state, chance, choice)
        reward = task.mean[state, action] + np.where(sign < 0.5, -1, 1) * task.noise[state, action]
        new = task.following[state, action]
        tables.learn(state, action, reward, new, (coin < 0.5).astype(np.int64), beta)
        beta[acc] = calibrators.add(state[acc], action[acc], reward[acc], new[acc], tables.mean[acc])
        state = np.where(new == task.end, START, new)
        if step == marks[len(rows)]:
            rows.append((*_values(task, tables), beta.copy()))
            progress(step)
    shape = (times, len(ALGORITHMS), seeds)
    estimate, achieved, betas = (np.array(x).reshape(shape).swapaxes(0, 1) for x in zip(*rows, strict=True))
    return Walk(marks, float(optimal_q(task)[START].max()), estimate, achieved, betas)


def _draws(rng: np.random.Generator, steps: int, seeds: int) -> Iterator[Floats]:
    """Four numbers in [0, 1) per step and seed"""
    for done in range(0, steps, DRAWN):
        yield from rng.random((min(DRAWN, steps - done), 4, seeds))


def _values(task: Task, tables: Tables) -> tuple[Floats, Floats]:
    """What each run thinks the start is worth, and what it is under the policy it follows"""
    q = tables.mean[:, START]
    truth = policy_q(task, tables.policy())[:, START]
    return q.max(axis=-1), truth[tables.runs, q.argmax(axis=-1)]


def _require(field: str, value: object, ok: bool, allowed: str) -> None:
    if not ok:
        raise SettingError(f"{field} is {value!r}, but must be {allowed}")
