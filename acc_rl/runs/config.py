"""Specs and settings from files. No torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from acc_rl.runs import records
from acc_rl.runs.spec import RunSpec, from_dict


def read_spec(folder: Path) -> RunSpec:
    """What the run in that folder is"""
    content = records.read_json(folder / records.SPEC)
    content.pop("resolved", None)
    return from_dict(content)


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
