"""Tables and sentences about what was run, and what is missing of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from acc_rl.report.cells import Cell, Row, Table, count, number
from acc_rl.report.curves import latest_level
from acc_rl.report.load import Study, given
from acc_rl.report.source import Source

LISTED = 12
"""names listed before "and so many more" """


def grid_table(study: Study) -> Table:
    """Finished and planned runs of each task and algorithm"""
    absent = Counter((spec.get("env"), spec["label"]) for spec in study.absent())
    labels = list(dict.fromkeys([*study.labels, *(spec["label"] for spec in study.planned)]))
    tasks = list(dict.fromkeys([*study.tasks, *(str(spec.get("env")) for spec in study.planned)]))
    rows = []
    for task in tasks:
        length = max([r.steps for r in study.runs if r.task == task] or [0])
        cells = [Cell(task), count(length) if length else Cell("–")]
        for label in labels:
            runs = study.of(task, label)
            planned = len(runs) + absent[task, label]
            done = sum(run.finished for run in runs)
            cells.append(Cell(f"{done} of {planned}" if planned else "–", done))
        rows.append(Row(cells))
    return Table(["task", "env steps", *labels], rows, set(range(1, len(labels) + 2)))


def runs_table(study: Study) -> Table:
    rows = []
    for run in study.runs:
        state = "finished" if run.finished else f"at step {run.last_step:,}"
        seconds = Cell("–") if run.seconds is None else Cell(duration(run.seconds), run.seconds)
        level = number(latest_level(run))
        rows.append(
            Row(
                [Cell(run.task), Cell(run.label), Cell(str(run.seed), run.seed), Cell(state), level, seconds], run.label
            )
        )
    return Table(["task", "algorithm", "seed", "state", "newest return", "wall-clock"], rows, {2, 4, 5})


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def scales_table(source: Source) -> Table:
    rows = [
        Row([Cell(task), number(scale.low), number(scale.high), Cell(scale.about)])
        for task, scale in source.scales.items()
    ]
    return Table(["task", "return of score 0", "return of score 1", "how"], rows, {1, 2})


def versions_table(study: Study) -> Table:
    """Machine and versions; where runs differ, how many have which"""
    found: dict[str, Counter[str]] = {}
    for run in study.runs:
        about = run.provenance
        versions = about.get("versions")
        facts = {key: about.get(key) for key in ("cpu", "cores", "threads", "git_commit")}
        for key, value in {**facts, **(versions if isinstance(versions, dict) else {})}.items():
            found.setdefault(key.replace("git_commit", "commit"), Counter())[str(value or "unknown")[:60]] += 1
    rows = []
    for key, values in found.items():
        several = len(values) > 1
        text = "; ".join(f"{value} ({count} runs)" if several else value for value, count in values.most_common(5))
        rows.append(Row([Cell(key), Cell(text)]))
    return Table(["what", "version"], rows)


def settings_table(study: Study) -> Table:
    """The settings given for each algorithm, and on which tasks they were given"""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for run in study.runs:
        for key, value in given(run.spec).items():
            found.setdefault(f"{key} = {value}", {}).setdefault(run.label, {})[run.task] = None
    rows = []
    for text, by_label in found.items():
        alike: dict[tuple[str, ...], list[str]] = {}
        for label, on in by_label.items():
            alike.setdefault(tuple(on), []).append(label)
        for tasks, labels in alike.items():
            who = "all algorithms" if len(labels) == len(study.labels) > 1 else ", ".join(labels)
            where = "all tasks" if len(tasks) == len(study.tasks) else ", ".join(tasks)
            rows.append(Row([Cell(who), Cell(text), Cell(where)], labels[0] if len(labels) == 1 else ""))
    return Table(["algorithm", "setting", "on"], rows)


def missing(source: Source) -> list[str]:
    """Everything that a complete study would have and this one has not, in sentences"""
    study, lines = source.study, []
    absent = [f"{spec.get('env')} {spec['label']} seed {spec.get('seed')}" for spec in study.absent()]
    if absent:
        lines.append(f"{_count(absent, 'planned run')} without a folder yet: {_listed(absent)}.")
    if not study.planned and not study.single:
        seeds = {run.seed for run in study.runs}
        there = {(run.task, run.label, run.seed) for run in study.runs}
        holes = [f"{t} {a} seed {s}" for t in study.tasks for a in study.labels for s in sorted(seeds)
                 if (t, a, s) not in there]  # fmt: skip
        lines += [f"No plan in the folder; of the full grid {_count(holes, 'run')} missing: {_listed(holes)}."] * bool(
            holes
        )
    open_runs = [f"{run.name} (step {run.last_step:,} of {run.steps:,})" for run in study.runs if not run.finished]
    if open_runs:
        lines.append(f"{_count(open_runs, 'run')} not finished: {_listed(open_runs)}.")
    if study.damaged:
        broken = [f"{name}: {reason}" for name, reason in study.damaged.items()]
        lines.append(f"{_count(broken, 'folder')} could not be read and left out: {_listed(broken)}.")
    silent = [run.name for run in study.runs if not np.isfinite(run.evaluations["mean_return"]).any()]
    if silent:
        lines.append(f"{_count(silent, 'run')} without an evaluation: {_listed(silent)}.")
    gaps = _gaps(source)
    if gaps:
        lines.append(
            f"{_count(gaps, 'run')} with missing evaluations, which count where they have some: {_listed(gaps)}."
        )
    lines += [f"In {title}: {reason}." for title, reason in source.partial.items()]
    lines += [f"No figure of {title}: {reason}." for title, reason in source.left_out.items()]
    return lines


def _gaps(source: Source) -> list[str]:
    """Runs that have no evaluation at steps of the common grid before their last one"""
    result = []
    for task in source.study.tasks:
        runs, _, values = source.table(task, "evaluations", "mean_return")
        for run, row in zip(runs, values, strict=True):
            known = np.flatnonzero(np.isfinite(row))
            gone = int(known[-1] + 1 - len(known))
            if gone:
                result.append(f"{run.name} ({gone} of {known[-1] + 1})")
    return result


def _count(names: Sequence[str], what: str) -> str:
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")
