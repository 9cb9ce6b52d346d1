"""Aggregates over runs and tasks with stratified bootstrap intervals.

Scores are (runs, points), NaN where a run has no value; ``strata`` names the task of each run. A resample of n runs is
a count of draws for each run, so that no replicate is ever sorted: IQMs are weighted sums in one fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Statistic = Literal["iqm", "mean", "median"]
Slices = list[slice]
"""the runs of each task, of all runs ordered by task"""
REPLICATES = 2000
LEVEL = 0.95


class Estimate(NamedTuple):
    """A value per point with its interval, and how many runs stand behind it."""

    value: Array
    low: Array
    high: Array
    runs: Ints


def draw(sizes: list[int], replicates: int, rng: np.random.Generator) -> Array:
    """(replicates, sum of sizes): how often each run is drawn when each task's runs are drawn with replacement"""
    parts = []
    for n in sizes:
        picks = rng.integers(n, size=(replicates, n)) + n * np.arange(replicates)[:, None]
        parts.append(np.bincount(picks.ravel(), minlength=replicates * n).reshape(replicates, n))
    return np.concatenate(parts, axis=1).astype(float)


def iqm(values: Array, counts: Array) -> Array:
    """Mean of the middle half of ``values`` (n, points) drawn ``counts`` (replicates, n) times: (replicates, points).

    As scipy.stats.trim_mean(x, 0.25): int(n / 4) values are cut off at either end.
    """
    assert values.ndim == counts.ndim == 2
    assert len(values) == counts.shape[1]
    n = int(counts[0].sum())
    low, high = int(0.25 * n), n - int(0.25 * n)
    result = np.empty((len(counts), values.shape[1]))
    small = counts.astype(np.int32)
    for point, column in enumerate(values.T):
        order = np.argsort(column)
        # how many of the first 1, 2, ... sorted values lie in the middle half
        inside = np.clip(np.cumsum(small[:, order], axis=1, dtype=np.int32), low, high)
        # summation by parts: no weights need to be formed
        ranked = column[order]
        result[:, point] = (high * ranked[-1] - low * ranked[0] - inside[:, :-1] @ np.diff(ranked)) / (high - low)
    return result


def task_means(values: Array, counts: Array, tasks: Slices) -> Array:
    """(replicates, tasks, points)"""
    return np.stack([counts[:, s] @ values[s] / (s.stop - s.start) for s in tasks], axis=1)


def mean(values: Array, counts: Array, tasks: Slices) -> Array:
    """Mean over tasks of the mean over their runs"""
    result: Array = task_means(values, counts, tasks).mean(axis=1)
    return result


def median(values: Array, counts: Array, tasks: Slices) -> Array:
    """Median over tasks of the mean over their runs"""
    middle: Array = np.median(task_means(values, counts, tasks), axis=1)
    return middle


STATISTICS: dict[str, Callable[[Array, Array, Slices], Array]] = {
    "iqm": lambda values, counts, _: iqm(values, counts),
    "mean": mean,
    "median": median,
}


def aggregate(
    scores: Array,
    strata: Ints,
    statistic: Statistic,
    rng: np.random.Generator,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> Estimate:
    """The statistic at each point and its pointwise percentile interval; a run counts where it has a value.

    Points with the same runs share their resamples. Where a task has no run with a value, everything is NaN: the
    other tasks alone would be another quantity.
    """
    assert scores.ndim == 2
    assert strata.shape == (len(scores),)
    by_task = np.argsort(strata, kind="stable")
    scores, strata = scores[by_task], strata[by_task]
    present = ~np.isnan(scores)
    n_points = scores.shape[1]
    nan = np.full(n_points, np.nan)
    estimate = Estimate(nan, nan.copy(), nan.copy(), present.sum(axis=0))
    n_tasks = len(np.unique(strata))
    masks, which = np.unique(present, axis=1, return_inverse=True)
    compute = STATISTICS[statistic]
    for i, mask in enumerate(masks.T):
        tasks = _slices(strata[mask])
        if not tasks or len(tasks) < n_tasks:
            continue
        points = np.flatnonzero(which.ravel() == i)
        values = scores[np.ix_(mask, points)]
        estimate.value[points] = compute(values, np.ones((1, len(values))), tasks)[0]
        counts = draw([s.stop - s.start for s in tasks], replicates, rng)
        drawn = compute(values, counts, tasks)
        tail = (1 - level) / 2
        estimate.low[points], estimate.high[points] = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return estimate


def _slices(strata: Ints) -> Slices:
    _, starts = np.unique(strata, return_index=True)
    return [slice(int(a), int(b)) for a, b in zip(starts, [*starts[1:], len(strata)], strict=False)]


def profile(
    scores: Array, strata: Ints, levels: Array, rng: np.random.Generator, replicates: int = REPLICATES
) -> Estimate:
    """Performance profile: at each level, the share of runs whose score (runs,) lies above it"""
    assert scores.ndim == 1
    known = ~np.isnan(scores)
    above = (scores[known, None] > levels).astype(float)
    return aggregate(above, strata[known], "mean", rng, replicates)


def improvement(
    first: dict[int, Array], second: dict[int, Array], rng: np.random.Generator, replicates: int = REPLICATES
) -> tuple[float, float, float]:
    """P(a run of the first is better than one of the second) with its interval, averaged over tasks.

    Per task the Mann-Whitney statistic U / (n m), ties counting half; tasks that only one of them has are left out.
    """
    values, total = [], np.zeros(replicates)
    for task in sorted(first.keys() & second.keys()):
        x, y = first[task], second[task]
        better = (x[:, None] > y) + 0.5 * (x[:, None] == y)
        values.append(better.mean())
        of_x, of_y = draw([len(x)], replicates, rng), draw([len(y)], replicates, rng)
        total += np.einsum("ri,ij,rj->r", of_x, better, of_y, optimize=True) / better.size
    if not values:
        return float("nan"), float("nan"), float("nan")
    low, high = np.quantile(total / len(values), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(np.mean(values)), float(low), float(high)
