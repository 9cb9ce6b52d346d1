"""What all figures are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from acc_rl.report import statistics
from acc_rl.report.charts import SERIES, numbers, whole
from acc_rl.report.colours import Look
from acc_rl.report.curves import Scale, table, thin
from acc_rl.report.load import Array, Columns, Run, Study

STEPS, SHARE = "env steps", "% of each task's steps"


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
    _tables: dict[tuple[str, str, str], tuple[list[Run], Array, Array]] = field(default_factory=dict)

    def rng(self) -> np.random.Generator:
        """The same for every estimate: none depends on which others there are"""
        return np.random.default_rng(self.seed)

    def table(self, task: str, part: str, name: str) -> tuple[list[Run], Array, Array]:
        """The runs of a task that have the column, the common steps, and the values (runs, steps)"""
        key = (task, part, name)
        if key not in self._tables:
            runs = [run for run in self.study.runs if run.task == task and has(run, part, name)]
            if runs:
                self._tables[key] = (runs, *table(runs, columns_of(part), name, self.study.length(task)))
            else:
                self._tables[key] = ([], np.empty(0), np.empty((0, 0)))
        return self._tables[key]

    def aggregated(
        self, part: str, name: str, transform: Callable[[str, Array], Array]
    ) -> tuple[str, Array, dict[str, tuple[Array, Any]]]:
        """All tasks on common points: the axis' title, x, and per algorithm its scores (runs, x) and their tasks"""
        tables = {task: self.table(task, part, name) for task in self.study.tasks}
        tables = {task: each for task, each in tables.items() if each[0] and task in self.scales}
        if not tables:
            return STEPS, np.empty(0), {}
        grids = [onto for _, onto, _ in tables.values()]
        same = all(np.array_equal(onto, grids[0]) for onto in grids)
        picks = thin(min(map(len, grids)))
        share = grids[0][picks] / grids[0][-1] if same else np.linspace(0, 1, len(picks))
        scores: dict[str, list[Array]] = {}
        strata: dict[str, list[int]] = {}
        for number, (task, (runs, onto, values)) in enumerate(tables.items()):
            nearest = np.abs(onto[:, None] - share * onto[-1]).argmin(axis=0)
            for run, row in zip(runs, transform(task, values)[:, nearest], strict=True):
                scores.setdefault(run.label, []).append(row)
                strata.setdefault(run.label, []).append(number)
        x = share * grids[0][-1] if same else 100 * share
        found = {label: (np.array(scores[label]), np.array(strata[label])) for label in self.looks if label in scores}
        return STEPS if same else SHARE, x, found


def columns_of(part: str) -> Callable[[Run], Columns]:
    return lambda run: getattr(run, part)


def has(run: Run, part: str, name: str) -> bool:
    return bool(np.isfinite(columns_of(part)(run)[name]).any())


def stack(parts: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
    return {key: [each for part in parts for each in part[key]] for key in parts[0]} if parts else {SERIES: []}


def estimated(label: str, x: Array, estimate: statistics.Estimate) -> dict[str, list[Any]]:
    some = np.isfinite(estimate.value)
    return {
        SERIES: [label] * int(some.sum()),
        "x": whole(x[some].round(3)),
        "y": numbers(estimate.value[some]),
        "low": numbers(estimate.low[some]),
        "high": numbers(estimate.high[some]),
        "n": estimate.runs[some].tolist(),
    }


def dot(label: str, one: statistics.Estimate) -> dict[str, list[Any]]:
    ends = {"x": numbers(one.value), "low": numbers(one.low), "high": numbers(one.high)}
    return {"row": [label], SERIES: [label], **ends}


def behind(data: Mapping[str, Sequence[Any]]) -> str:
    counts = data.get("n") or [0]
    low, high = min(counts), max(counts)
    return f"Runs behind each point: {high}." if low == high else f"Runs behind each point: {low} to {high}."
