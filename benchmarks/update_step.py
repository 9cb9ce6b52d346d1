"""Milliseconds per training step against peers of the same sizes, and against the bare matrix products.

Contestants take turns, so that a slow moment of the machine hits each alike; the table gives medians and, in brackets,
the median of the ratios to ours within a turn.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
import sb3_contrib
import stable_baselines3 as sb3
import torch as th
from gymnasium import spaces
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stable_baselines3.common.logger import Logger

import acc_rl
from acc_rl.nn.products import product
from acc_rl.runs.provenance import cpu_name

N_OBS, N_ACTIONS, BATCH, N_ATOMS = 17, 6, 256, 25
QUANTILE_ARCH = {"pi": [256, 256], "qf": [512, 512, 512]}
WARM_UP = 3  # turns that do not count
Step = Callable[[], object]
Maker = Callable[[], Step]


class RandomEnv(gym.Env):
    """Shapes of HalfCheetah; only used to fill replay buffers."""

    observation_space = spaces.Box(-np.inf, np.inf, (N_OBS,), np.float64)
    action_space = spaces.Box(-1, 1, (N_ACTIONS,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(N_OBS), {}


def algorithm(cls: Any, **kwargs: Any) -> Step:
    """One training step of an SB3 algorithm on 5000 transitions in a buffer of the default size."""
    model = cls("MlpPolicy", RandomEnv(), device="cpu", **kwargs)
    rng = np.random.default_rng(0)
    for _ in range(5000):
        obs, next_obs = rng.normal(size=(2, 1, N_OBS))
        action = rng.uniform(-1, 1, (1, N_ACTIONS))
        model.replay_buffer.add(obs, next_obs, action, rng.normal(size=1), np.zeros(1), [{}])
    model.set_logger(Logger(None, []))
    model._setup_learn(1)
    return lambda: model.train(gradient_steps=1, batch_size=BATCH)


def ours_quantile(n_critics: int) -> Step:
    return algorithm(acc_rl.ACC, n_critics=n_critics, n_atoms=N_ATOMS, policy_kwargs={"net_arch": QUANTILE_ARCH})


def contrib_quantile(n_critics: int) -> Step:
    sizes = {"n_critics": n_critics, "n_quantiles": N_ATOMS, "net_arch": QUANTILE_ARCH}
    return algorithm(sb3_contrib.TQC, policy_kwargs=sizes)


def products(sizes: list[int], n_nets: int, *, forward: int, to_weights: int, to_inputs: int, first: bool) -> Step:
    """The matrix products of ``forward`` and backward passes through nets of these sizes, and nothing else.

    ``first``: whether gradients go on to the inputs of the first layer.
    """
    calls: list[tuple[th.Tensor, th.Tensor]] = []
    for layer, (n_in, n_out) in enumerate(pairwise(sizes)):
        for _ in range(n_nets):
            w, x, y = th.randn(n_out, n_in), th.randn(n_in, BATCH), th.randn(n_out, BATCH)
            calls += [(w, x)] * forward
            calls += [(y, x.t())] * to_weights
            calls += [(w.t(), y)] * (to_inputs - (layer == 0 and not first))

    def run() -> None:
        for a, b in calls:
            product(a, b)

    return run


def floor(
    critic: list[int],
    n_critics: int,
    n_outputs: int,
    actor: list[int],
    actor_outputs: int,
    *,
    delayed: bool = False,
    through: int | None = None,
) -> Step:
    """Target: one forward pass. Critic update: forward and backward. Actor update: through critics and actor.

    ``delayed``: the actor is updated in every second step. ``through``: so many critics alone, one in TD3.
    """
    critic_sizes, actor_sizes = [N_OBS + N_ACTIONS, *critic, n_outputs], [N_OBS, *actor, actor_outputs]
    critic_update = [
        products(critic_sizes, n_critics, forward=2, to_weights=1, to_inputs=1, first=False),
        products(actor_sizes, 1, forward=1, to_weights=0, to_inputs=0, first=True),
    ]
    actor_update = [
        products(critic_sizes, through or n_critics, forward=1, to_weights=0, to_inputs=1, first=True),
        products(actor_sizes, 1, forward=1, to_weights=1, to_inputs=1, first=False),
    ]
    plans = cycle([critic_update, critic_update + actor_update] if delayed else [critic_update + actor_update])
    return lambda: [part() for part in next(plans)]


# module-level functions: each runs in a process of its own
def acc_5() -> Step:
    return ours_quantile(5)


def acc_2() -> Step:
    return ours_quantile(2)


def tqc_5() -> Step:
    return contrib_quantile(5)


def tqc_2() -> Step:
    return contrib_quantile(2)


def floor_5() -> Step:
    return floor(QUANTILE_ARCH["qf"], 5, N_ATOMS, QUANTILE_ARCH["pi"], 2 * N_ACTIONS)


def floor_2() -> Step:
    return floor(QUANTILE_ARCH["qf"], 2, N_ATOMS, QUANTILE_ARCH["pi"], 2 * N_ACTIONS)


def our_sac() -> Step:
    return algorithm(acc_rl.SAC)


def sb3_sac() -> Step:
    return algorithm(sb3.SAC)


def floor_sac() -> Step:
    return floor([256, 256], 2, 1, [256, 256], 2 * N_ACTIONS)


def our_x() -> Step:
    return algorithm(acc_rl.ACCX)


def contrib_crossq() -> Step:
    return algorithm(sb3_contrib.CrossQ)


def floor_x() -> Step:
    return floor([256, 256], 2, 101, [256, 256], 2 * N_ACTIONS, delayed=True)


def our_td3() -> Step:
    return algorithm(acc_rl.TD3)


def sb3_td3() -> Step:
    return algorithm(sb3.TD3)


def floor_td3() -> Step:
    return floor([400, 300], 2, 1, [400, 300], N_ACTIONS, delayed=True, through=1)


CONTESTS: Mapping[str, Mapping[str, Maker]] = {
    "ACC, N=5 (peer: sb3-contrib TQC)": {"ours": acc_5, "peer": tqc_5, "floor": floor_5},
    "ACC, N=2 (peer: sb3-contrib TQC)": {"ours": acc_2, "peer": tqc_2, "floor": floor_2},
    "ACC-X (peer: sb3-contrib CrossQ)": {"ours": our_x, "peer": contrib_crossq, "floor": floor_x},
    "SAC (peer: SB3 SAC)": {"ours": our_sac, "peer": sb3_sac, "floor": floor_sac},
    "TD3 (peer: SB3 TD3)": {"ours": our_td3, "peer": sb3_td3, "floor": floor_td3},
}


MAKERS: Mapping[str, Maker] = {make.__name__: make for contest in CONTESTS.values() for make in contest.values()}
OURS = {"ACC N=5": "acc_5", "ACC N=2": "acc_2", "ACC-X": "our_x", "SAC": "our_sac", "TD3": "our_td3"}


def contestant(make: Maker, clock: Callable[[], float]) -> None:
    """A process of its own, so that nobody's memory and threads get in another's way: seconds in, ms per step out"""
    step = make()
    for line in sys.stdin:
        seconds = float(line)
        step()  # wake the threads and warm the caches
        steps, start = 0, clock()
        while (elapsed := clock() - start) < seconds:
            step()
            step()  # always even: TD3 and ACC-X update their actors in every second step
            steps += 2
        print(elapsed / steps * 1e3, flush=True)


def start(maker: str, threads: int, cpu_time: bool, tree: Path | None) -> subprocess.Popen[str]:
    """A contestant with the package of this environment, or of another source tree"""
    path = {} if tree is None else {"PYTHONPATH": str(tree)}
    command = [sys.executable, sys.argv[0], "--contestant", maker, "--threads", str(threads)]
    command += ["--cpu-time"] * cpu_time
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **path})


def take_turns(
    makers: Mapping[str, tuple[str, Path | None]], args: argparse.Namespace, threads: int, title: str
) -> dict[str, list[float]]:
    """ms per step of each contestant, one list entry per turn"""
    running = {name: start(maker, threads, args.cpu_time, tree) for name, (maker, tree) in makers.items()}
    times: dict[str, list[float]] = {name: [] for name in makers}
    for turn in track(range(-WARM_UP, args.turns), title, transient=True):
        for name, process in running.items():
            assert process.stdin is not None
            assert process.stdout is not None
            print(args.seconds, file=process.stdin, flush=True)
            elapsed = float(process.stdout.readline())
            if turn >= 0:
                times[name].append(elapsed)
    for process in running.values():
        process.communicate()
    return times


def ratio_to(reference: list[float], values: list[float]) -> float:
    return median(value / own for value, own in zip(values, reference, strict=True))


def peers(args: argparse.Namespace) -> Table:
    table = Table(title=f"ms per training step, batch {BATCH}, {N_OBS} observations, {N_ACTIONS} actions")
    for column in ("", "ours", "peer", "matrix products alone"):
        table.add_column(column, justify="right" if column else "left")
    for title, makers in CONTESTS.items():
        if args.only in title:
            named = {name: (make.__name__, None) for name, make in makers.items()}
            times = take_turns(named, args, args.threads, title)
            cells = (f"{median(each):.1f} ({ratio_to(times['ours'], each):.2f}x)" for each in times.values())
            table.add_row(title, *cells)
    return table


def against(args: argparse.Namespace) -> Table:
    """Ours against ours of an older commit, with one and two threads"""
    table = Table("", "threads", "now", f"at {args.against}", "now / then", title="ms per training step")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(Path(__file__).parent), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), args.against], check=True)
        try:
            for title, maker in OURS.items():
                for threads in (1,) if args.cpu_time else (1, 2):
                    if args.only in title:
                        times = take_turns({"now": (maker, None), "then": (maker, tree)}, args, threads, title)
                        now, then = times["now"], times["then"]
                        ratio = f"{ratio_to(then, now):.2f}"
                        table.add_row(title, str(threads), f"{median(now):.2f}", f"{median(then):.2f}", ratio)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20, help="measurements per contestant")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a measurement")
    parser.add_argument("--threads", type=int, default=th.get_num_threads(), help="threads for torch")
    parser.add_argument("--only", default="", help="run the contests whose name contains this")
    parser.add_argument("--against", metavar="COMMIT", help="compare with an older commit instead of with peers")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count the time that a process has run, with one thread"
    )
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contestant:
        th.set_num_threads(args.threads)
        contestant(MAKERS[args.contestant], time.process_time if args.cpu_time else time.perf_counter)
        return
    table = against(args) if args.against else peers(args)
    console = Console(width=120)
    console.print(table)
    threads = "1 and 2" if args.against else args.threads
    console.print(
        f"{time.strftime('%Y-%m-%d')}, {cpu_name()}, {threads} threads, torch {th.__version__}, "
        f"stable-baselines3 {sb3.__version__}, sb3-contrib {sb3_contrib.__version__}; "
        f"{args.turns} turns of {args.seconds} s"
    )


if __name__ == "__main__":
    main()
