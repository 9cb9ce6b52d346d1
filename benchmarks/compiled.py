"""Does torch.compile pay on small nets? Training steps of ours, plain ones that it compiles, and those uncompiled.

The plain steps are autograd on stacked weights: SAC, and the categorical learner that acc-x is, without observation
normalisation and reward scaling, whose losses are one compiled function each. Optimizers are torch's fused ones in
all of them. Needs a C++ compiler.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from itertools import count, pairwise
from statistics import median
from typing import Any

import numpy as np
import torch as th
import torch.nn.functional as F
import update_step
from rich.console import Console
from rich.table import Table
from torch import Tensor
from update_step import BATCH, N_ACTIONS, N_OBS, Step

from acc_rl.runs.provenance import cpu_name

GAMMA, TAU, BOUND, N_STORED = 0.99, 0.005, 5.0, 5000


def stacked(n_nets: int, *sizes: int) -> list[Tensor]:
    """Weights (n_nets, in, out) and biases (n_nets, 1, out)"""
    parameters = []
    for n_in, n_out in pairwise(sizes):
        shapes = (n_nets, n_in, n_out), (n_nets, 1, n_out)
        parameters += [th.empty(shape).uniform_(-1, 1).div_(math.sqrt(n_in)).requires_grad_() for shape in shapes]
    return parameters


def forward(x: Tensor, parameters: list[Tensor]) -> Tensor:
    h = x.expand(len(parameters[0]), *x.shape)
    for i, (weight, bias) in enumerate(zip(parameters[::2], parameters[1::2], strict=True)):
        h = th.baddbmm(bias, F.relu(h) if i else h, weight)
    return h


def plain_step(n_atoms: int, policy_delay: int, wrap: Callable[[Any], Any]) -> Step:
    """One training step of a soft actor-critic; ``n_atoms`` 1: SAC, otherwise categorical critics"""
    critic, actor = stacked(2, N_OBS + N_ACTIONS, 256, 256, n_atoms), stacked(1, N_OBS, 256, 256, 2 * N_ACTIONS)
    target = [each.detach().clone() for each in critic]
    log_alpha = th.zeros(1, requires_grad=True)
    optimizers = [th.optim.Adam(each, 1e-3, fused=True) for each in (critic, actor, [log_alpha])]
    support = th.linspace(-BOUND, BOUND, n_atoms)

    def act(obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = forward(obs, actor)[0].chunk(2, dim=-1)
        log_std = log_std.clamp(-20, 2)
        raw = mean + log_std.exp() * noise
        log_prob = -0.5 * noise.square() - log_std - 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        return raw.tanh(), log_prob.sum(-1) - 0.5 * N_ACTIONS * math.log(2 * math.pi)

    def project(p: Tensor, atoms: Tensor) -> Tensor:
        place = (atoms.clamp(-BOUND, BOUND) + BOUND) * ((n_atoms - 1) / (2 * BOUND))
        below = place.floor().clamp(max=n_atoms - 2)
        share, index = place - below, below.long()
        return th.zeros_like(p).scatter_add(1, index, p * (1 - share)).scatter_add(1, index + 1, p * share)

    def critic_loss(obs: Tensor, actions: Tensor, rewards: Tensor, next_obs: Tensor, noise: Tensor) -> Tensor:
        with th.no_grad():
            next_actions, log_prob = act(next_obs, noise)
            z = forward(th.cat([next_obs, next_actions], -1), target)
            bonus = -log_alpha.exp() * log_prob[:, None]
            if n_atoms == 1:
                y = rewards + GAMMA * (z.amin(0) + bonus)
            else:
                p = z.softmax(-1)
                smaller = (p * support).sum(-1).argmin(0)
                p = th.lerp(th.where((smaller == 0)[:, None], p[0], p[1]), p.mean(0), 0.5)
                y = project(p, rewards + GAMMA * (support + bonus))
        z = forward(th.cat([obs, actions], -1), critic)
        return (z - y).square().mean() if n_atoms == 1 else -(y * z.log_softmax(-1)).sum(-1).mean(1).sum()

    def actor_loss(obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        actions, log_prob = act(obs, noise)
        z = forward(th.cat([obs, actions], -1), [each.detach() for each in critic])
        values = z.amin(0)[:, 0] if n_atoms == 1 else (z.softmax(-1) * support).sum(-1).mean(0)
        return (log_alpha.detach().exp() * log_prob - values).mean(), log_prob.detach().mean()

    losses, turns, rng = (wrap(critic_loss), wrap(actor_loss)), count(1), np.random.default_rng(0)
    stored = [rng.normal(size=(N_STORED, n)).astype(np.float32) for n in (N_OBS, N_ACTIONS, 1, N_OBS)]

    def descend(optimizer: th.optim.Optimizer, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def step() -> None:
        rows = rng.integers(0, N_STORED, BATCH)
        obs, actions, rewards, next_obs = (th.from_numpy(each[rows]) for each in stored)
        descend(optimizers[0], losses[0](obs, actions, rewards, next_obs, th.randn(BATCH, N_ACTIONS)))
        with th.no_grad():
            th._foreach_lerp_(target, critic, TAU)
        if next(turns) % policy_delay == 0:
            loss, log_prob = losses[1](obs, th.randn(BATCH, N_ACTIONS))
            descend(optimizers[1], loss)
            descend(optimizers[2], -log_alpha * (log_prob - N_ACTIONS))

    return step


def uncompiled(function: Any) -> Any:
    return function


CONTESTS: dict[str, dict[str, Callable[[], Step]]] = {
    "SAC": {
        "ours": update_step.our_sac,
        "compiled": lambda: plain_step(1, 1, th.compile),
        "plain": lambda: plain_step(1, 1, uncompiled),
    },
    "ACC-X": {
        "ours": update_step.our_x,
        "compiled": lambda: plain_step(101, 2, th.compile),
        "plain": lambda: plain_step(101, 2, uncompiled),
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20, help="measurements per contestant")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a measurement")
    parser.add_argument("--threads", type=int, default=1, help="threads for torch")
    parser.add_argument("--cpu-time", action="store_true", help="count the time that a process has run")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contestant:
        th.set_num_threads(args.threads)
        contest, name = args.contestant.split("/")
        clock = time.process_time if args.cpu_time else time.perf_counter
        update_step.contestant(CONTESTS[contest][name], clock)
        return
    table = Table("", "ours", "compiled", "plain", title=f"ms per training step, batch {BATCH}, {args.threads} threads")
    for contest, makers in CONTESTS.items():
        named = {name: (f"{contest}/{name}", None) for name in makers}
        times = update_step.take_turns(named, args, args.threads, contest)
        cells = (f"{median(each):.2f} ({update_step.ratio_to(times['ours'], each):.2f}x)" for each in times.values())
        table.add_row(contest, *cells)
    console = Console(width=120)
    console.print(table)
    console.print(f"{time.strftime('%Y-%m-%d')}, {cpu_name()}, torch {th.__version__}; {args.turns} turns")


if __name__ == "__main__":
    main()
