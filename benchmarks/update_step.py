"""Milliseconds per training step against peers of the same sizes, and against the bare matrix products.

Contestants take turns, so that a slow moment of the machine hits each alike; the table gives medians and, in
brackets, the median of the ratios to ours within a turn.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import platform
import time
from collections.abc import Callable
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import gymnasium as gym
import numpy as np
import sb3_contrib
import torch as th
from gymnasium import spaces
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stable_baselines3.common.logger import Logger

import acc_rl

N_OBS, N_ACTIONS, BATCH, N_ATOMS = 17, 6, 256, 25
ACTOR, CRITIC = [256, 256], [512, 512, 512]
WARM_UP = 3  # turns that do not count
Step = Callable[[], object]
Maker = Callable[[int], Step]


class RandomEnv(gym.Env):
    """Shapes of HalfCheetah; only used to fill replay buffers."""

    observation_space = spaces.Box(-np.inf, np.inf, (N_OBS,), np.float64)
    action_space = spaces.Box(-1, 1, (N_ACTIONS,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(N_OBS), {}


def ready(model) -> Step:
    """One training step of an SB3 algorithm on a filled buffer."""
    rng = np.random.default_rng(0)
    for _ in range(5000):
        obs, next_obs = rng.normal(size=(2, 1, N_OBS))
        model.replay_buffer.add(
            obs, next_obs, rng.uniform(-1, 1, (1, N_ACTIONS)), rng.normal(size=1), np.zeros(1), [{}]
        )
    model.set_logger(Logger(None, []))
    model._setup_learn(1)
    return lambda: model.train(gradient_steps=1, batch_size=BATCH)


def ours(n_critics: int) -> Step:
    arch = {"pi": ACTOR, "qf": CRITIC}
    return ready(
        acc_rl.ACC(
            "MlpPolicy",
            RandomEnv(),
            n_critics=n_critics,
            n_atoms=N_ATOMS,
            buffer_size=10_000,
            policy_kwargs={"net_arch": arch},
            device="cpu",
        )
    )


def contrib(n_critics: int) -> Step:
    kwargs = {"n_critics": n_critics, "n_quantiles": N_ATOMS, "net_arch": {"pi": ACTOR, "qf": CRITIC}}
    return ready(sb3_contrib.TQC("MlpPolicy", RandomEnv(), buffer_size=10_000, policy_kwargs=kwargs, device="cpu"))


def products(sizes: list[int], n_nets: int, *, forward: int, to_weights: int, to_inputs: int, first: bool) -> Step:
    """The matrix products of ``forward`` and backward passes through nets of these sizes, and nothing else.

    ``first``: whether gradients go on to the inputs of the first layer.
    """
    calls: list[tuple[th.Tensor, th.Tensor, th.Tensor]] = []
    for layer, (n_in, n_out) in enumerate(pairwise(sizes)):
        for _ in range(n_nets):
            w, x, y = th.randn(n_out, n_in), th.randn(n_in, BATCH), th.randn(n_out, BATCH)
            calls += [(w, x, th.empty_like(y))] * forward
            calls += [(y, x.t(), th.empty_like(w))] * to_weights
            calls += [(w.t(), y, th.empty_like(x))] * (to_inputs - (layer == 0 and not first))

    def run() -> None:
        for a, b, out in calls:
            th.mm(a, b, out=out)

    return run


def floor(n_critics: int) -> Step:
    """Target: one forward pass. Critic update: forward and backward. Actor update: through critic and actor."""
    critic = [N_OBS + N_ACTIONS, *CRITIC, N_ATOMS]
    actor = [N_OBS, *ACTOR, 2 * N_ACTIONS]
    parts = [
        products(critic, n_critics, forward=2, to_weights=1, to_inputs=1, first=False),
        products(critic, n_critics, forward=1, to_weights=0, to_inputs=1, first=True),
        products(actor, 1, forward=2, to_weights=1, to_inputs=1, first=False),
    ]
    return lambda: [part() for part in parts]


def contestant(make: Maker, size: int, threads: int, pipe: Connection) -> None:
    """A process of its own, so that nobody's memory and threads get in another's way."""
    th.set_num_threads(threads)
    step = make(size)
    while repeats := pipe.recv():
        start = time.perf_counter()
        for _ in range(repeats):
            step()
        pipe.send((time.perf_counter() - start) / repeats * 1e3)


def take_turns(makers: dict[str, Maker], size: int, args: argparse.Namespace) -> dict[str, list[float]]:
    """ms per step of each contestant, one list entry per turn"""
    context = mp.get_context("spawn")
    pipes: dict[str, Connection] = {}
    for name, make in makers.items():
        pipes[name], theirs = context.Pipe()
        context.Process(target=contestant, args=(make, size, args.threads, theirs), daemon=True).start()
    times: dict[str, list[float]] = {name: [] for name in makers}
    for turn in track(range(-WARM_UP, args.turns), f"N={size}", transient=True):
        for name, pipe in pipes.items():
            pipe.send(args.repeats)
            elapsed = pipe.recv()
            if turn >= 0:
                times[name].append(elapsed)
    for pipe in pipes.values():
        pipe.send(0)
    return times


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=25, help="measurements per contestant")
    parser.add_argument("--repeats", type=int, default=4, help="training steps per measurement")
    parser.add_argument("--threads", type=int, default=th.get_num_threads(), help="threads for torch")
    args = parser.parse_args()

    makers = {"ours (ACC)": ours, "sb3-contrib TQC": contrib, "matrix products alone": floor}
    table = Table(title=f"ms per training step: critics {CRITIC}, {N_ATOMS} atoms, batch {BATCH}")
    table.add_column("")
    rows: dict[str, list[str]] = {name: [] for name in makers}
    for n_critics in (5, 2):
        table.add_column(f"N={n_critics}", justify="right")
        times = take_turns(makers, n_critics, args)
        own = times["ours (ACC)"]
        for name, values in times.items():
            ratio = median(v / o for v, o in zip(values, own, strict=True))
            rows[name].append(f"{median(values):.1f} ({ratio:.2f}x)")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    console = Console()
    console.print(table)
    console.print(
        f"{time.strftime('%Y-%m-%d')}, {cpu_name()}, {args.threads} threads, "
        f"torch {th.__version__}, sb3-contrib {sb3_contrib.__version__}; {args.turns} turns of {args.repeats} steps"
    )


if __name__ == "__main__":
    main()
