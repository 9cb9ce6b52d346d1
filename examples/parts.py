"""What each part of acc-x bought: single runs of `acc train`, one row each in results/parts.jsonl.

python examples/parts.py add runs/Hopper-v5_acc-x_n_steps=3_seed0 --as "3-step returns" --commit 28a300f
python examples/parts.py table                                              # the tables of docs/modern.md
python examples/parts.py table --tasks Ant-v5 --steps 15000 25000 50000
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from acc_rl.store import records

ROWS = Path(__file__).parents[1] / "results" / "parts.jsonl"
TASKS, STEPS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"), (25_000, 50_000)


def add(folder: Path, label: str, commit: str) -> None:
    spec, start = records.read_json(folder / "spec.json"), records.read_json(folder / "provenance.json")
    tests = records.read(folder / records.EVALUATIONS)
    curve = {str(row["step"]): round(row["mean_return"], 1) for row in tests}
    command = [Path(word).name if word.startswith("/") else word for word in start["command"]]
    about = {"part": label, "task": spec["env"], "seed": spec["seed"], "commit": commit, "command": command}
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


def table(tasks: Sequence[str], steps: Sequence[int]) -> None:
    rows = [row for row in map(json.loads, ROWS.read_text().splitlines()) if row["task"] in tasks]
    print("| part | " + " | ".join(f"{task}, {step // 1000}k" for task in tasks for step in steps) + " |")
    print("|---" + "|--:" * len(tasks) * len(steps) + "|")
    for part in dict.fromkeys(row["part"] for row in rows):
        curves = {task: [r["curve"] for r in rows if (r["part"], r["task"]) == (part, task)] for task in tasks}
        print(f"| {part} | " + " | ".join(cell(curves[task], step) for task in tasks for step in steps) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    printing = commands.add_parser("table")
    printing.add_argument("--tasks", nargs="+", default=TASKS)
    printing.add_argument("--steps", nargs="+", type=int, default=STEPS)
    adding = commands.add_parser("add")
    adding.add_argument("folder", type=Path)
    adding.add_argument("--as", dest="label", required=True)
    adding.add_argument("--commit", required=True)
    options = parser.parse_args()
    if options.what == "table":
        table(options.tasks, options.steps)
    else:
        add(options.folder, options.label, options.commit)
