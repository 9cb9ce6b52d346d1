"""The table in docs/results.md, from the records of `acc study examples/early.toml`."""

import sys
from pathlib import Path

import numpy as np

from acc_rl.report.load import load
from acc_rl.runs.archive import unpacked

AT = (50_000, 100_000)
AROUND = 5_000


def until(columns, name, step, signs=""):
    """Mean over the last 5000 steps before ``step``"""
    near = (columns["step"] > step - AROUND) & (columns["step"] <= step) & np.isfinite(columns[name])
    whole = len(columns["step"]) and columns["step"][-1] > step - AROUND / 2
    return f"{columns[name][near].mean():{signs}}" if near.any() and whole else "-"


if __name__ == "__main__":
    with unpacked(Path(sys.argv[1])) as folder:
        study = load(folder)
    titles = [f"{what} at {step // 1000}k" for step in AT for what in ("return", "d", "Q - R", "abs(Q - R) / abs(R)")]
    print("|", " | ".join(["task", "algorithm", "seed", *titles]), "|")
    print("|" + "---|" * (3 + len(titles)))
    for run in study.runs:
        cells = [run.task, run.label, str(run.seed)]
        for step in AT:
            cells.append(until(run.evaluations, "mean_return", step, ".0f"))
            cells.append(until(run.training, "dropped_per_net", step, ".2f"))
            cells.append(until(run.value_error, "bias", step, "+.1f"))
            cells.append(until(run.value_error, "normalised", step, ".2f"))
        print("|", " | ".join(cells), "|")
