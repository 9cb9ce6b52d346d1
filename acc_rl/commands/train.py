"""``acc train``"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from acc_rl.algos.registry import REGISTRY
from acc_rl.commands.parsing import confirm, one_line, seconds, with_values
from acc_rl.runs.config import read_toml
from acc_rl.runs.spec import RunSpec, Settings, from_dict

TRAIN_EXAMPLES = """Train one run; results go into a folder of their own.

examples:
  acc train Hopper                                    ACC with the paper's settings on Hopper-v5
  acc train HalfCheetah --algo acc-n2 --steps 1e5     two critics, 100,000 steps
  acc train Ant --critic-updates 4 --seed 3           four critic updates per env step
  acc train Pendulum-v1 --steps 1e4 --pi 64 64 --qf 64 64 --learning-starts 500 --bias.start-step 1000
  acc train --config run.toml --seed 7                settings from a file, the seed from here

defaults of an algorithm: acc train --algo acc-x --help

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
    time: str | None = None
    """2h, 90m, 45s, 1d: then the run stops with a checkpoint, and the same command resumes it"""
    estimate: bool = True
    """measure for a few seconds, on a copy that is thrown away, how long the run will take"""
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
            seconds=None if self.time is None else seconds(self.time),
            estimate=self.estimate,
        )


def parse_train(arguments: Sequence[str]) -> Train:
    """A config file gives the defaults that flags override."""
    arguments = with_values(Settings, arguments)
    default: Any = tyro.MISSING_NONPROP
    if (path := _value(arguments, "--config")) is not None:
        default = Train(spec=from_dict({"env": tyro.MISSING, **read_toml(Path(path))}))
    about = TRAIN_EXAMPLES
    algo = _value(arguments, "--algo")
    if algo and {"-h", "--help"} & set(arguments):
        default = Train(spec=with_defaults(algo))
        about = f"The defaults below are those of {algo}. None: not a setting of it, or chosen by the task.\n\n{about}"
    command: Train = one_line(Train, "acc train", arguments, description=about, default=default)
    return command


def _value(arguments: Sequence[str], flag: str) -> str | None:
    """Of the last such flag, before anything is parsed"""
    found = None
    for word, after in zip_longest(arguments, arguments[1:], fillvalue=""):
        if word == flag or word.startswith(f"{flag}="):
            found = word.partition("=")[2] or after
    return found


def with_defaults(algo: str) -> RunSpec:
    """A run of the algorithm in which every setting is given as its class will use it"""
    from acc_rl.runs.model import default_settings

    settings, bias = default_settings(algo)
    return from_dict({"env": tyro.MISSING, "algo": algo, "settings": settings, "bias": bias})
