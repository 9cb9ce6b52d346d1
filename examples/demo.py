"""Train ACC on Pendulum-v1 for about two minutes, evaluate it and say where the results are."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import altair as alt
import gymnasium as gym
import numpy as np
import torch as th
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from acc_rl import ACC

ENV = "Pendulum-v1"


class ProgressBar(BaseCallback):
    """Return of the last episodes, dropped atoms d, beta and the current gap between returns and critic."""

    model: ACC

    def __init__(self, total: int, console: Console) -> None:
        super().__init__()
        self.total = total
        self.rows: list[dict[str, float]] = []
        self.bar = Progress(
            TextColumn(ENV),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
        )

    def _on_training_start(self) -> None:
        self.bar.start()
        self.task = self.bar.add_task("", total=self.total)

    def _on_step(self) -> bool:
        if self.num_timesteps % 50 == 0:
            self.bar.update(self.task, completed=self.num_timesteps, description=self.describe())
        for info in self.locals["infos"]:
            if "episode" in info:
                row = {"step": self.num_timesteps, "return": info["episode"]["r"], **dict(self.model.bias_metrics())}
                self.rows.append({key: float(value) for key, value in row.items()})
        return True

    def describe(self) -> str:
        metrics = dict(self.model.bias_metrics())
        episodes = [info["r"] for info in list(self.model.ep_info_buffer or [])[-10:]]
        parts = [f"return {np.mean(episodes):.0f}" if episodes else "first episode"]
        parts.append(f"d {metrics['dropped_per_net']:.2f} (beta {metrics['beta']:.2f})")
        parts.append(f"gap {metrics['gap']:+.1f}" if "gap" in metrics else "gap not measured yet")
        return "  ".join(parts)

    def _on_training_end(self) -> None:
        self.bar.update(self.task, completed=self.num_timesteps, description=self.describe())
        self.bar.stop()


def draw(rows: list[dict[str, float]], path: Path) -> None:
    """What an episode brought, how many atoms were dropped, and how far the critic was off, over the env steps."""
    titles = {
        "return": "return of the episode",
        "dropped_per_net": "d, dropped atoms per net",
        "gap": "gap: return - Q",
    }
    panels = [
        alt.Chart(alt.Data(values=[row for row in rows if key in row]), width=250, height=180)
        .mark_line()
        .encode(alt.X("step:Q", title="env steps"), alt.Y(f"{key}:Q", title=title))
        for key, title in titles.items()
    ]
    alt.hconcat(*panels, title=f"ACC on {ENV}").save(path, scale_factor=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="env steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the results")
    args = parser.parse_args()
    console = Console()

    th.set_num_threads(1)  # nets this small gain nothing from a second thread
    model = ACC(
        "MlpPolicy",
        ENV,
        seed=args.seed,
        # smaller and faster than the paper's, which are made for millions of steps
        n_critics=2,
        learning_rate=1e-3,
        learning_starts=500,
        buffer_size=args.steps,
        policy_kwargs={"net_arch": [64, 64]},
        bias={"start_step": 1000, "update_interval": 200},
        tensorboard_log=str(args.out),
        device="cpu",
    )
    start, bar = time.time(), ProgressBar(args.steps, console)
    try:
        model.learn(args.steps, callback=bar)
    except KeyboardInterrupt:
        bar.bar.stop()
        console.print(f"stopped at step {model.num_timesteps}: keeping what was learned so far")

    test_env = Monitor(gym.make(ENV))
    test_env.reset(seed=args.seed + 1)
    mean, std = evaluate_policy(model, test_env, n_eval_episodes=20)
    args.out.mkdir(parents=True, exist_ok=True)
    model.save(args.out / "model.zip")
    result = {
        "env": ENV,
        "steps": model.num_timesteps,
        "seed": args.seed,
        "seconds": round(time.time() - start, 1),
        "episodes": 20,
        "mean_return": float(mean),
        "std_return": float(std),
        **{f"bias_{name}": value for name, value in model.bias_metrics()},
    }
    draw(bar.rows, args.out / "curves.png")
    (args.out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    console.print(
        f"return {mean:.0f} +- {std:.0f} over 20 test episodes (random: about -1200, solved: above -250); results in "
        f"{args.out}/ (curves.png, model.zip, result.json); next: .venv/bin/tensorboard --logdir {args.out}",
        soft_wrap=True,
        highlight=False,
    )


if __name__ == "__main__":
    main()
