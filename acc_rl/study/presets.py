"""The paper's experiments, and a small one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acc_rl.runs.tasks import METAWORLD
from acc_rl.study.grid import Grid

M = 1_000_000
GYM = {"HalfCheetah": 5 * M, "Walker2d": 5 * M, "Ant": 5 * M, "Humanoid": 10 * M, "Hopper": 3 * M, "Swimmer": 3 * M}
SHORT = {task: M // 2 if task in ("Hopper", "Swimmer") else M for task in GYM}
MT1 = (
    *("sweep", "stick-pull", "dial-turn", "door-open", "peg-insert-side", "push"),
    *("pick-out-of-hole", "push-wall", "faucet-open", "hammer", "stick-push", "soccer"),
)
SMALL: Mapping[str, Any] = {
    "settings": {
        **{"pi": [64, 64], "qf": [64, 64], "learning_rate": 1e-3, "batch_size": 64},
        **{"learning_starts": 500, "buffer_size": 20_000},
    },
    "bias": {"start_step": 1000, "update_interval": 200},
}


def _preset(name: str, tasks: Mapping[str, int], *algos: str, seeds: int = 10, **common: Any) -> Grid:
    variants = [{"algo": algo} for algo in algos]
    return Grid(name, tasks, variants, tuple(range(seeds)), {"eval_every": 1000, **common})


PRESETS: Mapping[str, tuple[str, Grid]] = {
    grid.name: (about, grid)
    for about, grid in (
        (
            "three cheap tasks with small nets, minutes",
            _preset(
                "quick",
                {"Pendulum-v1": 10_000, "InvertedPendulum-v5": 10_000, "Reacher-v5": 10_000},
                *("acc", "tqc", "sac", "td3"),
                seeds=2,
                **SMALL,
            ),
        ),
        ("ACC against SAC and TD3", _preset("gym", GYM, "acc", "sac", "td3")),
        ("ACC against fixed numbers of dropped atoms", _preset("fixed-d", GYM, "acc", "tqc-d0", "tqc-d2", "tqc-d5")),
        (
            "1, 2 and 4 critic updates per step",
            _preset("sample-efficient", SHORT, *(f"{a}{k}" for a in ("acc", "sac", "td3") for k in ("", "-2q", "-4q"))),
        ),
        (
            "the paper's claim in the small: a day on two cores",
            _preset(
                "compact",
                dict.fromkeys(("HalfCheetah", "Hopper", "Walker2d"), M // 10),
                *("acc-compact", "tqc-compact-d0", "tqc-compact-d2", "tqc-compact-d5"),
                seeds=2,
                eval_every=5000,
                threads=1,
            ),
        ),
        ("ACC on TD3", _preset("td3", dict.fromkeys(GYM, M), "td3", "acc-td3")),
        ("5 and 2 critics", _preset("critics", GYM, "acc", "acc-n2", "sac", "td3")),
        (
            "error of the value estimates",
            _preset("value-error", GYM, "acc", "tqc-d0", "tqc-d2", "tqc-d5", seeds=5),
        ),
        (
            "twelve tasks of Meta-World",
            _preset("metaworld", {f"{METAWORLD}{task}-v3": 3 * M for task in MT1}, "acc", "sac"),
        ),
    )
}
