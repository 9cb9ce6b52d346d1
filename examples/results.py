"""The tables in docs/results.md, from the records of `acc study examples/early.toml`."""

import sys
from pathlib import Path
from statistics import mean

from acc_rl.report.load import load
from acc_rl.store import records
from acc_rl.store.archive import unpacked

STEPS = (26_000, 50_000, 100_000)
COLUMNS = (
    ("d", records.TRAINING, "dropped_per_net", 1, ".2f"),
    ("return", records.EVALUATIONS, "mean_return", 5000, ".0f"),
    ("Q", records.VALUE_ERROR, "mean_q", 5000, ".0f"),
    ("R", records.VALUE_ERROR, "mean_return", 5000, ".0f"),
    ("Q - R", records.VALUE_ERROR, "bias", 5000, "+.0f"),
    ("abs(Q - R) / abs(R)", records.VALUE_ERROR, "normalised", 5000, ".2f"),
)
"""title, records, what of them, over how many steps, and how it is written"""


def cells(folder, step):
    for _, part, name, before, form in COLUMNS:
        rows = [row for row in records.read(folder / part) if step - before < row["step"] <= step]
        values = [row[name] for row in rows if row.get(name) is not None]
        yield f"{mean(values):{form}}" if values else "-"


def main(path):
    with unpacked(path) as folder:
        runs = load(folder).runs
        for step in STEPS:
            print(f"After {step:,} steps:\n")
            print("| task | algorithm | seed |", " | ".join(column[0] for column in COLUMNS), "|")
            print("|---|---|---|" + "--:|" * len(COLUMNS))
            for run in runs:
                if run.last_step >= step:
                    print("|", " | ".join([run.task, run.label, str(run.seed), *cells(folder / run.name, step)]), "|")
            print()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
