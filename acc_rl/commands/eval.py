"""``acc eval``"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from acc_rl.runs.config import read_spec


@dataclass(frozen=True)
class Eval:
    """Evaluate the policy of a run with deterministic actions.

    example:
      acc eval runs/Hopper-v5_acc_seed0 --episodes 100
    """

    run_folder: tyro.conf.Positional[Path]
    """the run's folder"""
    episodes: int = 100
    """test episodes"""
    seed: int = 0
    """decides their starts"""

    def run(self) -> None:
        from acc_rl.inference.policy import load_policy
        from acc_rl.runs.evaluation import evaluate_task

        spec = read_spec(self.run_folder)
        row = evaluate_task(load_policy(self.run_folder), spec, self.episodes, self.seed)
        success = f", success {100 * row['success']:.0f} %" if "success" in row else ""
        print(
            f"{spec.env}: return {row['mean_return']:.1f} +- {row['std_return']:.1f} over {self.episodes} episodes "
            f"(smallest {min(row['returns']):.1f}, largest {max(row['returns']):.1f}){success}"
        )
