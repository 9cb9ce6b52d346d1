"""How far the critic's estimates were from the returns that followed."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from scipy.stats import spearmanr

from acc_rl.report.calibration import at_end
from acc_rl.report.charts import SERIES, Figure, Panel, curves, numbers, points, spans_magnitudes
from acc_rl.report.curves import VALUE_ERROR_FILTER, filter_size, final_level, smooth, thin
from acc_rl.report.load import Array
from acc_rl.report.per_task import Data, filtered, how_made, panels
from acc_rl.report.source import Source, behind, estimated, lacks, stack

PAPERS = ("normalised", "mean of |Q - R| / |R|, the paper's")
KINDS = (("relative", "mean |Q - R| / mean |R|"), PAPERS)
"""columns of the records and their titles; the first is not blown up by returns near zero"""

RANKED = 5
"""runs of a task from which on their ranks are compared"""


def value_error(source: Source) -> Figure | None:
    drawn, notes = [], []
    for name, title in KINDS:
        if made := aggregated_error(source, name, title):
            drawn.append(made[0])
            notes.append(made[1])
    if not drawn:
        source.left_out["value error"] = no_value_error(source, source.study.tasks)
        return None
    sentence = "Lower is better: the error of the critic's estimates Q, relative to the returns R that followed."
    if len(drawn) > 1:
        sentence += (
            " The paper's mean of ratios is large wherever some returns are near zero; the ratio of means is not."
        )
    if len(set(notes)) > 1:
        notes = [f"{panel.title}: {note}" for panel, note in zip(drawn, notes, strict=True)]
    notes = list(dict.fromkeys(notes))
    unmeasured = [task for task in source.study.tasks if not source.table(task, "value_error", PAPERS[0])[0]]
    if unmeasured:
        reason = no_value_error(source, unmeasured)
        source.partial["value error and signed bias"] = f"nothing of {', '.join(unmeasured)}: {reason}"
        notes.append(f"Without {', '.join(unmeasured)}, where there are no rows.")
    return Figure("value-error", "Value error", sentence, drawn, notes, wide=len(drawn) == 1)


def aggregated_error(source: Source, name: str, title: str) -> tuple[Panel, str] | None:
    """One measure of the error over all tasks, and how it was made"""
    sizes = set()

    def smoothed(task: str, values: Array) -> Array:
        sizes.add(size := filter_size(VALUE_ERROR_FILTER, values.shape[1]))
        return smooth(values, size)

    found = source.aggregated("value_error", name, smoothed)
    data = stack([estimated(label, found.x, source.estimate(*each, "mean")) for label, each in found.scores.items()])
    if not data[SERIES]:
        return None
    log = spans_magnitudes(data)
    panel = curves(title, data, source.looks, found.x_title, title, found.x_end, least=0, log=log)
    note = "" if source.study.single else "Mean over tasks and runs, 95 % stratified bootstrap intervals. "
    note += f"A row is of 1000 pairs. {filtered(sizes, VALUE_ERROR_FILTER)}{behind(data)}"
    note += "" if source.study.single else source.too_narrow() + lacks(found.lacking)
    note += " The axis is logarithmic, for the sake of the small values." if log else ""
    return panel, note


def no_value_error(source: Source, tasks: Collection[str]) -> str:
    if all(run.spec.get("value_error") is False for run in source.study.runs if run.task in tasks):
        return "it was switched off (--no-value-error)"
    return "a row needs 1000 pairs, and the last 100 steps of an episode that a time limit cuts give none"


def signed_bias(source: Source) -> list[Figure]:
    """Q - R, from the plain returns of the paper to those that hold all that a soft critic estimates"""
    above = "Above zero the critic overestimates, below it underestimates"
    bonus = "the entropy bonus that a soft critic's estimates contain"
    kinds = [
        ("bias", 1, "value_error", "bias", "Signed bias of the critic", "; in units of the discounted return."),
        ("bias-soft", 1, "value_error", "bias_soft", "Signed bias against soft returns",
         f": here the returns have {bonus}."),
        ("bias-full", -1, "training", "gap_full", "Signed bias against soft returns, beyond time limits",
         f": here the returns have {bonus}, and the critic's own estimate of what comes after a time limit."),
    ]  # fmt: skip
    return [
        Figure(key, title, above + more, panels(source, found, "mean of Q - R", zero=True, reference=0), [note])
        for key, sign, part, name, title, more in kinds
        for found, note in [bias_per_task(source, sign, part, name)]
    ]


def bias_per_task(source: Source, sign: int, part: str, name: str) -> tuple[dict[str, Data], str]:
    """Mean over runs with intervals, and a note"""
    found, sizes = {}, set()
    for task in source.study.tasks:
        runs, onto, values = source.table(task, part, name)
        if not runs:
            continue
        sizes.add(size := filter_size(VALUE_ERROR_FILTER, len(onto)))
        picks, parts = thin(len(onto)), []
        smoothed = sign * smooth(values, size)[:, picks]
        for label in source.looks:
            mine = smoothed[[i for i, run in enumerate(runs) if run.label == label]]
            if len(mine):
                parts.append(estimated(label, onto[picks], source.estimate(mine, np.zeros(len(mine), int), "mean")))
        found[task] = stack(parts)
    what = "Mean over runs with 95 % bootstrap intervals. "
    note = how_made(source, what, sizes, VALUE_ERROR_FILTER, found.values())
    return found, note + ("" if source.study.single else source.too_narrow())


def return_and_bias(source: Source) -> Figure:
    """Whether runs whose critics are less biased earn more: a mark per run that is at its end"""
    drawn, notes = [], []
    for task in source.study.tasks:
        ended = [(run, -at_end(run, "gap_full"), final_level(run)) for run in source.study.runs if run.task == task]
        ended = [each for each in ended if np.isfinite(each[1:]).all()]
        if len(ended) < 2:
            continue
        runs, bias, level = zip(*ended, strict=True)
        data = {SERIES: [run.label for run in runs], "line": [f"seed {run.seed}" for run in runs]}
        data |= {"x": numbers(bias), "y": numbers(level)}
        drawn.append(points(task, data, source.looks, "mean of Q - R at the end", "final return"))
        if len(runs) >= RANKED and np.ptp(np.abs(bias)) > 0 and np.ptp(level) > 0:  # equal values have no ranks
            rank = spearmanr(np.abs(bias), level)
            chance = "< 0.001" if rank.pvalue < 0.001 else f"= {rank.pvalue:.2g}"
            notes.append(f"{task}, {len(runs)} runs: {rank.statistic:+.2f} (p {chance})")
    if notes:
        notes = ["Rank correlation of the return with abs(Q - R), below 0 where less bias goes with more return: "
                 + "; ".join(notes) + "."]  # fmt: skip
    notes.append("One mark per run. Q - R against soft returns, beyond time limits; both of the last 5 % of the steps.")
    sentence = "Less bias is not by itself more return: whether they go together, across runs."
    return Figure("return-bias", "Return against bias", sentence, drawn, notes)
