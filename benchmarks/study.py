"""Steps per second of a study with 1 and 2 workers and of one run with 2 threads; what Ray adds to a local study.

ACC of the paper's size and ACC-X on HalfCheetah-v5, training only. The ways take turns, so that a slow moment of the
machine hits each alike.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from acc_rl.runs.provenance import cpu_name
from acc_rl.store import records
from acc_rl.study.executors import Executor, Local, cores, execute
from acc_rl.study.folder import Study, open_study
from acc_rl.study.grid import Grid
from acc_rl.study.on_ray import OnRay, connected
from acc_rl.study.worker import Options

WARM_UP = 200
"""env steps that do not count: random actions, then first updates"""
TIMES = {"acc": 1, "acc-x": 10}
"""how many times as many steps an algorithm gets: the fast one more"""


class Silent:
    def started(self, *_: object) -> None:
        pass

    def ended(self, *_: object) -> None:
        pass

    def refresh(self) -> None:
        pass


def study(out: Path, name: str, algo: str, steps: int, runs: int, threads: int) -> Study:
    common = {"threads": threads, "eval_every": steps, "eval_episodes": 1, "log_every": 50, "value_error": False}
    settings = {"learning_starts": 100, "buffer_size": 20_000}
    grid = Grid(name, {"HalfCheetah": steps}, [{"algo": algo}], range(runs), {**common, "settings": settings})
    return open_study(out / name, name, "benchmark", 1.0, grid.runs())


def rate(done: Study) -> float:
    """Env steps per second of all runs together, between warm-up and the last evaluation"""
    total = 0.0
    for spec in done.runs:
        rows = [row for row in records.read(done.folder / spec.name / records.CLOCK) if row["step"] >= WARM_UP]
        total += (rows[-2]["step"] - rows[0]["step"]) / (rows[-2]["seconds"] - rows[0]["seconds"])
    return total


def seconds(done: Study, executor: Executor) -> float:
    start = time.perf_counter()
    failed = execute(done, executor, 0, Silent())
    assert not failed, failed
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=700, help="env steps per run")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--no-ray", action="store_true")
    arguments = parser.parse_args()
    console, options = Console(width=100), Options()
    console.print(f"{cpu_name()}, {cores()} cores", highlight=False)
    ways = {"1 worker, 1 thread": (1, 1), "2 workers, 1 thread each": (2, 1), "1 run with 2 threads": (1, 2)}
    rates: dict[tuple[str, str], list[float]] = {key: [] for key in product(TIMES, ways)}
    extra: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        out = Path(folder)
        if not arguments.no_ray:
            start = time.perf_counter()
            stack.enter_context(connected("local"))
            console.print(f"Ray started in {time.perf_counter() - start:.1f} s", highlight=False)
        for turn in range(arguments.turns):
            for algo, name in rates:
                (workers, threads), steps = ways[name], TIMES[algo] * arguments.steps
                done = study(out, f"{turn}-{algo}-{workers}-{threads}", algo, steps, workers, threads)
                local = seconds(done, Local(done, workers, options))
                rates[algo, name].append(rate(done))
                if algo == "acc" and workers == 2 and not arguments.no_ray:
                    done = study(out, f"{turn}-ray", algo, steps, workers, threads)
                    on_ray = seconds(done, OnRay(done, workers, options))
                    extra.append(on_ray / local - 1)
                    console.print(f"two runs: local {local:.1f} s, Ray {on_ray:.1f} s", highlight=False)
    table = Table("", "", "steps per second", "against 1 worker (within a turn)")
    for (algo, name), values in rates.items():
        ratio = median(each / one for each, one in zip(values, rates[algo, next(iter(ways))], strict=True))
        table.add_row(algo, name, f"{median(values):.1f}", f"{ratio:.2f}x")
    console.print(table)
    if extra:
        told = ", ".join(f"{100 * each:+.1f} %" for each in extra)
        console.print(f"Ray against local, whole time: median {100 * median(extra):+.1f} % ({told})", highlight=False)


if __name__ == "__main__":
    main()
