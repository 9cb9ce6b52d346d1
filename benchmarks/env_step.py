"""Milliseconds per env step of a whole `learn` on HalfCheetah-v5: env, policy, buffer, training and logging.

Ours against SB3, sb3-contrib and, given the Python of an environment that has it, SBX, all with the same sizes. ACC-X
stands beside algorithms of its kind: CrossQ, and SAC with SimBa's nets, with their own sizes; and beside our ACC with
two critics.

Contestants take turns, each in a process of its own, so that a slow moment of the machine hits each alike; the table
gives medians and, in brackets, the median of the ratios to ours within a turn.

    python -m venv .venv-sbx && .venv-sbx/bin/pip install sbx-rl==0.28.0 'gymnasium[mujoco]' torch==2.13.0
    python benchmarks/env_step.py --sbx .venv-sbx/bin/python

On a busy machine `--threads 1 --cpu-time` counts the time that the process has run, not the time that it has waited.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from importlib import import_module
from statistics import median
from typing import Any

QUANTILE_ARCH = {"pi": [256, 256], "qf": [512, 512, 512]}
STEPS_FIRST = 400  # steps before anything counts: warm-up actions, compilation, threads
COLUMNS = ("ours", "SB3 or contrib", "SBX", "SBX SimBa", "ACC, N=2")
CONTESTS: dict[str, dict[str, tuple[str, str, dict[str, Any]]]] = {
    "ACC, N=5": {
        "ours": ("acc_rl", "ACC", {"n_critics": 5}),
        "SB3 or contrib": ("sb3_contrib", "TQC", {"policy_kwargs": {"n_critics": 5, "net_arch": QUANTILE_ARCH}}),
    },
    "ACC, N=2": {
        "ours": ("acc_rl", "ACC", {"n_critics": 2}),
        "SB3 or contrib": ("sb3_contrib", "TQC", {"policy_kwargs": {"n_critics": 2, "net_arch": QUANTILE_ARCH}}),
        "SBX": ("sbx", "TQC", {"policy_kwargs": {"n_critics": 2, "net_arch": QUANTILE_ARCH}}),
    },
    "ACC-X": {
        "ours": ("acc_rl", "ACCX", {}),
        "SB3 or contrib": ("sb3_contrib", "CrossQ", {}),
        "SBX": ("sbx", "CrossQ", {}),
        "SBX SimBa": ("sbx", "SAC", {"policy": "SimbaPolicy"}),
        "ACC, N=2": ("acc_rl", "ACC", {"n_critics": 2}),
    },
    "SAC": {
        "ours": ("acc_rl", "SAC", {}),
        "SB3 or contrib": ("stable_baselines3", "SAC", {}),
        "SBX": ("sbx", "SAC", {}),
    },
    "TD3": {
        "ours": ("acc_rl", "TD3", {}),
        "SB3 or contrib": ("stable_baselines3", "TD3", {"noise": 0.1}),
        "SBX": ("sbx", "TD3", {"noise": 0.1, "policy_kwargs": {"net_arch": [400, 300]}}),
    },
}


def contestant(contest: str, name: str, threads: int, cpu_time: bool) -> None:
    """Learns as many steps as each line on stdin says, answers with the milliseconds per step."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # JAX takes as many threads as there are cores
    import gymnasium as gym
    import numpy as np
    import torch as th
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.noise import NormalActionNoise

    th.set_num_threads(threads)
    module, cls, settings = CONTESTS[contest][name]
    settings = {"learning_starts": 100, "batch_size": 256, "device": "cpu", **settings}
    env = gym.make("HalfCheetah-v5")
    if noise := settings.pop("noise", None):
        n_actions = env.action_space.shape[0]
        settings["action_noise"] = NormalActionNoise(np.zeros(n_actions), np.full(n_actions, noise))
    policy = settings.pop("policy", "MlpPolicy")
    model = getattr(import_module(module), cls)(policy, env, seed=0, **settings)
    model.set_logger(Logger(None, []))
    model.learn(STEPS_FIRST)
    clock = time.process_time if cpu_time else time.perf_counter
    print("ready", flush=True)
    for line in sys.stdin:
        steps = int(line)
        start = clock()
        model.learn(steps, reset_num_timesteps=False)
        print((clock() - start) / steps * 1e3, flush=True)


def take_turns(contest: str, args: argparse.Namespace) -> dict[str, list[float]]:
    """ms per env step of each contestant, one list entry per turn"""
    processes: dict[str, subprocess.Popen[str]] = {}

    def hear(name: str) -> str:
        line = processes[name].stdout.readline()  # type: ignore[union-attr]
        return line or sys.exit(f"{name} of {contest} ended early")

    for name in CONTESTS[contest]:
        python = args.sbx if name.startswith("SBX") else sys.executable
        if python is not None:
            command = [python, __file__, "--contestant", contest, name, "--threads", str(args.threads)]
            command += ["--cpu-time"] * args.cpu_time
            processes[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            hear(name)  # ready: threads that wait for those of another process would take minutes
    times: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(args.turns):
        for name, process in processes.items():
            print(args.steps, file=process.stdin, flush=True)
            times[name].append(float(hear(name)))
    for process in processes.values():
        process.communicate()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15, help="measurements per contestant")
    parser.add_argument("--steps", type=int, default=60, help="env steps per measurement")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads, and cores, for each")
    parser.add_argument("--sbx", metavar="PYTHON", help="the Python of an environment with SBX")
    parser.add_argument("--only", default="", help="run the contests whose name contains this")
    parser.add_argument("--cpu-time", action="store_true", help="CPU time instead of the clock on the wall")
    parser.add_argument("--contestant", nargs=2, metavar=("CONTEST", "NAME"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contestant:
        contestant(*args.contestant, threads=args.threads, cpu_time=args.cpu_time)
        return

    from rich.console import Console
    from rich.table import Table

    from acc_rl.runs.provenance import cpu_name

    clock = "CPU time" if args.cpu_time else "wall time"
    table = Table(title=f"ms per env step of learn on HalfCheetah-v5, batch 256, {args.threads} threads, {clock}")
    for column in ("", *COLUMNS):
        table.add_column(column, justify="right" if column else "left")
    console = Console(width=120)
    for contest in CONTESTS:
        if args.only in contest:
            times = take_turns(contest, args)
            cells = []
            for name in COLUMNS:
                values = times.get(name)
                ratio = values and median(value / own for value, own in zip(values, times["ours"], strict=True))
                cells.append(f"{median(values):.1f} ({ratio:.2f}x)" if values else "-")
            table.add_row(contest, *cells)
    console.print(table)
    console.print(f"{time.strftime('%Y-%m-%d')}, {cpu_name()}, {args.turns} turns of {args.steps} steps")


if __name__ == "__main__":
    main()
