"""What the bias rule chose, where it ran into an end of its range, and the gap that it saw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acc_rl.report.cells import UNKNOWN, Cell, Row, Table, number
from acc_rl.report.charts import SERIES, Figure, numbers, span, whole
from acc_rl.report.curves import END, EVALUATION_FILTER, POINTS, thin
from acc_rl.report.load import GAPS, Run
from acc_rl.report.per_task import Data, panels, per_task
from acc_rl.report.source import Source, between, stack

TITLES = dict(zip(GAPS, ("gap", "with the entropy bonus", "and beyond time limits"), strict=True))
"""from the paper's plain returns to those that hold all that a soft critic estimates"""


def calibration(source: Source) -> list[Figure]:
    """What the rule chose: d where atoms are dropped, else beta"""
    kinds = [
        ("dropped_per_net", "d, dropped atoms per net", "Dropped atoms per net, d", "Larger d is more pessimism"),
        ("beta", "β", "The rule's β", "Larger β is more optimism"),
    ]
    made: list[Figure] = []
    covered: set[str] = set()
    for name, y, title, direction in kinds:
        labels = [label for label in adaptive(source, name) if label not in covered]
        covered |= set(labels)
        found, note = per_task(source, labels, "training", name, EVALUATION_FILTER)
        if not found:
            continue
        singles = {} if source.study.single else single_seeds(source, labels, name)
        domain = span([*found.values(), *singles.values()])
        many = ": where the curves differ between tasks, no fixed value fits all." if len(found) > 1 else "."
        key, drawn = f"calibration-{name.split('_')[0]}", panels(source, found, y, domain=domain)
        made.append(Figure(key, title, direction + many, drawn, [*at_limits(source, labels, name), note]))
        if singles:
            sentence = "Unfiltered, one line per run: whether seeds settle on the same value, and how much it moves."
            note = f"Of a run with more rows, {POINTS} are drawn."
            drawn = panels(source, singles, y, domain=domain)
            made.append(Figure(f"{key}-seeds", f"{title}: single seeds", sentence, drawn, [note]))
    if not made:
        source.left_out["d over time"] = "no run of an algorithm that adapts it has records of it"
    return made


def adaptive(source: Source, name: str) -> list[str]:
    """Labels of algorithms with a run in which the value moves, or would if it were not at its end"""
    moving = {
        run.label
        for run in source.study.runs
        if run.has("training", name) and (np.nanstd(run.training[name]) > 1e-9 or 1 in run.training["at_limit"])
    }
    return [label for label in source.looks if label in moving]


def single_seeds(source: Source, labels: Sequence[str], name: str) -> dict[str, Data]:
    found = {}
    for task in source.study.tasks:
        runs, onto, values = source.table(task, "training", name)
        parts = []
        for run, row in zip(runs, values, strict=True):
            some = between(row)
            if run.label in labels and len(some):
                some = some[thin(len(some))]
                line: Data = {SERIES: [run.label] * len(some), "line": [f"seed {run.seed}"] * len(some)}
                parts.append({**line, "x": whole(onto[some]), "y": numbers(row[some], 4)})
        if parts:
            found[task] = stack(parts)
    return found


def at_limits(source: Source, labels: Sequence[str], name: str) -> list[str]:
    """A sentence for the runs of an algorithm on a task whose value ended where it could not go further"""
    alike: dict[tuple[str, str, float, bool], list[Run]] = {}
    for run in source.study.runs:
        if run.label in labels and limit_since(run) is not None and np.isfinite(last(run, "gap")):
            key = (run.task, run.label, last(run, name), last(run, "gap") > 0)
            alike.setdefault(key, []).append(run)
    return [at_limit(*key, runs, "d" if name == "dropped_per_net" else "β") for key, runs in alike.items()]


def limit_since(run: Run) -> float | None:
    """The first step of the last rows in which beta is at an end and the gap points outward; None if it is not"""
    rows = run.training
    known = np.isfinite(rows["at_limit"])
    steps, limited = rows["step"][known], rows["at_limit"][known] == 1
    if not len(limited) or not limited[-1]:
        return None
    inside = np.flatnonzero(~limited)
    return float(steps[inside[-1] + 1 if len(inside) else 0])


def at_limit(task: str, label: str, value: float, under: bool, runs: Sequence[Run], what: str) -> str:
    seeds = f"seed{'s' * (len(runs) > 1)} {', '.join(str(run.seed) for run in runs)}"
    steps = sorted(step for run in runs if (step := limit_since(run)) is not None)
    since = f"{steps[0]:,.0f}" + (f" to {steps[-1]:,.0f}" if steps[-1] > steps[0] else "")
    error = "underestimates" if under else "overestimates"
    ended = f"{what} has been at its end {value:g} since step {since} while the critic still {error}"
    return f"{task}, {label}, {seeds}: {ended}."


def last(run: Run, name: str) -> float:
    known = run.training[name][np.isfinite(run.training[name])]
    return float(known[-1]) if len(known) else float("nan")


def gap_table(source: Source) -> Table:
    """Per task and algorithm the gaps R - Q at the end, mean over runs ± the mean of their standard errors"""
    names = [name for name in GAPS if any(run.has("training", f"{name}_error") for run in source.study.runs)]
    rows = []
    for task in source.study.tasks if names else ():
        for label in source.study.labels:
            cells = [gap_cell(source.study.of(task, label), name) for name in names]
            if any(cell.value is not None for cell in cells):
                rows.append(Row([Cell(task), Cell(label), *cells], label))
    titles = ["task", "algorithm", *(TITLES[name] for name in names)]
    return Table(titles, rows, set(range(2, len(titles))))


def gap_cell(runs: Sequence[Run], name: str) -> Cell:
    """Of the rows in the last 5 % of the steps so far"""
    gaps, errors = (np.array([at_end(run, column) for run in runs]) for column in (name, f"{name}_error"))
    known = np.isfinite(gaps) & np.isfinite(errors)
    if not known.any():
        return Cell(UNKNOWN)
    gap, error = float(gaps[known].mean()), float(errors[known].mean())
    cell = number(gap, error)
    return Cell(f"{cell.text} ± {number(error, error).text}", gap)


def at_end(run: Run, name: str) -> float:
    steps, values = run.training["step"], run.training[name]
    some = values[(steps >= (1 - END) * run.last_step) & np.isfinite(values)]
    return float(some.mean()) if len(some) else float("nan")
