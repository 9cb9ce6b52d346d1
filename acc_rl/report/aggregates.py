"""Figures over all tasks: curves, final scores, performance profiles, probabilities of improvement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from acc_rl.report import statistics
from acc_rl.report.cells import with_interval
from acc_rl.report.charts import SERIES, Figure, curves, intervals, numbers
from acc_rl.report.curves import final_level
from acc_rl.report.load import Array
from acc_rl.report.source import FEW, Source, behind, dot, estimated, lacks, stack


def aggregate_curves(source: Source) -> Figure | None:
    panels = []
    notes: list[str] = []
    kinds: list[tuple[str, str, statistics.Statistic, Callable[[str, Array], Array]]] = [
        ("IQM of the normalised score", "mean_return", "iqm", lambda task, values: source.scales[task](values)),
        ("mean success rate", "success", "mean", lambda task, values: values),
    ]
    for title, name, statistic, transform in kinds:
        found = source.aggregated("evaluations", name, transform)
        x, scores = found.x, found.scores
        data = stack([estimated(label, x, source.estimate(*each, statistic)) for label, each in scores.items()])
        if data[SERIES]:
            percent = name == "success"
            panels.append(curves(title, data, source.looks, found.x_title, title, found.x_end, percent))
            note = f"{title.capitalize()}: {behind(data).lower()}" if name == "success" else behind(data)
            notes.append(note + ("" if notes else source.too_narrow()) + lacks(found.lacking))
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
    every: dict[str, dict[int, Array]] = {}
    for number, task in enumerate(source.study.tasks):
        if task not in source.scales:
            continue
        for label in source.looks:
            levels = np.array([final_level(run) for run in source.study.of(task, label)])
            levels = source.scales[task](levels[np.isfinite(levels)])
            if len(levels):
                every.setdefault(label, {})[number] = levels
    if not every:
        source.left_out["final scores"] = "no run has reached its last steps yet"
        return []
    shared = set.intersection(*(set(each) for each in every.values()))
    if not shared:
        source.left_out["final scores"] = "no task has runs of all algorithms that have reached their last steps"
        return []
    others = [task for number, task in enumerate(source.study.tasks) if number not in shared]
    if others:
        source.partial["final scores"] = f"nothing of {', '.join(others)}, where some algorithm has no final return"
    scores = {label: {n: every[label][n] for n in sorted(shared)} for label in source.looks if label in every}
    flat = {label: np.concatenate(list(each.values())) for label, each in scores.items()}
    strata = {
        label: np.concatenate([np.full(len(values), number) for number, values in each.items()])
        for label, each in scores.items()
    }
    fewest = min(len(levels) for each in scores.values() for levels in each.values())
    return [
        final_aggregates(source, flat, strata, others, fewest),
        profiles(source, flat, strata),
        *improvements(source, scores, fewest),
    ]


def final_aggregates(
    source: Source, flat: Mapping[str, Array], strata: Mapping[str, Any], others: Sequence[str], fewest: int
) -> Figure:
    names: list[tuple[str, statistics.Statistic]] = [("IQM", "iqm"), ("median", "median"), ("mean", "mean")]
    found = {
        title: {label: source.estimate(values[:, None], strata[label], name) for label, values in flat.items()}
        for title, name in names
    }
    each = [one for by_label in found.values() for one in by_label.values()]
    low, high = min(one.low[0] for one in each), max(one.high[0] for one in each)
    margin = 0.03 * (high - low) or 0.5
    panels = [
        intervals(
            title,
            stack([dot(label, one) for label, one in by_label.items()]),
            source.looks,
            f"{title} of the final score",
            domain=(float(low - margin), float(high + margin)),
        )
        for title, by_label in found.items()
    ]
    sentence = headline(found["IQM"], fewest)
    note = "Final: mean of a run's evaluations in the last 5 % of its steps; runs that are not there yet do not count. "
    note += "Median and mean are over the tasks' means; bars are 95 % stratified bootstrap intervals."
    note += source.too_narrow()
    if others:
        note += f" This figure and the next two are without {', '.join(others)}, where some algorithm has no such run."
    return Figure("final", "Final scores", sentence, panels, [note])


def headline(found: Mapping[str, statistics.Estimate], fewest: int) -> str:
    """Who ends with the highest IQM, as far as the intervals tell; a single run has none."""
    best = max(found, key=lambda label: found[label].value[0])
    value, low, high = (float(each[0]) for each in found[best][:3])
    if len(found) == 1:
        return f"{best} ends with an IQM of {with_interval(value, low, high)}."
    if fewest < 2:
        return f"{best} ends with the highest IQM, {value:.2f}; with one run of a task no interval says how surely."
    reach = [label for label, one in found.items() if label != best and one.high[0] >= low]
    leader = f"{best}, which ends with the highest IQM, {with_interval(value, low, high)}"
    if len(reach) == len(found) - 1:
        return f"No difference seen: the intervals of all others overlap that of {leader}."
    few = " With so few runs that is a hint, not yet a result." if fewest < FEW else ""
    if not reach:
        return f"Highest: {leader}. No other interval reaches it.{few}"
    below = ", ".join(label for label in found if label != best and label not in reach)
    return f"No difference seen between {', '.join(reach)} and {leader}. Below its interval: {below}.{few}"


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
    note = f"{behind(data)} Every task weighs the same, also with fewer runs.{source.too_narrow()}"
    return Figure("profile", "Performance profiles", sentence, [panel], [note], wide=True)


def improvements(source: Source, scores: Mapping[str, dict[int, Array]], fewest: int) -> list[Figure]:
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
    panel = intervals("probability of improvement", stack(parts), source.looks, f"P({first} is better)", 0.5, (0, 1))
    sentence = against(first, stack(parts), fewest)
    note = f"How probable it is that a run of {first} ends better than one of the other, on a task drawn at random. "
    note += "Bars are 95 % stratified bootstrap intervals; at the dashed line neither is better." + source.too_narrow()
    return [Figure("improvement", "Probability of improvement", sentence, [panel], [note], wide=True)]


def against(first: str, data: Mapping[str, Sequence[Any]], fewest: int) -> str:
    """Which others the first is more probable to beat, as far as the intervals tell; a single run has none."""
    if fewest < 2:
        return f"With one run of a task no interval says how surely {first} is better or worse."
    run = f"A run of {first} more often ends"
    groups: dict[str, list[str]] = {f"{run} better than one of": [], f"{run} worse than one of": []}
    neither = groups[f"No difference seen between {first} and"] = []
    better, worse, _ = groups.values()
    for other, low, high in zip(data[SERIES], data["low"], data["high"], strict=True):
        (better if low > 0.5 else worse if high < 0.5 else neither).append(other)
    return " ".join(f"{begin} {', '.join(others)}." for begin, others in groups.items() if others)
