"""Records of single runs brought onto common steps, smoothed, thinned and normalised."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acc_rl.report.load import Array, ReportError, Run, Study
from acc_rl.store.files import read_plain

EVALUATION_FILTER, VALUE_ERROR_FILTER = 15, 401
"""the paper's uniform filters, in rows"""
POINTS = 160
"""points per drawn curve"""
ASKED = {"evaluations": "eval_every", "training": "log_every"}
"""the spec's word for the steps between two rows"""
END = 0.05
"""share of a run whose evaluations make its final level"""
LARGEST_SCALES = 1 << 20
"""bytes of a table of scales"""


def grid(spacing: float, length: float) -> Array:
    """0, spacing, 2 spacing, ... and the last step"""
    steps = np.arange(0.0, length, spacing)
    return np.append(steps[length - steps > spacing / 2] if len(steps) > 1 else steps, length)


def spacing(runs: Sequence[Run], part: str) -> float:
    """The steps between two rows that the specs ask for; where they do not, the median of the runs' usual ones, or 0"""
    asked = [every for run in runs if isinstance(every := run.spec.get(ASKED.get(part, "")), int) and every > 0]
    if asked:
        return float(max(asked))
    steps = [np.diff(run.rows(part)["step"], prepend=0) for run in runs]
    usual = [float(np.median(each[each > 0])) for each in steps if (each > 0).any()]
    return float(np.median(usual)) if usual else 0.0


def align(steps: Array, values: Array, onto: Array) -> Array:
    """At each step of the grid the nearest value that is nearer to it than to its neighbours, else NaN."""
    result = np.full(len(onto), np.nan)
    known = np.isfinite(values)
    steps, values = steps[known], values[known]
    if len(steps):
        middles = (onto[1:] + onto[:-1]) / 2
        cell = np.searchsorted(middles, steps, side="right")
        distance = np.abs(steps - onto[cell])
        reach = np.max(np.diff(onto), initial=1.0) / 2
        farthest_first = np.argsort(-distance, kind="stable")
        farthest_first = farthest_first[distance[farthest_first] <= reach]
        result[cell[farthest_first]] = values[farthest_first]
    return result


def table(runs: Sequence[Run], part: str, name: str, length: float) -> tuple[Array, Array]:
    """The common steps and the runs' values there, (runs, steps).

    A row of value errors tells of all steps since the row before. Their steps end with the last row, which comes
    before the end of training when the last pairs do not fill a row.
    """
    rows = [run.rows(part) for run in runs]
    if part == "value_error":
        length = min(length, max(1.0, *(float(each["step"][-1]) for each in rows)))
    onto = grid(spacing(runs, part) or length, length)
    values = np.array([align(each["step"], each[name], onto) for each in rows])
    return onto, np.array([held(row) for row in values]) if part == "value_error" else values


def held(values: Array) -> Array:
    """What is missing between two values takes the later one."""
    known = np.flatnonzero(np.isfinite(values))
    result = values.copy()
    if len(known):
        inside = np.arange(known[0], known[-1] + 1)
        result[inside] = values[known[np.searchsorted(known, inside)]]
    return result


def mean_known(values: Array) -> Array:
    """Mean over the first axis of what is known; NaN where nothing is"""
    known = np.isfinite(values)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, values, 0).sum(axis=0) / np.maximum(count, 1), np.nan)


def smooth(values: Array, size: int) -> Array:
    """Uniform filter along the last axis; it is cut at the ends and passes over what is missing."""
    if size == 1:
        return values
    known = np.isfinite(values)
    sums = np.cumsum(np.where(known, values, 0.0), axis=-1)
    counts = np.cumsum(known, axis=-1)
    n = values.shape[-1]
    last = np.minimum(np.arange(n) + size // 2, n - 1)
    before = np.arange(n) - (size - 1) // 2 - 1

    def window(total: Array) -> Array:
        return total[..., last] - np.where(before >= 0, total[..., np.maximum(before, 0)], 0)

    here = window(counts.astype(float))
    return np.where(known & (here > 0), window(sums) / np.maximum(here, 1), np.nan)


def filter_size(wanted: int, rows: int) -> int:
    """The paper's filter, but never more than a tenth of the curve"""
    return max(1, min(wanted, rows // 10))


def thin(n: int, points: int = POINTS) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Indices of evenly spread points, the first and the last among them"""
    return np.unique(np.linspace(0, n - 1, min(n, points)).round().astype(np.int64))


@dataclass(frozen=True)
class Scale:
    """score = (return - low) / (high - low)"""

    low: float
    high: float
    about: str

    def __call__(self, returns: Array) -> Array:
        return (returns - self.low) / (self.high - self.low)


def scales(study: Study, given: dict[str, tuple[float, float]] | None = None) -> dict[str, Scale]:
    """For each task the scale of its normalised score.

    As in the paper: divided by the best return among all evaluations of all algorithms. Where that is not positive,
    dividing by it would turn the order round: there the worst is 0 and the best 1.
    """
    result = {}
    for task in study.tasks:
        if given is not None:
            if task not in given:
                raise ReportError(f"the table to normalise by has no row for {task}; it has {', '.join(given)}")
            result[task] = Scale(*given[task], "given table")
            continue
        found = [run.evaluations["mean_return"] for run in study.runs if run.task == task]
        returns = np.concatenate(found)
        returns = returns[np.isfinite(returns)]
        if not len(returns):
            continue
        best, worst = float(returns.max()), float(returns.min())
        if best > 0:
            result[task] = Scale(0.0, best, "divided by the best")
        else:
            result[task] = Scale(worst if worst < best else best - 1, best, "worst 0, best 1")
    return result


def read_scales(path: Path) -> dict[str, tuple[float, float]]:
    """A CSV file with the columns task, low, high: the returns whose scores are 0 and 1"""
    try:
        text = read_plain(path, LARGEST_SCALES, follow=True).decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: {error}") from None
    result = {}
    for number, row in enumerate(rows, start=2):
        try:
            task, low, high = row["task"], float(row["low"]), float(row["high"])
        except (KeyError, TypeError, ValueError):
            raise ReportError(f"{path}: line {number} needs task, low and high, the last two numbers") from None
        if not high > low:
            raise ReportError(f"{path}: line {number}: high is {high:g}, but must be larger than low, {low:g}")
        result[task] = (low, high)
    if not result:
        raise ReportError(f"{path}: has no rows; it needs the columns task, low, high")
    return result


def final_level(run: Run, name: str = "mean_return") -> float:
    """Mean of the evaluations in the last 5 % of its steps; NaN if the run has not come that far"""
    steps, values = run.evaluations["step"], run.evaluations[name]
    end = values[steps >= (1 - END) * run.end]
    end = end[np.isfinite(end)]
    return float(end.mean()) if len(end) else float("nan")


def latest_level(run: Run, name: str = "mean_return") -> float:
    """The newest evaluation"""
    values = run.evaluations[name][np.isfinite(run.evaluations[name])]
    return float(values[-1]) if len(values) else float("nan")


def level_at(run: Run, step: float) -> float:
    """Mean of the evaluations in the 5 % of the steps up to ``step``; NaN if there are none"""
    steps, values = run.evaluations["step"], run.evaluations["mean_return"]
    there = values[(steps <= step) & (steps >= (1 - END) * step)]
    there = there[np.isfinite(there)]
    return float(there.mean()) if len(there) else float("nan")


def steps_to_reach(runs: Sequence[Run], level: float, length: float) -> float:
    """First step at which the mean over the runs, filtered as it is drawn, is at ``level``; NaN if never"""
    steps, values = table(runs, "evaluations", "mean_return", length)
    mean = smooth(mean_known(values), filter_size(EVALUATION_FILTER, len(steps)))
    # two ways to the same mean differ in their last digits
    reached = np.flatnonzero((mean >= level) | np.isclose(mean, level, rtol=1e-9, atol=1e-12))
    return float(steps[reached[0]]) if len(reached) else float("nan")
