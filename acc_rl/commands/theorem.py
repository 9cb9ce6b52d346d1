"""``acc theorem``"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from acc_rl.commands.parsing import check_seed


@dataclass(frozen=True)
class Theorem:
    """Show when ACC's estimate is unbiased (Theorem 1), and what the rule does where the true values are known.

    Prints the bias of clip(mean of n returns, Q_min, Q_max), exact and simulated, with all assumptions and with one of
    them dropped; then lets Q-learning, double Q-learning and ACC walk through a small grid with noisy rewards. Writes
    theorem and tabular as png, svg, pdf and csv. See docs/theorem.md.

    examples:
      acc theorem
      acc theorem --returns 1 3 10 30 --repeats 1e6 --seed 1 --out figures
      acc theorem --walks 10 --steps 5e3
    """

    returns: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    """numbers of returns n that an estimate is made from"""
    repeats: int = 100_000
    """simulated estimates for each number"""
    walks: int = 100
    """seeds of the walk, for each algorithm"""
    steps: int = 20_000
    """env steps of the walk"""
    seed: int = 0
    """decides all random numbers"""
    out: Path = Path("theorem")
    """folder to write to"""

    def run(self) -> None:
        from rich.console import Console

        from acc_rl.theory.figures import demonstrate

        check_seed(self.seed)
        tables, paths = demonstrate(self.returns, self.repeats, self.walks, self.steps, self.seed, self.out)
        # a narrow terminal may wrap lines, but no number is cut off
        Console(width=200).print(*tables, sep="\n\n")
        print("written: " + " ".join(map(str, paths)))
