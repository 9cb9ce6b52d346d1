"""The paper's figures, as far as the study has the data for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from acc_rl.report.aggregates import aggregate_curves, final_scores
from acc_rl.report.calibration import calibration
from acc_rl.report.charts import Figure, Panel, intervals
from acc_rl.report.curves import EVALUATION_FILTER
from acc_rl.report.load import Study
from acc_rl.report.per_task import panels, per_task
from acc_rl.report.source import Source, dot, stack
from acc_rl.report.value_errors import return_and_bias, signed_bias, value_error


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
    made += [*calibration(source), value_error(source), *signed_bias(source)]
    if not source.study.single:
        made += [return_and_bias(source), critics(source)]
    return [figure for figure in made if figure is not None and figure.panels]


def returns(source: Source, labels: Sequence[str]) -> tuple[list[Panel], str]:
    """The learning curves of some algorithms, and a note"""
    found, note = per_task(source, labels, "evaluations", "mean_return", EVALUATION_FILTER)
    return panels(source, found, "return"), note


def learning_curves(source: Source) -> Figure | None:
    drawn, note = returns(source, list(source.looks))
    if not drawn:
        source.left_out["learning curves"] = "no evaluations yet"
        return None
    sentence = "Each task for itself: where algorithms part, and whether their runs agree."
    if source.study.single:
        sentence = "The return of test episodes, with deterministic actions."
    return Figure("tasks", "Learning curves", sentence, drawn, [note])


def success_rates(source: Source) -> Figure | None:
    found, note = per_task(source, list(source.looks), "evaluations", "success", EVALUATION_FILTER)
    sentence = "The share of test episodes that reach their goal at any of their steps."
    return Figure("success", "Success rates", sentence, panels(source, found, "success", percent=True), [note])


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
    drawn, note = returns(source, labels)
    sentence = (
        "What more critic updates per env step (-2q, -4q) buy: faster learning where bias stays in check, else harm."
    )
    return Figure("updates", "Sample-efficient regime", sentence, drawn, [note])


def td3(source: Source) -> Figure | None:
    labels = [label for label in source.looks if label.split(" ")[0] in ("td3", "acc-td3")]
    if len({label.split(" ")[0] for label in labels}) < 2:
        source.left_out["TD3 against ACC-TD3"] = "the study does not have both"
        return None
    drawn, note = returns(source, labels)
    sentence = "The same calibration on another algorithm: TD3 with its pessimism fixed and with it chosen by ACC."
    return Figure("td3", "TD3 against ACC-TD3", sentence, drawn, [note])


def critics(source: Source) -> Figure | None:
    labels = families(source.study, r"-n\d+$", "n_critics")
    if not labels:
        source.left_out["fewer critics"] = "no algorithm ran with several numbers of critics"
        return None
    beside = [label for label in source.looks if label in ("sac", "td3") or label in labels]
    drawn, note = returns(source, beside)
    clock = wall_clock(source, beside)
    sentence = "What fewer critics cost in return, and what they save in time."
    if clock is None:
        note += " No wall-clock was recorded on a task that all of them have."
    return Figure("critics", "Fewer critics", sentence, drawn + ([clock] if clock else []), [note])


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
