"""Specs and settings from files. No torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acc_rl.core.checks import is_number
from acc_rl.core.errors import AccError
from acc_rl.runs.spec import PARTS, RunSpec, from_dict
from acc_rl.store import records
from acc_rl.store.files import DamagedFile, read_plain

LARGEST_TOML = 1 << 20
MAY_CHANGE = ("steps", "threads", "vec", "stop_at")
"""settings of a run that may differ when it resumes"""


def read_spec(folder: Path) -> RunSpec:
    """What the run in that folder is"""
    content = records.read_json(folder / records.SPEC)
    content.pop("resolved", None)
    try:
        return from_dict(content)
    except ValueError as error:
        raise records.RecordError(f"{folder / records.SPEC}: {error}") from None


def discount(folder: Path) -> float:
    """gamma of the run in that folder"""
    resolved = records.read_json(folder / records.SPEC).get("resolved")
    gamma: Any = resolved.get("gamma") if isinstance(resolved, dict) else None
    if not (is_number(gamma) and 0 <= gamma <= 1):
        raise records.RecordError(
            f"{folder / records.SPEC}: resolved.gamma is {gamma!r}, but must be a number in [0, 1]"
        )
    return float(gamma)


def identity(content: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a run, of its spec as JSON: all settings but those that may change when it resumes.

    What is not given is at its default, so a setting that is added later changes no run.
    """
    default = {**records.json_like(RunSpec("Hopper-v5").as_dict()), "env": None}
    present = {key: content.get(key, value) for key, value in default.items() if key not in MAY_CHANGE}
    return {key: _given(value) if key in PARTS else value for key, value in present.items()}


def _given(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if value is not None}


def differences(there: Mapping[str, Any], spec: RunSpec) -> list[str]:
    """The settings in which ``there``, a spec as JSON, is another run than ``spec``; none if it is the same run"""
    wanted, found = identity(records.json_like(spec.as_dict())), identity(there)
    return [key for key in wanted if wanted[key] != found[key]]


def finished(folder: Path, spec: RunSpec) -> bool:
    """Whether the folder holds all of this run"""
    try:
        there, result = records.read_json(folder / records.SPEC), records.read_json(folder / records.RESULT)
    except records.RecordError:
        return False
    ended = result.get("ended_by") == "callback" and bool(spec.callback)
    done = ended or result.get("step", 0) >= spec.steps or has_reached(spec, result.get("evaluation"))
    return not differences(there, spec) and there.get("steps") == spec.steps and done


def has_reached(spec: RunSpec, evaluation: Any) -> bool:
    """Whether an evaluation, as a row of its file, is as good as the run is asked to become"""
    mean = evaluation.get("mean_return") if isinstance(evaluation, Mapping) else None
    return mean is not None and spec.stop_at is not None and is_number(mean) and bool(mean >= spec.stop_at)


def read_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(read_plain(path, LARGEST_TOML, follow=True).decode())
    except DamagedFile as error:
        raise AccError(f"config {error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AccError(f"config {path}: {error}") from None
