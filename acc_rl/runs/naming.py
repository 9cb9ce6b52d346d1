"""The name of a run's folder. No torch."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acc_rl.core.settings import BiasSettings
    from acc_rl.runs.spec import RunSpec, Settings

LONG, READABLE, LONGEST = 60, 8, 150
"""a digest stands for differences of more than 60 characters, if they are more than 8 or the name has more than 150;
archives have room for 155"""
OLD_LONGEST = 250
"""what a name may have had before; a file system's names have 255"""


def folder_name(spec: RunSpec, readable: int, longest: int) -> str:
    """Task, algorithm, what differs from its defaults, seed"""
    settings = {**given(spec.settings), **{f"bias.{key}": value for key, value in given(spec.bias).items()}}
    told = [*_of_task(spec), *(f"{key}={_short(value)}" for key, value in settings.items())]
    differences = "_".join(told)
    parts = [spec.env.replace("/", "-"), spec.algo, differences, f"seed{spec.seed}"]
    if len(differences) > LONG and (len(told) > readable or len("_".join(parts).encode()) > longest):
        parts[2] = hashlib.sha256(differences.encode()).hexdigest()[:8]
    return "_".join(part for part in parts if part)


def _of_task(spec: RunSpec) -> list[str]:
    told = [f"env.{key}={_short(value)}" for key, value in spec.env_kwargs.items()]
    told += [f"{name}={each.rpartition(':')[2]}" for name in ("wrapper", "callback") for each in getattr(spec, name)]
    told += [f"time_limit={spec.time_limit}"] * (spec.time_limit is not None)
    told += ["normalize"] * spec.normalize
    return [re.sub(r"[^\w.=+-]", "-", each) for each in told]


def given(part: Settings | BiasSettings) -> dict[str, Any]:
    return {key: value for key, value in asdict(part).items() if value is not None}


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return "x".join(map(_short, value))
    return f"{value:g}" if isinstance(value, float) else str(value).replace("/", "-")
