"""What all figures are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from acc_rl.report import statistics
from acc_rl.report.charts import SERIES, numbers, whole
from acc_rl.report.colours import Look
from acc_rl.report.curves import Scale, table, thin
from acc_rl.report.load import Array, Run, Study

STEPS, SHARE = "env steps", "% of each task's steps"
FEW = 5
"""runs of a task below which a bootstrap's intervals are much too narrow"""


@dataclass(frozen=True)
class Aggregated:
    """All tasks on common points."""

    x_title: str
    x: Array
    x_end: float
    """where the x axis ends: with the longest task, also if the values end before"""
    scores: dict[str, tuple[Array, Any]]
    """per algorithm its scores (runs, x) and their tasks"""
    lacking: dict[str, list[str]]
    """per algorithm the tasks that others have and it has not"""


@dataclass
class Source:
    """A study with its looks and scales; tables are made once."""

    study: Study
    looks: Mapping[str, Look]
    scales: Mapping[str, Scale]
    seed: int = 0
    replicates: int = statistics.REPLICATES
    left_out: dict[str, str] = field(default_factory=dict)
    """title of a figure that is not there -> why"""
    partial: dict[str, str] = field(default_factory=dict)
    """title of a figure that is there -> what it lacks"""
    _tables: dict[tuple[str, str, str], tuple[list[Run], Array, Array]] = field(default_factory=dict)

    def rng(self) -> np.random.Generator:
        """The same for every estimate: none depends on which others there are"""
        return np.random.default_rng(self.seed)

    def estimate(self, scores: Array, strata: Any, statistic: statistics.Statistic) -> statistics.Estimate:
        return statistics.aggregate(scores, strata, statistic, self.rng(), self.replicates)

    def table(self, task: str, part: str, name: str) -> tuple[list[Run], Array, Array]:
        """The runs of a task that have the column, the common steps, and the values (runs, steps)"""
        key = (task, part, name)
        if key not in self._tables:
            runs = [run for run in self.study.runs if run.task == task and run.has(part, name)]
            if runs:
                self._tables[key] = (runs, *table(runs, part, name, self.study.length(task)))
            else:
                self._tables[key] = ([], np.empty(0), np.empty((0, 0)))
        return self._tables[key]

    def aggregated(self, part: str, name: str, transform: Callable[[str, Array], Array]) -> Aggregated:
        """The points are those of the coarsest task; each takes a task's nearest step, and none after its last."""
        tables = {task: self.table(task, part, name) for task in self.study.tasks if task in self.scales}
        tables = {task: each for task, each in tables.items() if each[0]}
        if not tables:
            return Aggregated(STEPS, np.empty(0), 1.0, {}, {})
        lengths = {task: float(self.study.length(task)) for task in tables}
        grids = [onto / lengths[task] for task, (_, onto, _) in tables.items()]
        share = max(grids, key=widest)
        share = share[thin(len(share))]
        scores: dict[str, list[Array]] = {}
        strata: dict[str, list[int]] = {}
        for number, ((task, (runs, _, values)), onto) in enumerate(zip(tables.items(), grids, strict=True)):
            there = np.where(share <= onto[-1] + widest(onto) / 2, 1, np.nan)
            nearest = np.abs(onto[:, None] - share).argmin(axis=0)
            for run, row in zip(runs, transform(task, values)[:, nearest] * there, strict=True):
                scores.setdefault(run.label, []).append(row)
                strata.setdefault(run.label, []).append(number)
        same = len(set(lengths.values())) == 1
        end = next(iter(lengths.values())) if same else 100.0
        found = {label: (np.array(scores[label]), np.array(strata[label])) for label in self.looks if label in scores}
        lacking = {label: [task for i, task in enumerate(tables) if i not in set(strata[label])] for label in found}
        lacking = {label: tasks for label, tasks in lacking.items() if tasks}
        return Aggregated(STEPS if same else SHARE, share * end, end, found, lacking)

    def too_narrow(self) -> str:
        """A warning where intervals stand on few runs"""
        counts = [len(runs) for t in self.study.tasks for a in self.study.labels if (runs := self.study.of(t, a))]
        fewest = min(counts, default=FEW)
        if fewest >= FEW:
            return ""
        few_runs = f" With {fewest} run{'s' * (fewest > 1)} of a task the intervals are too narrow"
        return f"{few_runs}: they miss the truth more often than in 5 % of cases."


def widest(onto: Array) -> float:
    return float(np.max(np.diff(onto), initial=0))


def lacks(lacking: Mapping[str, Collection[str]]) -> str:
    """Whose curves are over fewer tasks"""
    return "".join(
        f" {label} has none of {', '.join(tasks)}: it is over the others." for label, tasks in lacking.items()
    )


def stack(parts: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
    return {key: [each for part in parts for each in part[key]] for key in parts[0]} if parts else {SERIES: []}


def between(values: Array) -> Any:
    """Indices from the first known value to the last"""
    known = np.flatnonzero(np.isfinite(values))
    return np.arange(known[0], known[-1] + 1) if len(known) else known


def estimated(label: str, x: Array, estimate: statistics.Estimate) -> dict[str, list[Any]]:
    """Columns for a curve, with null where it has gaps"""
    some = between(estimate.value)
    counts = zip(np.isfinite(estimate.value[some]), estimate.runs[some].tolist(), strict=True)
    return {
        SERIES: [label] * len(some),
        "x": whole(x[some].round(3)),
        "y": numbers(estimate.value[some]),
        "low": numbers(estimate.low[some]),
        "high": numbers(estimate.high[some]),
        "n": [count if known else None for known, count in counts],
    }


def dot(label: str, one: statistics.Estimate) -> dict[str, list[Any]]:
    ends = {"x": numbers(one.value), "low": numbers(one.low), "high": numbers(one.high)}
    return {"row": [label], SERIES: [label], **ends}


def behind(data: Mapping[str, Sequence[Any]]) -> str:
    counts = [count for count in data.get("n", ()) if count is not None] or [0]
    low, high = min(counts), max(counts)
    return f"Runs behind each point: {high}." if low == high else f"Runs behind each point: {low} to {high}."
