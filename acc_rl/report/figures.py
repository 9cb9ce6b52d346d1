"""The paper's figures, as far as the study has the data for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from acc_rl.report import statistics
from acc_rl.report.charts import SERIES, Figure, Panel, curves, intervals, numbers, whole
from acc_rl.report.colours import Look
from acc_rl.report.curves import (
    EVALUATION_FILTER,
    VALUE_ERROR_FILTER,
    Scale,
    filter_size,
    final_level,
    smooth,
    table,
    thin,
)
from acc_rl.report.load import Array, Columns, Run, Study

STEPS, SHARE = "env steps", "% of each task's steps"


@dataclass
class Source:
    """What all figures are drawn from; tables are made once."""

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
    return lambda run: getattr(run, part)  # type: ignore[no-any-return]


def has(run: Run, part: str, name: str) -> bool:
    return bool(np.isfinite(columns_of(part)(run)[name]).any())


def figures(source: Source) -> list[Figure]:
    """All figures that the study has data for; ``source.left_out`` says why others are missing."""
    made: list[Figure | None] = []
    if source.study.single:
        source.left_out["aggregates over runs"] = "they need several runs, and this is one"
    else:
        made += [aggregate_curves(source), *final_scores(source)]
    made.append(learning_curves(source))
    if not source.study.single:
        made += [sample_efficient(source), td3(source)]
    made += [*calibration(source), value_error(source), signed_bias(source)]
    if not source.study.single:
        made.append(critics(source))
    return [figure for figure in made if figure is not None and figure.panels]


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
            one = statistics.aggregate(
                values[:, None], strata[label], statistic, source.rng(), source.replicates
            )
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
                ends = {"x": numbers([p]), "low": numbers([low]), "high": numbers([high])}
                parts.append({"row": [f"{first} > {other}"], SERIES: [other], **ends})
    if not parts:
        return []
    panel = intervals("probability of improvement", stack(parts), source.looks, f"P({first} is better)", 0.5)
    sentence = f"How probable it is that a run of {first} ends better than one of the other, on a task drawn at random."
    return [Figure("improvement", "Probability of improvement", sentence, [panel], wide=True)]


def mean_and_std(
    source: Source, task: str, labels: Sequence[str], part: str, name: str, wanted: int
) -> tuple[dict[str, list[Any]], int]:
    """Mean and mean +- std over the runs, filtered, per algorithm; and the filter's size"""
    runs, onto, values = source.table(task, part, name)
    size, parts = filter_size(wanted, len(onto)), []
    for label in labels:
        mine = values[[i for i, run in enumerate(runs) if run.label == label]]
        if not len(mine):
            continue
        known = np.isfinite(mine)
        count = known.sum(axis=0)
        mean = np.where(known, mine, 0).sum(axis=0) / np.maximum(count, 1)
        std = np.sqrt((np.where(known, mine - mean, 0) ** 2).sum(axis=0) / np.maximum(count, 1))
        mean, std = (smooth(np.where(count > 0, each, np.nan), size) for each in (mean, std))
        some = np.flatnonzero(np.isfinite(mean))
        some = some[thin(len(some))]
        estimate = statistics.Estimate(mean[some], (mean - std)[some], (mean + std)[some], count[some])
        parts.append(estimated(label, onto[some], estimate))
    return stack(parts), size


def per_task(source: Source, labels: Sequence[str], part: str, name: str, wanted: int, y: str) -> tuple[list[Panel], str]:
    panels, sizes, counts = [], set(), []
    for task in source.study.tasks:
        data, size = mean_and_std(source, task, labels, part, name, wanted)
        if data[SERIES]:
            panels.append(curves(task, data, source.looks, STEPS, y))
            sizes.add(size)
            counts += data["n"]
    told = " or ".join(map(str, sorted(sizes)))
    note = f"Mean ± standard deviation over runs, uniform filter of {told} rows"
    note += f" (the paper's {wanted}, but at most a tenth of a curve). " if sizes != {wanted} else ". "
    return panels, note + behind({"n": counts})


def learning_curves(source: Source) -> Figure | None:
    labels = list(source.looks)
    panels, note = per_task(source, labels, "evaluations", "mean_return", EVALUATION_FILTER, "return")
    success, _ = per_task(source, labels, "evaluations", "success", EVALUATION_FILTER, "success")
    if not panels:
        source.left_out["learning curves"] = "no evaluations yet"
        return None
    panels += [Panel(f"{each.title}: success", *vars_of(each)) for each in success]
    sentence = "Each task for itself: where algorithms part, and whether their runs agree."
    return Figure("tasks", "Learning curves", sentence, panels, [note])


def vars_of(panel: Panel) -> tuple[Any, ...]:
    return panel.chart, panel.data, panel.kind, panel.x_title, panel.y_title


def families(study: Study, suffix: str, setting: str) -> list[str]:
    """Labels of algorithms that the study has with several values of the setting"""
    values: dict[str, set[Any]] = {}
    members: dict[str, list[str]] = {}
    for run in study.runs:
        family = re.sub(suffix, "", run.algo)
        values.setdefault(family, set()).add(run.setting(setting))
        members.setdefault(family, []).append(run.label)
    return list(dict.fromkeys(label for f, several in values.items() if len(several) > 1 for label in members[f]))


def sample_efficient(source: Source) -> Figure | None:
    labels = families(source.study, r"-\d+q$", "critic_updates")
    if not labels:
        source.left_out["sample-efficient regime"] = "no algorithm ran with several numbers of critic updates per step"
        return None
    panels, note = per_task(source, labels, "evaluations", "mean_return", EVALUATION_FILTER, "return")
    sentence = "What more critic updates per env step (-2q, -4q) buy: faster learning where bias stays in check, else harm."
    return Figure("updates", "Sample-efficient regime", sentence, panels, [note])


def td3(source: Source) -> Figure | None:
    labels = [label for label in source.looks if label.split(" ")[0] in ("td3", "acc-td3")]
    if len({label.split(" ")[0] for label in labels}) < 2:
        source.left_out["TD3 against ACC-TD3"] = "the study does not have both"
        return None
    panels, note = per_task(source, labels, "evaluations", "mean_return", EVALUATION_FILTER, "return")
    sentence = "The same calibration on another algorithm: TD3 with its pessimism fixed and with it chosen by ACC."
    return Figure("td3", "TD3 against ACC-TD3", sentence, panels, [note])


def calibration(source: Source) -> list[Figure]:
    """What the rule chose: d where atoms are dropped, else beta"""
    kinds = [("dropped_per_net", "d", "Dropped atoms per net, d"), ("beta", "β", "The rule's β")]
    made: list[Figure] = []
    covered: set[str] = set()
    for name, letter, title in kinds:
        labels = [label for label in adaptive(source, name) if label not in covered]
        covered |= set(labels)
        panels, note = per_task(source, labels, "training", name, EVALUATION_FILTER, letter)
        if not panels:
            continue
        direction = "Larger d is more pessimism" if letter == "d" else "Larger β is more optimism"
        sentence = f"{direction}: that the curves differ between tasks is why no fixed value fits all."
        made.append(Figure(f"calibration-{name.split('_')[0]}", title, sentence, panels, [note]))
        if not source.study.single:
            singles = [p for task in source.study.tasks if (p := single_seeds(source, task, labels, name, letter))]
            sentence = "Unfiltered, one line per run: whether seeds settle on the same value, and how much it moves."
            made.append(Figure(f"{made[-1].key}-seeds", f"{title}: single seeds", sentence, singles))
    if not made:
        source.left_out["d over time"] = "no run of an algorithm that adapts it has records of it"
    return made


def adaptive(source: Source, name: str) -> list[str]:
    """Labels of algorithms with a run in which the value moves"""
    moving = {r.label for r in source.study.runs if has(r, "training", name) and np.nanstd(r.training[name]) > 1e-9}
    return [label for label in source.looks if label in moving]


def single_seeds(source: Source, task: str, labels: Sequence[str], name: str, letter: str) -> Panel | None:
    runs, onto, values = source.table(task, "training", name)
    parts = []
    for run, row in zip(runs, values, strict=True):
        some = np.flatnonzero(np.isfinite(row))
        if run.label in labels and len(some):
            some = some[thin(len(some))]
            line = {SERIES: [run.label] * len(some), "line": [f"seed {run.seed}"] * len(some)}
            parts.append({**line, "x": whole(onto[some]), "y": numbers(row[some], 4)})
    return curves(task, stack(parts), source.looks, STEPS, letter) if parts else None


def value_error(source: Source) -> Figure | None:
    size = 1

    def smoothed(task: str, values: Array) -> Array:
        nonlocal size
        size = filter_size(VALUE_ERROR_FILTER, values.shape[1])
        return smooth(values, size)

    x_title, x, scores = source.aggregated("value_error", "normalised", smoothed)
    if not scores:
        source.left_out["value error"] = "no run has records of it (they need --value-error)"
        return None
    parts = [
        estimated(label, x, statistics.aggregate(values, strata, "mean", source.rng(), source.replicates))
        for label, (values, strata) in scores.items()
    ]
    data = stack(parts)
    panel = curves("normalised value error |Q - R| / |R|", data, source.looks, x_title, "|Q - R| / |R|")
    sentence = "Lower is a critic that promises what then follows: its error relative to the returns seen, over all tasks."
    note = f"Mean over tasks and runs, 95 % stratified bootstrap intervals, uniform filter of {size} rows of 1000 pairs"
    note += " (the paper's 401, but at most a tenth of a curve). " if size != VALUE_ERROR_FILTER else ". "
    return Figure("value-error", "Value error", sentence, [panel], [note + behind(data)], wide=True)


def signed_bias(source: Source) -> Figure | None:
    panels, note = per_task(source, list(source.looks), "value_error", "bias", VALUE_ERROR_FILTER, "mean of Q - R")
    sentence = "Above zero the critic overestimates, below it underestimates; in units of the discounted return."
    return Figure("bias", "Signed bias of the critic", sentence, panels, [note]) if panels else None


def critics(source: Source) -> Figure | None:
    labels = families(source.study, r"-n\d+$", "n_critics")
    if not labels:
        source.left_out["fewer critics"] = "no algorithm ran with several numbers of critics"
        return None
    beside = [label for label in source.looks if label in ("sac", "td3") or label in labels]
    panels, note = per_task(source, beside, "evaluations", "mean_return", EVALUATION_FILTER, "return")
    clock = wall_clock(source, beside)
    sentence = "How little is lost with fewer critics, and how much time is won."
    if clock is None:
        note += " No wall-clock was recorded."
    return Figure("critics", "Fewer critics", sentence, panels + ([clock] if clock else []), [note])


def wall_clock(source: Source, labels: Sequence[str]) -> Panel | None:
    parts = []
    for label in labels:
        runs = [r for r in source.study.runs if r.label == label and r.seconds and r.clock["step"][-1] > 0]
        if runs:
            pace = np.array([[1000 * r.clock["seconds"][-1] / r.clock["step"][-1]] for r in runs])
            tasks = np.array([source.study.tasks.index(run.task) for run in runs])
            one = statistics.aggregate(pace, tasks, "mean", source.rng(), source.replicates)
            parts.append(dot(label, one))
    if not parts:
        return None
    return intervals("wall-clock", stack(parts), source.looks, "seconds per 1000 env steps")
