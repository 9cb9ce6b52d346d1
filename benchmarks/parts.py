"""What each part of acc-x costs: a training step with the part taken away, exchanged or put in. One thread.

The variants take turns, so that a slow moment of the machine hits each alike; the table in docs/modern.md has medians,
and the median of the ratios to acc-x within a turn.
"""

import argparse
import time
from statistics import median

import torch as th
from update_step import WARM_UP, algorithm

from acc_rl import ACC, ACCX
from acc_rl.runs.provenance import cpu_name

SMALL = {"net_arch": {"pi": [256, 256], "qf": [256, 256]}}
QUANTILES = {"n_critics": 2, "learning_rate": 1e-3, "n_steps": 3, "policy_delay": 2, "normalize_observations": True}
VARIANTS = {
    "acc-x": (ACCX, {}),
    "one-step returns": (ACCX, {"n_steps": 1}),
    "actor with every update": (ACCX, {"policy_delay": 1}),
    "observations as they are": (ACCX, {"normalize_observations": False}),
    "rewards as they are": (ACCX, {"reward_scaling": False}),
    "25 quantiles instead of 101 categories": (ACC, {**QUANTILES, "reward_scaling": True, "policy_kwargs": SMALL}),
    "LayerNorm": (ACCX, {"policy_kwargs": {"nets": "layernorm"}}),
    "BatchNorm with a joint pass": (ACCX, {"policy_kwargs": {"nets": "batchnorm"}}),
    "SimBa's nets, 2 blocks of 128": (ACCX, {"policy_kwargs": {"nets": "simba", "net_arch": [128, 128]}}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20, help="training steps of each variant in a turn")
    options = parser.parse_args()
    th.set_num_threads(1)
    contestants = {name: algorithm(cls, **settings) for name, (cls, settings) in VARIANTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(WARM_UP + options.turns):
        for name, step in contestants.items():
            start = time.perf_counter()
            for _ in range(options.steps):
                step()
            if turn >= WARM_UP:
                seconds[name].append((time.perf_counter() - start) / options.steps)
    print("| | ms per training step | of acc-x's |\n|---|--:|--:|")
    for name, own in seconds.items():
        ratio = median(mine / first for mine, first in zip(own, seconds["acc-x"], strict=True))
        print(f"| {name} | {1000 * median(own):.2f} | {ratio:.2f} |")
    print(f"\n{time.strftime('%Y-%m-%d')}, {cpu_name()}, one thread, torch {th.__version__}; {options.turns} turns")


if __name__ == "__main__":
    main()
