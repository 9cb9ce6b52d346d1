"""Specs and settings from files. No torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acc_rl.runs.spec import RunSpec, from_dict
from acc_rl.store import records

MAY_CHANGE = ("steps", "threads")
"""settings of a run that may differ when it goes on"""


def read_spec(folder: Path) -> RunSpec:
    """What the run in that folder is"""
    content = records.read_json(folder / records.SPEC)
    content.pop("resolved", None)
    return from_dict(content)


def differences(there: Mapping[str, Any], spec: RunSpec) -> list[str]:
    """The settings in which a run's spec.json says something else, but for those that may change when it goes on"""
    wanted = records.json_like(spec.as_dict())
    return [key for key in wanted if key not in MAY_CHANGE and wanted[key] != there.get(key)]


def finished(folder: Path, spec: RunSpec) -> bool:
    """Whether the folder holds all of this run"""
    try:
        there, result = records.read_json(folder / records.SPEC), records.read_json(folder / records.RESULT)
    except records.RecordError:
        return False
    return not differences(there, spec) and there.get("steps") == spec.steps and result.get("step", 0) >= spec.steps


def read_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"config {path}: {error}") from None
