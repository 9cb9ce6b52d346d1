"""``acc eval``"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from acc_rl.commands.parsing import check_seed
from acc_rl.core.errors import AccError
from acc_rl.runs.config import discount, read_spec
from acc_rl.store.records import BEST


@dataclass(frozen=True)
class Eval:
    """Evaluate the policies of runs: mean and spread of the returns of test episodes.

    examples:
      acc eval runs/Hopper-v5_acc_seed0 --episodes 100
      acc eval runs/Hopper-v5_* --best
      acc eval runs/Hopper-v5_acc_seed0 --json
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """folders of runs; of several, a table is made"""
    episodes: int = 100
    """test episodes"""
    seed: int = 0
    """decides their starts, and the actions of --stochastic"""
    horizon: int | None = None
    """for tasks that never end: steps after which they are cut (default: the run's)"""
    best: bool = False
    """the policy of the best evaluation instead of the last one"""
    stochastic: bool = False
    """actions as the policy draws them, not its deterministic ones"""
    json: bool = False
    """as JSON, for programs"""

    def run(self) -> None:
        if not self.runs:
            raise AccError("RUN is missing: name the folder of a run, or several; see acc eval --help")
        check_seed(self.seed)
        # RUN* finds the pictures of acc diagnose, too
        rows = [self._evaluated(each) for each in self.runs if len(self.runs) == 1 or not each.is_file()]
        if not rows:
            raise AccError(f"{', '.join(map(str, self.runs))}: none is the folder of a run")
        if self.json:
            print(json.dumps(rows, indent=2))
        elif len(rows) == 1:
            print(_sentence(rows[0]))
        else:
            _print_table(rows)

    def _evaluated(self, folder: Path) -> dict[str, Any]:
        from acc_rl.inference.policy import load_policy
        from acc_rl.runs.evaluation import evaluate_task

        spec = read_spec(folder)
        horizon = spec.horizon if self.horizon is None else self.horizon
        gamma = None if horizon is None else discount(folder)
        policy = load_policy(folder / BEST if self.best else folder)
        act = policy.drawn(self.seed) if self.stochastic else policy
        row = evaluate_task(act, spec, self.episodes, self.seed, horizon, gamma)
        cut = {} if horizon is None else {"horizon": horizon, "gamma": gamma}
        return {"run": str(folder), "env": spec.env, "algo": spec.algo, **cut, **row}


def _sentence(row: dict[str, Any]) -> str:
    success = f", success {100 * row['success']:.0f} %" if "success" in row else ""
    sentence = (
        f"{row['env']}: return {row['mean_return']:.1f} +- {row['std_return']:.1f} over {len(row['returns'])} episodes "
        f"(smallest {min(row['returns']):.1f}, largest {max(row['returns']):.1f}){success}"
    )
    if "horizon" not in row:
        return sentence
    return (
        f"{sentence}\ncut after {row['horizon']} steps: {row['mean_reward']:.4g} per step on average, "
        f"discounted by {row['gamma']:g}: {row['mean_discounted']:.4g}"
    )


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("run", "return", "std", "smallest", "largest", "steps", "success")
    for row in rows:
        numbers = (row["mean_return"], row["std_return"], min(row["returns"]), max(row["returns"]))
        length = sum(row["lengths"]) / len(row["lengths"])
        success = f"{100 * row['success']:.0f} %" if "success" in row else "-"
        table.add_row(Path(row["run"]).name, *(f"{each:.1f}" for each in numbers), f"{length:.0f}", success)
    Console(soft_wrap=True, markup=False).print(table)
