"""Published returns, for comparison where the task is the same. Nothing here was measured by this project."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

UNCHANGED, VERSIONS = ("HalfCheetah",), ("v3", "v4", "v5")
"""tasks whose dynamics and rewards are the same in these versions. Ant and Humanoid changed their contact forces,
Walker2d its friction, and all of them and Hopper the reward of the last step; Swimmer did not change, but its published
rows use other discounts, which decide its result"""
OTHER_STATISTIC = "digitised"
"""in the source of rows that are means over the last 100,000 steps, read off a figure: not comparable"""


@dataclass(frozen=True)
class Published:
    """The mean return over seeds at an env step, from the literature."""

    algo: str
    env: str
    version: str
    step: int
    mean: float
    std: float | None
    seeds: int | None
    """None where the source does not tell"""
    source: str

    @property
    def about(self) -> str:
        seeds = {None: "mean over seeds", 1: "1 tuned run"}.get(self.seeds, f"{self.seeds} seeds")
        return f"{self.env}-{self.version}, {self.source}, {seeds}"


@cache
def everything() -> list[Published]:
    text = resources.files("acc_rl.report").joinpath("published_returns.csv").read_text(encoding="utf-8")
    return [
        Published(
            row["algo"],
            row["env"],
            row["env_version"],
            int(row["step"]),
            float(row["mean_return"]),
            float(row["std_over_seeds"]) if row["std_over_seeds"] else None,
            int(row["n_seeds"]) if row["n_seeds"].isdigit() else None,
            row["source"],
        )
        for row in csv.DictReader(text.splitlines())
    ]


def comparable(task: str, version: str, row: Published) -> bool:
    if row.env != task or OTHER_STATISTIC in row.source or task == "Swimmer":
        return False
    return row.version == version or (task in UNCHANGED and {row.version, version} <= set(VERSIONS))


def published(env_id: str, steps: int) -> list[Published]:
    """What is published for the task, of each source its latest step that is not after ``steps``"""
    match = re.fullmatch(r"(\w+)-(v\d+)", env_id)
    if not match:
        return []
    latest: dict[tuple[str, str, str], Published] = {}
    for row in everything():
        if comparable(match[1], match[2], row) and row.step <= steps:
            key = (row.algo, row.version, row.source)
            if key not in latest or latest[key].step < row.step:
                latest[key] = row
    return sorted(latest.values(), key=lambda row: (row.algo, row.source))
