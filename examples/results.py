"""The table in docs/results.md, from the records of `acc study examples/early.toml`."""

import sys
from pathlib import Path

import numpy as np

from acc_rl.report.load import load
from acc_rl.runs.archive import unpacked

AROUND = 5_000
COLUMNS = (
    ("d at 26k", "training", "dropped_per_net", 26_000, 1, ".2f"),
    *(
        column
        for step, told in ((50_000, "50k"), (100_000, "100k"))
        for column in (
            (f"d at {told}", "training", "dropped_per_net", step, 1, ".2f"),
            (f"return at {told}", "evaluations", "mean_return", step, AROUND, ".0f"),
            (f"Q - R at {told}", "value_error", "bias", step, AROUND, "+.1f"),
            (f"abs(Q - R) / abs(R) at {told}", "value_error", "normalised", step, AROUND, ".2f"),
        )
    ),
)
"""title, records, what of them, until which step, from how many steps before it, and how it is written"""


def cell(run, part, name, step, before, form):
    """The mean over the rows of these steps; a dash before the run has come there"""
    rows = run.rows(part)
    near = (rows["step"] > step - before) & (rows["step"] <= step) & np.isfinite(rows[name])
    return f"{rows[name][near].mean():{form}}" if run.last_step >= step and near.any() else "-"


def main(path):
    with unpacked(path) as folder:
        study = load(folder)
    table = [[column[0], *(cell(run, *column[1:]) for run in study.runs)] for column in COLUMNS]
    table = [column for column in table if set(column[1:]) != {"-"}]
    names = [["task", "algorithm", "seed"], *([run.task, run.label, str(run.seed)] for run in study.runs)]
    for i, name in enumerate(names):
        print("|", " | ".join([*name, *(column[i] for column in table)]), "|")
        if i == 0:
            print("|" + "---|" * (len(name) + len(table)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
