"""What each part of acc-x bought: single runs of `acc train`, one row each in results/parts.jsonl.

python examples/parts.py add runs/Hopper-v5_acc-x_n_steps=3_seed0 --as "3-step returns" --commit 28a300f
python examples/parts.py table                                              # the table of docs/modern.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from acc_rl.store import records

ROWS = Path(__file__).parents[1] / "results" / "parts.jsonl"
STEPS = (25_000, 50_000)


def add(folder: Path, label: str, commit: str) -> None:
    spec, start = records.read_json(folder / "spec.json"), records.read_json(folder / "provenance.json")
    tests = records.read(folder / records.EVALUATIONS)
    curve = {str(row["step"]): round(row["mean_return"], 1) for row in tests}
    about = {"part": label, "task": spec["env"], "seed": spec["seed"], "commit": commit, "command": start["command"]}
    with ROWS.open("a") as file:
        file.write(json.dumps({**about, "cpu": start["cpu"], "started": start["started"], "curve": curve}) + "\n")


def cell(curves: list[dict[str, float]], step: int) -> str:
    """Mean of the evaluations of the last 10,000 steps, run by run"""
    means = []
    for curve in curves:
        found = [value for at, value in curve.items() if step - 10_000 < int(at) <= step]
        if max(map(int, curve)) >= step:
            means.append(f"{sum(found) / len(found):.0f}")
    return ", ".join(means)


def table() -> None:
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    print("| part | " + " | ".join(f"{task}, {step // 1000}k" for task in tasks for step in STEPS) + " |")
    print("|---" + "|--:" * len(tasks) * len(STEPS) + "|")
    for part in dict.fromkeys(row["part"] for row in rows):
        curves = {task: [r["curve"] for r in rows if (r["part"], r["task"]) == (part, task)] for task in tasks}
        print(f"| {part} | " + " | ".join(cell(curves[task], step) for task in tasks for step in STEPS) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("table")
    adding = commands.add_parser("add")
    adding.add_argument("folder", type=Path)
    adding.add_argument("--as", dest="label", required=True)
    adding.add_argument("--commit", required=True)
    options = parser.parse_args()
    table() if options.what == "table" else add(options.folder, options.label, options.commit)
