"""From which size of nets on more threads are faster: ms per training step with one thread and with all cores.

The rule that follows from it is `THREADED` in acc_rl/runs/threads.py.
"""

import argparse
import os
import time

import gymnasium as gym
import numpy as np
import torch as th
from rich.console import Console
from rich.table import Table
from stable_baselines3.common.logger import Logger

from acc_rl.algos.registry import find
from acc_rl.runs.threads import n_weights

CASES = {
    **{f"acc-x, {n}x{width}": ("acc-x", [width] * n) for n, width in ((2, 32), (2, 128), (2, 256), (2, 512))},
    **{f"acc-n2, 3x{width}": ("acc-n2", [width] * 3) for width in (256, 512)},
    **{f"acc, 3x{width}": ("acc", [width] * 3) for width in (128, 256, 512)},
}


def make(algo, hidden):
    model = find(algo).make(
        "MlpPolicy",
        gym.make("HalfCheetah-v5"),
        buffer_size=2000,
        learning_starts=100,
        seed=0,
        policy_kwargs={"net_arch": {"pi": [256, 256], "qf": hidden}},
    )
    model.set_logger(Logger(None, []))
    model.learn(110, log_interval=None)
    return model


def measured(model, threads, turns, steps):
    """The fastest of the turns: others use the machine too"""
    th.set_num_threads(threads)
    model.train(2, 256)
    seconds = []
    for _ in range(turns):
        start = time.perf_counter()
        model.train(steps, 256)
        seconds.append((time.perf_counter() - start) / steps)
    return 1000 * min(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    title = f"ms per training step, batch 256, HalfCheetah-v5, best of {arguments.turns} turns"
    table = Table("nets", "weights", "1 thread", f"{arguments.threads} threads", "gain", title=title)
    for name, (algo, hidden) in CASES.items():
        model = make(algo, hidden)
        times = np.array([measured(model, threads, arguments.turns, 5) for threads in (1, arguments.threads)])
        cells = [f"{each:.2f}" for each in times]
        table.add_row(name, f"{n_weights(model):,}", *cells, f"{times[0] / times[1]:.2f}x")
    Console().print(table)


if __name__ == "__main__":
    main()
