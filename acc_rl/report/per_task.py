"""One panel per task, one line per algorithm: mean ± standard deviation over runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from acc_rl.report import statistics
from acc_rl.report.charts import SERIES, Panel, curves
from acc_rl.report.curves import filter_size, mean_known, smooth, thin
from acc_rl.report.source import STEPS, Source, behind, between, estimated, stack

Data = dict[str, list[Any]]


def mean_and_std(
    source: Source, task: str, labels: Sequence[str], part: str, name: str, wanted: int
) -> tuple[Data, int]:
    """Mean and mean +- std over the runs, filtered, per algorithm; and the filter's size"""
    runs, onto, values = source.table(task, part, name)
    size, parts = filter_size(wanted, len(onto)), []
    for label in labels:
        mine = values[[i for i, run in enumerate(runs) if run.label == label]]
        if not len(mine):
            continue
        mean = mean_known(mine)
        std = np.sqrt(mean_known((mine - mean) ** 2))
        mean, std, count = smooth(mean, size), smooth(std, size), np.isfinite(mine).sum(axis=0)
        some = between(mean)
        some = some[thin(len(some))]
        estimate = statistics.Estimate(mean[some], (mean - std)[some], (mean + std)[some], count[some])
        parts.append(estimated(label, onto[some], estimate))
    return stack(parts), size


def per_task(source: Source, labels: Sequence[str], part: str, name: str, wanted: int) -> tuple[dict[str, Data], str]:
    """What is to be drawn for each task that has it, and a note on how it was made"""
    found, sizes = {}, set()
    for task in source.study.tasks:
        data, size = mean_and_std(source, task, labels, part, name, wanted)
        if data[SERIES]:
            found[task] = data
            sizes.add(size)
    return found, how_made(source, "Mean ± standard deviation over runs. ", sizes, wanted, found.values())


def how_made(source: Source, what: str, sizes: Collection[int], wanted: int, found: Collection[Data]) -> str:
    """A note: what the lines are of, the filter, and how many runs stand behind them"""
    if source.study.single:
        return filtered(sizes, wanted)
    return what + filtered(sizes, wanted) + behind({"n": [count for data in found for count in data["n"]]})


def panels(source: Source, found: Mapping[str, Data], y: str, **axis: Any) -> list[Panel]:
    """Over all steps that the task's runs are to take, so that panels of a task can be compared"""
    return [
        curves(task, data, source.looks, STEPS, y, float(source.study.length(task)), **axis)
        for task, data in found.items()
    ]


def filtered(sizes: Collection[int], wanted: int) -> str:
    if max(sizes, default=1) == 1:
        return "Unfiltered, as there are few rows. "
    widths = " or ".join(map(str, sorted(sizes)))
    less = "" if set(sizes) == {wanted} else f" (the paper's {wanted}, but at most a tenth of a curve)"
    return f"Uniform filter of {widths} rows{less}. "
