"""What evaluations and value errors add to training on HalfCheetah-v5, whose episodes always have 1000 steps.

Evaluation: ten episodes every 1000 env steps, as in the paper. Value error: the estimate of every pair met.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import gymnasium as gym
import torch as th
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stable_baselines3.common.logger import Logger

from acc_rl.algos.registry import find
from acc_rl.runs.callbacks import EvaluationCallback, ValueErrorCallback
from acc_rl.runs.provenance import cpu_name

ENV, EVERY, EPISODES, WARM_UP = "HalfCheetah-v5", 1000, 10, 300


def measure(algo: str, steps: int, folder: Path) -> tuple[float, float, float]:
    """Milliseconds per env step of everything else, of evaluations and of value errors"""
    model = find(algo).make("MlpPolicy", gym.make(ENV), learning_starts=100, buffer_size=10_000, device="cpu", seed=0)
    model.set_logger(Logger(None, []))
    model.learn(WARM_UP)
    evaluation = EvaluationCallback(folder / f"{algo}.jsonl", partial(gym.make, ENV), EVERY, EPISODES, 0)
    value_error = ValueErrorCallback()
    start = time.perf_counter()
    model.learn(steps, callback=[evaluation, value_error], reset_num_timesteps=False)
    rest = time.perf_counter() - start - evaluation.seconds - value_error.seconds
    one = evaluation.seconds / evaluation.number
    return 1e3 * rest / steps, 1e3 * one / EVERY, 1e3 * value_error.seconds / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help="env steps per algorithm")
    parser.add_argument("--threads", type=int, default=th.get_num_threads(), help="threads for torch")
    args = parser.parse_args()
    th.set_num_threads(args.threads)
    table = Table("", "training and env", "evaluation", "value error", title=f"ms per env step on {ENV}, and share")
    with tempfile.TemporaryDirectory() as folder:
        for algo in track(("acc", "acc-n2", "acc-x", "sac", "td3"), "measuring", transient=True):
            times = measure(algo, args.steps, Path(folder))
            table.add_row(algo, *(f"{each:.2f} ({100 * each / sum(times):.1f} %)" for each in times))
    console = Console(width=100)
    console.print(table)
    console.print(f"{cpu_name()}, {args.threads} threads, {args.steps} steps each", highlight=False)


if __name__ == "__main__":
    main()
