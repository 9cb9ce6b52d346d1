"""Picture and table in docs/sparse.md: calibration where the only reward is 1, at success, which ends the episode.

python examples/sparse.py                                    # acc-x, seed 0, one thread
python examples/sparse.py --algos acc-x x-min x-mean         # with fixed pessimism beside it
"""

import argparse
import time
from pathlib import Path
from typing import Any

import altair as alt
import gymnasium as gym
import numpy as np

from acc_rl import RunSpec, train
from acc_rl.core.observations import Array
from acc_rl.runs.provenance import cpu_name
from acc_rl.store import records

STEPS, EVERY = 10_000, 500
RADIUS = 0.2
SHOWN = range(0, STEPS + 1, 2000)


class SparsePoint(gym.Env[Array, Array]):
    """A point at distance 0.5 moves by at most 0.05 per axis and step; within RADIUS of the origin: reward 1, end."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        angle = self.np_random.uniform(0, 2 * np.pi)
        self.place = 0.5 * np.array([np.cos(angle), np.sin(angle)])
        return self.place.astype(np.float32), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.place = np.clip(self.place + 0.05 * np.clip(action, -1, 1), -1, 1)
        there = bool(np.linalg.norm(self.place) < RADIUS)
        return self.place.astype(np.float32), float(there), there, False, {"success": there}


gym.register("SparsePoint-v0", SparsePoint, max_episode_steps=100)


def by_chance(episodes: int = 500) -> float:
    """Share of episodes in which random actions succeed"""
    env, successes = gym.make("SparsePoint-v0"), 0
    env.action_space.seed(0)
    for seed in range(episodes):
        env.reset(seed=seed)
        ended = False
        while not ended:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            ended = terminated or truncated
        successes += terminated
    return successes / episodes


def rows(algo: str, seed: int, out: Path) -> list[dict[str, Any]]:
    """Success and calibration at each evaluation"""
    run = {"steps": STEPS, "eval_every": EVERY, "log_every": EVERY, "eval_episodes": 20, "threads": 1}
    settings = {"learning_starts": 2000, "buffer_size": STEPS, "batch_size": 64, "pi": [64, 64], "qf": [64, 64]}
    folder = train(RunSpec("SparsePoint-v0", algo, seed=seed, settings=settings, **run), out)  # type: ignore[arg-type]
    logged = {row["step"]: row for row in records.read(folder / records.TRAINING)}
    evaluations = records.read(folder / records.EVALUATIONS)
    return [{"algo": algo, "seed": seed, **logged.get(each["step"], {}), **picked(each)} for each in evaluations]


def picked(evaluation: dict[str, Any]) -> dict[str, Any]:
    return {"step": evaluation["step"], "success": evaluation["success"], "length": np.mean(evaluation["lengths"])}


def table(found: list[dict[str, Any]]) -> str:
    lines = ["| algorithm | seed | env steps | success | steps of an episode | pessimism | gap | mean Q |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in found:
        if row["step"] in SHOWN:
            gap = f"{row['gap']:+.3f} +- {row['gap_error'] or np.nan:.3f}" if "gap" in row else ""
            values = [f"{row[name]:.2f}" if name in row else "" for name in ("pessimism", "mean_q")]
            parts = [row["algo"], row["seed"], row["step"], f"{100 * row['success']:.0f} %", f"{row['length']:.0f}"]
            lines.append("| " + " | ".join(map(str, [*parts, values[0], gap, values[1]])) + " |")
    return "\n".join(lines)


def draw(found: list[dict[str, Any]], path: Path) -> None:
    data = alt.Data(values=[{key: row.get(key) for key in ("algo", "seed", "step", *PANELS)} for row in found])
    panels = [
        alt.Chart(data, width=250, height=180)
        .mark_line()
        .encode(
            alt.X("step:Q", title="env steps"),
            alt.Y(f"{key}:Q", title=title),
            alt.Color("algo:N", title="algorithm"),
            alt.StrokeDash("seed:N"),
        )
        for key, title in PANELS.items()
    ]
    alt.hconcat(*panels).save(path, scale_factor=2)


PANELS = {"success": "success", "pessimism": "pessimism (1 - beta)", "gap": "gap: soft return - Q"}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algos", nargs="+", default=["acc-x"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    parser.add_argument("--picture", type=Path, default=Path("docs/sparse.png"))
    asked = parser.parse_args()
    found = [row for algo in asked.algos for seed in asked.seeds for row in rows(algo, seed, asked.out)]
    draw(found, asked.picture)
    print(f"Random actions succeed in {100 * by_chance():.0f} % of episodes.\n")
    print(table(found))
    command = f"python examples/sparse.py --algos {' '.join(asked.algos)} --seeds {' '.join(map(str, asked.seeds))}"
    print(f"\nMade by `{command}` on {time.strftime('%Y-%m-%d')}, {cpu_name()}, one thread; {STEPS} steps per run.")
