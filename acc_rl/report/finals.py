"""Tables of where the algorithms ended, and of what is published about the same tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from acc_rl.report.cells import UNKNOWN, Cell, Row, Table, count, interval, number, with_spread
from acc_rl.report.charts import SERIES, Figure
from acc_rl.report.curves import final_level, latest_level, level_at, steps_to_reach
from acc_rl.report.load import Array, Run, Study
from acc_rl.report.published import Published, published
from acc_rl.report.source import Source

REFERENCE = "sac"
NO_LEVELS = [
    Cell(UNKNOWN, parts={"mean": None, "std": None}),
    Cell(UNKNOWN, parts={"iqm": None}),
    Cell(UNKNOWN, parts={"low": None, "high": None}),
]


def final_table(source: Source) -> Table:
    """Per task and algorithm mean ± std and IQM of the final returns, steps to the reference's level"""
    study, rows = source.study, []
    absent = Counter((spec.get("env"), spec["label"]) for spec in study.absent())
    success = any(np.isfinite(run.evaluations["success"]).any() for run in study.runs)
    reference = REFERENCE in study.labels
    titles = ["task", "algorithm", "return, mean ± std", "IQM", "95 % interval", *["success"] * success]
    titles += [*[f"steps to {REFERENCE}'s level"] * reference, "runs", "env steps", "remark"]
    for task in study.tasks:
        goal = _levels(study.of(task, REFERENCE), final_level) if reference else np.empty(0)
        for label in study.labels:
            runs = study.of(task, label)
            if not runs:
                continue
            planned = len(runs) + absent[task, label]
            levels, step, remark, level = _ends(runs, planned)
            cells = [Cell(task), Cell(label), *_spread(source, levels)]
            if success:
                cells.append(_success(_levels(runs, level, "success")))
            if reference:
                cells.append(_ratio(source, task, runs, goal))
            rows.append(Row([*cells, _behind(levels, planned), count(step), Cell(remark)], label))
    table = Table(titles, rows, set(range(2, len(titles) - 1)))
    return table if any(row.cells[-1].text for row in rows) else table.without_last()


def _levels(runs: Sequence[Run], level: Any, *arguments: Any) -> Array:
    levels: Array = np.array([level(run, *arguments) for run in runs], float)
    return levels[np.isfinite(levels)]


def _ends(runs: Sequence[Run], planned: int) -> tuple[Array, int, str, Any]:
    """The final returns, or the newest if no run is at its end; at which step, a remark, and how they were taken"""
    levels = _levels(runs, final_level)
    if not len(levels):
        step = min((run.last_step for run in runs if len(run.evaluations["step"])), default=0)
        return _levels(runs, latest_level), step, "still running: newest evaluations", latest_level
    left_out = planned - len(levels)
    remark = f"{left_out} not at the end yet, left out" if left_out else ""
    return levels, max(run.end for run in runs), remark, final_level


def _behind(levels: Array, planned: int) -> Cell:
    return Cell(f"{len(levels)} of {planned}", len(levels), parts={"runs": len(levels), "planned": planned})


def _spread(source: Source, levels: Array) -> list[Cell]:
    """Mean ± std, IQM and its interval"""
    if not len(levels):
        return NO_LEVELS
    iqm = source.estimate(levels[:, None], np.zeros(len(levels), int), "iqm")
    value, low, high = (float(each[0]) for each in iqm[:3])
    several = len(levels) > 1
    middle = number(value, (high - low) / 2)
    return [
        with_spread(float(levels.mean()), float(levels.std()) if several else None),
        Cell(middle.text, middle.value, parts={"iqm": value}),
        interval(low, high) if several else NO_LEVELS[-1],
    ]


def _success(rates: Array) -> Cell:
    return Cell(f"{100 * rates.mean():.0f} %", float(rates.mean())) if len(rates) else Cell(UNKNOWN)


def _ratio(source: Source, task: str, runs: list[Run], goal: Array) -> Cell:
    """Steps until the mean is at the reference's final level, as a share of the steps that the reference took"""
    if not len(goal):
        return Cell(UNKNOWN, None, f"{REFERENCE} has not ended yet")
    took = max(run.end for run in source.study.of(task, REFERENCE))
    steps = steps_to_reach(runs, float(goal.mean()), source.study.length(task))
    if not np.isfinite(steps):
        return Cell("not reached", float("inf"))
    return Cell(f"{steps / took:.2f}", steps / took, f"{steps:,.0f} of {REFERENCE}'s {took:,} steps")


def published_table(study: Study) -> Table:
    """Returns from the literature, and the same algorithm's here at the same step"""
    titles = ["task", "algorithm", "return, mean ± std", "here at that step", "env steps", "seeds", "source"]
    rows = [_published_row(each, task, study) for task in study.tasks for each in published(task, study.length(task))]
    return Table(titles, rows, {2, 3, 4, 5})


def _published_row(row: Published, task: str, study: Study) -> Row:
    ours = _levels(study.of(task, row.algo.lower()), level_at, row.step)
    here = with_spread(float(ours.mean()), float(ours.std()) if len(ours) > 1 else None) if len(ours) else Cell(UNKNOWN)
    seeds = Cell(UNKNOWN) if row.seeds is None else count(row.seeds)
    returns = with_spread(row.mean, None if row.seeds == 1 else row.std)
    return Row([Cell(task), Cell(row.algo), returns, here, count(row.step), seeds, Cell(row.about)])


def interval_tables(drawn: Sequence[Figure]) -> dict[str, Table]:
    """The figures of dots with intervals, in numbers: key -> table"""
    result = {}
    for figure in drawn:
        bars = [panel for panel in figure.panels if panel.kind == "bars"]
        if rows := [row for panel in bars for row in _interval_rows(panel.title, panel.data)]:
            result[figure.key] = Table(["statistic", "of", "value", "95 % interval"], rows, {2, 3})
    return result


def _interval_rows(title: str, data: Any) -> list[Row]:
    return [
        Row([Cell(title), Cell(name), number(value, (high - low) / 2), interval(low, high)], series)
        for name, series, value, low, high in zip(*(data[c] for c in ("row", SERIES, "x", "low", "high")), strict=True)
    ]
