"""Figures over all tasks: curves, final scores, performance profiles, probabilities of improvement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from acc_rl.report import statistics
from acc_rl.report.charts import SERIES, Figure, curves, intervals, numbers
from acc_rl.report.curves import final_level
from acc_rl.report.load import Array
from acc_rl.report.source import Source, behind, dot, estimated, stack


def aggregate_curves(source: Source) -> Figure | None:
    panels, notes = [], []
    kinds: list[tuple[str, str, statistics.Statistic, Callable[[str, Array], Array]]] = [
        ("IQM of the normalised score", "mean_return", "iqm", lambda task, values: source.scales[task](values)),
        ("mean success rate", "success", "mean", lambda task, values: values),
    ]
    for title, name, statistic, transform in kinds:
        x_title, x, scores = source.aggregated("evaluations", name, transform)
        parts = [
            estimated(label, x, statistics.aggregate(values, strata, statistic, source.rng(), source.replicates))
            for label, (values, strata) in scores.items()
        ]
        if parts:
            data = stack(parts)
            panels.append(curves(title, data, source.looks, x_title, title, percent=name == "success"))
            notes.append(f"{title.capitalize()}: {behind(data).lower()}" if name == "success" else behind(data))
    if not panels:
        source.left_out["aggregated curves"] = "no evaluations yet"
        return None
    tasks = len(source.study.tasks)
    sentence = (
        f"Higher and further left is better: how far the algorithms are after how many steps, over "
        f"{tasks} task{'s' * (tasks > 1)}; bands are pointwise 95 % stratified bootstrap intervals."
    )
    return Figure("aggregate", "Aggregated over tasks", sentence, panels, notes, wide=True)


def final_scores(source: Source) -> list[Figure]:
    """Aggregates, performance profiles and probabilities of improvement of the final scores"""
    scores: dict[str, dict[int, Array]] = {}
    for number, task in enumerate(source.study.tasks):
        if task not in source.scales:
            continue
        for label in source.looks:
            levels = np.array([final_level(run) for run in source.study.of(task, label)])
            levels = source.scales[task](levels[np.isfinite(levels)])
            if len(levels):
                scores.setdefault(label, {})[number] = levels
    if not scores:
        source.left_out["final scores"] = "no run has reached its last steps yet"
        return []
    scores = {label: scores[label] for label in source.looks if label in scores}
    flat = {label: np.concatenate(list(each.values())) for label, each in scores.items()}
    strata = {
        label: np.concatenate([np.full(len(values), number) for number, values in each.items()])
        for label, each in scores.items()
    }
    return [
        final_aggregates(source, flat, strata),
        profiles(source, flat, strata),
        *improvements(source, scores),
    ]


def final_aggregates(source: Source, flat: Mapping[str, Array], strata: Mapping[str, Any]) -> Figure:
    panels, best = [], ("", -np.inf, "")
    names: list[tuple[str, statistics.Statistic]] = [("IQM", "iqm"), ("median", "median"), ("mean", "mean")]
    for title, statistic in names:
        parts = []
        for label, values in flat.items():
            one = statistics.aggregate(values[:, None], strata[label], statistic, source.rng(), source.replicates)
            parts.append(dot(label, one))
            if statistic == "iqm" and one.value[0] > best[1]:
                best = (label, one.value[0], f"{one.value[0]:.2f} [{one.low[0]:.2f}, {one.high[0]:.2f}]")
        panels.append(intervals(title, stack(parts), source.looks, f"{title} of the final score"))
    sentence = f"Intervals that do not overlap are a difference to trust; the highest IQM has {best[0]} with {best[2]}."
    note = "Final: mean of a run's evaluations in the last 5 % of its steps; runs that are not there yet do not count. "
    note += "Median and mean are over the tasks' means; bars are 95 % stratified bootstrap intervals."
    return Figure("final", "Final scores", sentence, panels, [note])


def profiles(source: Source, flat: Mapping[str, Array], strata: Mapping[str, Any]) -> Figure:
    top = max(1.0, max(float(values.max()) for values in flat.values()))
    bottom = min(0.0, min(float(values.min()) for values in flat.values()))
    levels = np.linspace(bottom, top, 101)
    parts = [
        estimated(label, levels, statistics.profile(values, strata[label], levels, source.rng(), source.replicates))
        for label, values in flat.items()
    ]
    data = stack(parts)
    panel = curves("performance profile", data, source.looks, "normalised score τ", "runs above τ", percent=True)
    sentence = "The share of runs that end above each score: a curve that lies above another everywhere is better."
    return Figure("profile", "Performance profiles", sentence, [panel], [behind(data)], wide=True)


def improvements(source: Source, scores: Mapping[str, dict[int, Array]]) -> list[Figure]:
    labels = list(scores)
    if len(labels) < 2:
        return []
    first = "acc" if "acc" in labels else labels[0]
    parts = []
    for other in labels:
        if other != first:
            p, low, high = statistics.improvement(scores[first], scores[other], source.rng(), source.replicates)
            if np.isfinite(p):
                ends: dict[str, list[Any]] = {"x": numbers([p]), "low": numbers([low]), "high": numbers([high])}
                parts.append({**ends, "row": [f"{first} > {other}"], SERIES: [other]})
    if not parts:
        return []
    panel = intervals("probability of improvement", stack(parts), source.looks, f"P({first} is better)", 0.5)
    sentence = f"How probable it is that a run of {first} ends better than one of the other, on a task drawn at random."
    return [Figure("improvement", "Probability of improvement", sentence, [panel], wide=True)]
