"""``acc train``"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from acc_rl.algos.registry import REGISTRY
from acc_rl.commands.parsing import confirm, whole_numbers
from acc_rl.runs.config import read_toml
from acc_rl.runs.spec import RunSpec, from_dict

TRAIN_EXAMPLES = """Train one run; results go into a folder of their own.

examples:
  acc train Hopper                                    ACC with the paper's settings on Hopper-v5
  acc train HalfCheetah --algo acc-n2 --steps 1e5     two critics, 100,000 steps
  acc train Ant --critic-updates 4 --seed 3           four critic updates per env step
  acc train Pendulum-v1 --steps 1e4 --pi 64 64 --qf 64 64 --learning-starts 500 --bias.start-step 1000
  acc train --config run.toml --seed 7                settings from a file, the seed from here

algorithms:
""" + "\n".join(f"  {name:<11} {entry.about}" for name, entry in REGISTRY.items())


@dataclass(frozen=True)
class Train:
    spec: Annotated[RunSpec, tyro.conf.arg(name="")]
    out: Path = Path("runs")
    """folder for the run's folder"""
    config: Path | None = None
    """TOML file with settings by their names; flags come before it"""
    checkpoint_every: int = 10_000
    """env steps between two checkpoints; a run that was stopped or killed resumes from the last one"""
    on_fault: Literal["stop", "warn"] = "stop"
    """what to do when the env returns NaN or infinity, or Q explodes"""
    restart: bool = False
    """start over if the run's folder exists: what is in it is removed"""
    yes: bool = False
    """do not ask before removing"""

    def run(self) -> None:
        from acc_rl.runs.train import train

        folder = self.out / self.spec.name
        if self.restart and folder.exists() and not self.yes:
            confirm(f"remove {folder} and all that is in it?")
        train(
            self.spec,
            self.out,
            restart=self.restart,
            checkpoint_every=self.checkpoint_every,
            on_fault=self.on_fault,
        )


def parse_train(arguments: Sequence[str]) -> Train:
    """A config file gives the defaults that flags override."""
    default: Any = tyro.MISSING_NONPROP
    for i, word in enumerate(arguments):
        if word == "--config" or word.startswith("--config="):
            path = Path(word.partition("=")[2] or "".join(arguments[i + 1 : i + 2]))
            default = Train(spec=from_dict({"env": tyro.MISSING, **read_toml(path)}))
    command: Train = tyro.cli(
        Train,
        prog="acc train",
        description=TRAIN_EXAMPLES,
        args=list(arguments),
        registry=whole_numbers(),
        default=default,
    )
    return command
