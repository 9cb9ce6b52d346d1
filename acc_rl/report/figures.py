"""The paper's figures, as far as the study has the data for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from acc_rl.report import statistics
from acc_rl.report.aggregates import aggregate_curves, final_scores
from acc_rl.report.charts import SERIES, Figure, Panel, curves, intervals, numbers, spans_magnitudes, whole
from acc_rl.report.curves import EVALUATION_FILTER, POINTS, VALUE_ERROR_FILTER, filter_size, mean_known, smooth, thin
from acc_rl.report.load import Array, Study
from acc_rl.report.source import STEPS, Source, behind, between, dot, estimated, lacks, stack


def figures(source: Source) -> list[Figure]:
    """All figures that the study has data for; ``source.left_out`` says why others are missing."""
    made: list[Figure | None] = []
    if source.study.single:
        source.left_out["aggregates over runs"] = "they need several runs, and this is one"
    else:
        made += [aggregate_curves(source), *final_scores(source)]
    made += [learning_curves(source), success_rates(source)]
    if not source.study.single:
        made += [sample_efficient(source), td3(source)]
    made += [*calibration(source), value_error(source), signed_bias(source)]
    if not source.study.single:
        made.append(critics(source))
    return [figure for figure in made if figure is not None and figure.panels]


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
        mean = mean_known(mine)
        std = np.sqrt(mean_known((mine - mean) ** 2))
        mean, std, count = smooth(mean, size), smooth(std, size), np.isfinite(mine).sum(axis=0)
        some = between(mean)
        some = some[thin(len(some))]
        estimate = statistics.Estimate(mean[some], (mean - std)[some], (mean + std)[some], count[some])
        parts.append(estimated(label, onto[some], estimate))
    return stack(parts), size


def per_task(
    source: Source, labels: Sequence[str], part: str, name: str, wanted: int, y: str, **axis: Any
) -> tuple[list[Panel], str]:
    panels, sizes, counts = [], set(), []
    for task in source.study.tasks:
        data, size = mean_and_std(source, task, labels, part, name, wanted)
        if data[SERIES]:
            panels.append(curves(task, data, source.looks, STEPS, y, **axis))
            sizes.add(size)
            counts += data["n"]
    what = "" if source.study.single else "Mean ± standard deviation over runs. "
    return panels, what + filtered(sizes, wanted) + ("" if source.study.single else behind({"n": counts}))


def filtered(sizes: Collection[int], wanted: int) -> str:
    if max(sizes, default=1) == 1:
        return "Unfiltered, as there are few rows. "
    told = " or ".join(map(str, sorted(sizes)))
    less = "" if set(sizes) == {wanted} else f" (the paper's {wanted}, but at most a tenth of a curve)"
    return f"Uniform filter of {told} rows{less}. "


def learning_curves(source: Source) -> Figure | None:
    panels, note = per_task(source, list(source.looks), "evaluations", "mean_return", EVALUATION_FILTER, "return")
    if not panels:
        source.left_out["learning curves"] = "no evaluations yet"
        return None
    sentence = "Each task for itself: where algorithms part, and whether their runs agree."
    if source.study.single:
        sentence = "The return of test episodes, with deterministic actions."
    return Figure("tasks", "Learning curves", sentence, panels, [note])


def success_rates(source: Source) -> Figure | None:
    labels = list(source.looks)
    panels, note = per_task(source, labels, "evaluations", "success", EVALUATION_FILTER, "success", percent=True)
    sentence = "The share of test episodes that reach their goal at any of their steps."
    return Figure("success", "Success rates", sentence, panels, [note])


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
    sentence = (
        "What more critic updates per env step (-2q, -4q) buy: faster learning where bias stays in check, else harm."
    )
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
    kinds: list[tuple[str, str, str, dict[str, Any]]] = [
        ("dropped_per_net", "d, dropped atoms per net", "Dropped atoms per net, d", {"least": 0}),
        ("beta", "β", "The rule's β", {"zero": True}),
    ]
    made: list[Figure] = []
    covered: set[str] = set()
    for name, y, title, axis in kinds:
        labels = [label for label in adaptive(source, name) if label not in covered]
        covered |= set(labels)
        panels, note = per_task(source, labels, "training", name, EVALUATION_FILTER, y, **axis)
        if not panels:
            continue
        direction = "Larger d is more pessimism" if name != "beta" else "Larger β is more optimism"
        many = len(panels) > 1
        sentence = direction + (": where the curves differ between tasks, no fixed value fits all." if many else ".")
        made.append(Figure(f"calibration-{name.split('_')[0]}", title, sentence, panels, [note]))
        if not source.study.single:
            tasks = source.study.tasks
            singles = [panel for task in tasks if (panel := single_seeds(source, task, labels, name, y, axis))]
            sentence = "Unfiltered, one line per run: whether seeds settle on the same value, and how much it moves."
            note = f"Of a run with more rows, {POINTS} are drawn."
            made.append(Figure(f"{made[-1].key}-seeds", f"{title}: single seeds", sentence, singles, [note]))
    if not made:
        source.left_out["d over time"] = "no run of an algorithm that adapts it has records of it"
    return made


def adaptive(source: Source, name: str) -> list[str]:
    """Labels of algorithms with a run in which the value moves"""
    moving = {r.label for r in source.study.runs if r.has("training", name) and np.nanstd(r.training[name]) > 1e-9}
    return [label for label in source.looks if label in moving]


def single_seeds(
    source: Source, task: str, labels: Sequence[str], name: str, y: str, axis: dict[str, Any]
) -> Panel | None:
    runs, onto, values = source.table(task, "training", name)
    parts = []
    for run, row in zip(runs, values, strict=True):
        some = between(row)
        if run.label in labels and len(some):
            some = some[thin(len(some))]
            line: dict[str, list[Any]] = {SERIES: [run.label] * len(some), "line": [f"seed {run.seed}"] * len(some)}
            parts.append({**line, "x": whole(onto[some]), "y": numbers(row[some], 4)})
    return curves(task, stack(parts), source.looks, STEPS, y, **axis) if parts else None


def value_error(source: Source) -> Figure | None:
    sizes = set()

    def smoothed(task: str, values: Array) -> Array:
        sizes.add(size := filter_size(VALUE_ERROR_FILTER, values.shape[1]))
        return smooth(values, size)

    found = source.aggregated("value_error", "normalised", smoothed)
    data = stack([estimated(label, found.x, source.estimate(*each, "mean")) for label, each in found.scores.items()])
    if not data[SERIES]:
        source.left_out["value error"] = no_value_error(source, source.study.tasks)
        return None
    unmeasured = [task for task in source.study.tasks if not source.table(task, "value_error", "normalised")[0]]
    if unmeasured:
        reason = no_value_error(source, unmeasured)
        source.partial["value error and signed bias"] = f"nothing of {', '.join(unmeasured)}: {reason}"
    title, ratio = "normalised value error |Q - R| / |R|", "|Q - R| / |R|"
    log = spans_magnitudes(data)
    panel = curves(title, data, source.looks, found.x_title, ratio, least=0, log=log)
    sentence = "Lower is a critic that promises what then follows: its error relative to the returns seen."
    note = "" if source.study.single else "Mean over tasks and runs, 95 % stratified bootstrap intervals. "
    note += f"A row is the mean over 1000 pairs. {filtered(sizes, VALUE_ERROR_FILTER)}{behind(data)}"
    note += "" if source.study.single else source.too_narrow() + lacks(found.lacking)
    note += " The axis is logarithmic, for the sake of the small values." if log else ""
    notes = [note, f"Without {', '.join(unmeasured)}, where there are no rows."] if unmeasured else [note]
    return Figure("value-error", "Value error", sentence, [panel], notes, wide=True)


def no_value_error(source: Source, tasks: Collection[str]) -> str:
    if all(run.spec.get("value_error") is False for run in source.study.runs if run.task in tasks):
        return "it was switched off (--no-value-error)"
    return "a row needs 1000 pairs, and the last 100 steps of an episode that a time limit cuts give none"


def signed_bias(source: Source) -> Figure | None:
    panels, sizes, counts = [], set(), []
    for task in source.study.tasks:
        runs, onto, values = source.table(task, "value_error", "bias")
        if not runs:
            continue
        size, picks, parts = filter_size(VALUE_ERROR_FILTER, len(onto)), thin(len(onto)), []
        smoothed = smooth(values, size)[:, picks]
        for label in source.looks:
            mine = smoothed[[i for i, run in enumerate(runs) if run.label == label]]
            if len(mine):
                mean = source.estimate(mine, np.zeros(len(mine), int), "mean")
                parts.append(estimated(label, onto[picks], mean))
        data = stack(parts)
        panels.append(curves(task, data, source.looks, STEPS, "mean of Q - R", zero=True, reference=0))
        sizes.add(size)
        counts += data["n"]
    sentence = "Above zero the critic overestimates, below it underestimates; in units of the discounted return."
    note = "" if source.study.single else "Mean over runs with 95 % bootstrap intervals. "
    note += filtered(sizes, VALUE_ERROR_FILTER)
    note += "" if source.study.single else behind({"n": counts}) + source.too_narrow()
    return Figure("bias", "Signed bias of the critic", sentence, panels, [note])


def critics(source: Source) -> Figure | None:
    labels = families(source.study, r"-n\d+$", "n_critics")
    if not labels:
        source.left_out["fewer critics"] = "no algorithm ran with several numbers of critics"
        return None
    beside = [label for label in source.looks if label in ("sac", "td3") or label in labels]
    panels, note = per_task(source, beside, "evaluations", "mean_return", EVALUATION_FILTER, "return")
    clock = wall_clock(source, beside)
    sentence = "What fewer critics cost in return, and what they save in time."
    if clock is None:
        note += " No wall-clock was recorded on a task that all of them have."
    return Figure("critics", "Fewer critics", sentence, panels + ([clock] if clock else []), [note])


def wall_clock(source: Source, labels: Sequence[str]) -> Panel | None:
    """Mean over the tasks that all the algorithms have"""
    timed = [r for r in source.study.runs if r.label in labels and r.seconds and r.clock["step"][-1] > 0]
    having = [{run.task for run in timed if run.label == label} for label in labels]
    shared = set.intersection(*(tasks for tasks in having if tasks)) if timed else set()
    if not shared:
        return None
    parts = []
    for label in labels:
        runs = [run for run in timed if run.label == label and run.task in shared]
        if runs:
            pace = np.array([[1000 * r.clock["seconds"][-1] / r.clock["step"][-1]] for r in runs])
            tasks = np.array([source.study.tasks.index(run.task) for run in runs])
            parts.append(dot(label, source.estimate(pace, tasks, "mean")))
    return intervals("wall-clock", stack(parts), source.looks, "seconds per 1000 env steps")
