"""Return against time on HalfCheetah-v5: what a quarter of an hour on one core is worth to each algorithm.

Every contestant has its own defaults, one thread and one core; two learn at the same time. Evaluations stop the clock.
A run is one row of results/learning.jsonl, written when it ends; runs that are there are not made again. In the end a
table and a picture go to docs/performance.md.

    make .venv-sbx/.ready && python benchmarks/learning.py --sbx .venv-sbx/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parents[1]
ENV, TITLE = "HalfCheetah-v5", "Learning against time"
CONTESTANTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "acc-x": ("acc_rl", "ACCX", {}),
    "acc-n2": ("acc_rl", "ACC", {"n_critics": 2}),
    "CrossQ (sb3-contrib)": ("sb3_contrib", "CrossQ", {}),
    "CrossQ (SBX)": ("sbx", "CrossQ", {}),
    "TQC (SBX)": ("sbx", "TQC", {}),
    "SAC (SB3)": ("stable_baselines3", "SAC", {}),
}
EVALUATIONS, EPISODES, TEST_SEED = 30, 5, 10_000


def learn(name: str, seed: int, minutes: float, core: int) -> dict[str, Any]:
    """One run in this process: steps, seconds and mean returns of its evaluations"""
    os.sched_setaffinity(0, [core])  # JAX takes as many threads as there are cores
    import gymnasium as gym
    import torch as th
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.logger import Logger

    th.set_num_threads(1)
    test_env, budget = gym.make(ENV), 60 * minutes
    found: dict[str, list[float]] = {"steps": [], "seconds": [], "returns": []}

    def test_return(model: Any, episode: int) -> float:
        obs, _ = test_env.reset(seed=TEST_SEED + episode)
        total, ended = 0.0, False
        while not ended:
            obs, reward, terminated, truncated, _ = test_env.step(model.predict(obs, deterministic=True)[0])
            total, ended = total + float(reward), terminated or truncated
        return total

    class Clock(BaseCallback):
        """Stops while it evaluates, and ends training when the time is over"""

        def _on_training_start(self) -> None:
            self.start, self.due = time.perf_counter(), 0.0

        def _on_step(self) -> bool:
            seconds = time.perf_counter() - self.start
            if seconds >= min(self.due, budget):
                before = time.perf_counter()
                found["returns"].append(mean(test_return(self.model, i) for i in range(EPISODES)))
                found["steps"].append(self.num_timesteps)
                found["seconds"].append(round(seconds, 3))
                self.due += budget / EVALUATIONS
                self.start += time.perf_counter() - before
            return seconds < budget

    module, cls, settings = CONTESTANTS[name]
    model = getattr(import_module(module), cls)("MlpPolicy", gym.make(ENV), seed=seed, device="cpu", **settings)
    model.set_logger(Logger(None, []))
    model.learn(10**9, callback=Clock())
    return {"name": name, "seed": seed, "minutes": minutes, **found}


def read(path: Path, minutes: float) -> list[dict[str, Any]]:
    rows = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return [row for row in rows if row["minutes"] == minutes]


def run_missing(path: Path, args: argparse.Namespace) -> None:
    """Every run that the file lacks, one process each, as many at a time as there are cores for"""
    from acc_rl.runs.provenance import cpu_name

    done = {(row["name"], row["seed"]) for row in read(path, args.minutes)}
    chosen = [name for name in CONTESTANTS if args.only in name and (args.sbx or "SBX" not in name)]
    cores: queue.SimpleQueue[int] = queue.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0))[: args.at_once]:
        cores.put(core)

    def run(seed: int, name: str) -> None:
        core = cores.get()
        words = [args.sbx if "SBX" in name else sys.executable, __file__, "--minutes", str(args.minutes)]
        words += ["--contestant", name, str(seed), str(core)]
        result = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        cores.put(core)
        if result.returncode != 0:
            raise RuntimeError(f"{name}, seed {seed}: {result.stderr[-1000:]}")
        row = json.loads(result.stdout.splitlines()[-1]) | {"date": time.strftime("%Y-%m-%d"), "cpu": cpu_name()}
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{time.strftime('%H:%M')} {name}, seed {seed}", flush=True)

    with ThreadPoolExecutor(args.at_once) as pool:
        missing = [run_of for run_of in product(range(args.seeds), chosen) if run_of[::-1] not in done]
        for future in [pool.submit(run, *run_of) for run_of in missing]:
            future.result()


def table(rows: Sequence[dict[str, Any]], minutes: float) -> str:
    """Markdown: env steps, and returns after a third, two thirds and all of the time; means over seeds"""
    import numpy as np

    times = [60 * minutes * share for share in (1 / 3, 2 / 3, 1)]
    lines = ["| | seeds | env steps | " + " | ".join(f"return after {t / 60:.3g} min" for t in times) + " |"]
    lines.append("|---|" + "---:|" * (2 + len(times)))
    for name in CONTESTANTS:
        if own := [row for row in rows if row["name"] == name]:
            returns = [mean(np.interp(t, row["seconds"], row["returns"]) for row in own) for t in times]
            steps = mean(row["steps"][-1] for row in own)
            lines.append(f"| {name} | {len(own)} | {steps:.0f} | " + " | ".join(f"{r:.0f}" for r in returns) + " |")
    return "\n".join(lines)


def draw(rows: Sequence[dict[str, Any]], folder: Path) -> Path:
    from acc_rl.report.charts import SERIES, Figure, curves
    from acc_rl.report.colours import looks
    from acc_rl.report.export import write_figure

    data: dict[str, list[Any]] = {SERIES: [], "x": [], "y": [], "line": []}
    for row in rows:
        for second, value in zip(row["seconds"], row["returns"], strict=True):
            for column, entry in zip(data.values(), (row["name"], second / 60, value, str(row["seed"])), strict=True):
                column.append(entry)
    names = [name for name in CONTESTANTS if name in data[SERIES]]
    panel = curves(ENV, data, looks(names), "minutes on one core", "return", x_end=rows[0]["minutes"])
    return write_figure(Figure("learning", TITLE, "", [panel]), folder, "png")


def write_section(page: Path, path: Path, minutes: float) -> None:
    """The section of the page, in place of the one that is there or at its end"""
    rows = read(path, minutes)
    if not rows:
        return
    picture = draw(rows, page.parent).relative_to(page.parent)
    words = f"python benchmarks/learning.py --minutes {minutes:g} --seeds {len({row['seed'] for row in rows})}"
    made_on = ", ".join(sorted({f"{row['date']}, {row['cpu']}" for row in rows}))
    about = (
        f"{minutes:g} minutes of {ENV} on one core each, every algorithm with its defaults; "
        f"evaluations stop the clock. The compilation of SBX counts. `{words} --sbx .venv-sbx/bin/python`, {made_on}."
    )
    section = f"## {TITLE}\n\n{about}\n\n{table(rows, minutes)}\n\n![{TITLE}]({picture})\n"
    old = re.compile(rf"^## {TITLE}$.*?(?=^## |\Z)", flags=re.MULTILINE | re.DOTALL)
    text = page.read_text()
    if found := old.search(text):
        text = text[: found.start()] + section + ("\n" if found.end() < len(text) else "") + text[found.end() :]
    else:
        text = f"{text.rstrip()}\n\n{section}"
    page.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15, help="of training for each run")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each contestant")
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time, one core each")
    parser.add_argument("--only", default="", help="contestants whose name contains this")
    parser.add_argument("--sbx", metavar="PYTHON", help="the Python of an environment with SBX")
    parser.add_argument("--rows", type=Path, default=ROOT / "results" / "learning.jsonl")
    parser.add_argument("--write", type=Path, default=ROOT / "docs" / "performance.md", help="page with the table")
    parser.add_argument("--contestant", nargs=3, metavar=("NAME", "SEED", "CORE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contestant:
        name, seed, core = args.contestant
        print(json.dumps(learn(name, int(seed), args.minutes, int(core))))
        return
    run_missing(args.rows, args)
    write_section(args.write, args.rows, args.minutes)
    print(f"written: {args.write}")


if __name__ == "__main__":
    main()
