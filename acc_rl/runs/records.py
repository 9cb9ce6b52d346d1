"""What a run leaves on disk: append-only rows of JSON, one per line. No torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SPEC, PROVENANCE = "spec.json", "provenance.json"
EVALUATIONS, TRAINING, VALUE_ERROR = "evaluations.jsonl", "training.jsonl", "value_error.jsonl"
POLICY_WEIGHTS, POLICY = "policy.safetensors", "policy.json"
TENSORBOARD = "tensorboard"


class RecordError(ValueError):
    """A file that is not what it should be."""


def append(path: Path, row: Mapping[str, Any]) -> None:
    """One more row. A row is one write, so only the last one can be torn by a crash."""
    with path.open("ab") as file:
        file.write((json.dumps(_without_nan(row)) + "\n").encode())


def read(path: Path) -> list[dict[str, Any]]:
    """All whole rows; a torn last line is passed over, damage elsewhere is an error."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):  # no line end after it: the write was cut off
                break
            raise RecordError(f"{path}: line {number} is no JSON: {line[:60]!r}") from None
        if not isinstance(row, dict):
            raise RecordError(f"{path}: line {number} is no JSON object: {line[:60]!r}")
        rows.append(row)
    return rows


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """The whole file, or, after a crash, the old one."""
    aside = path.with_name(path.name + ".part")
    aside.write_text(json.dumps(_without_nan(content), indent=2) + "\n")
    aside.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise RecordError(f"{path}: {error.strerror if isinstance(error, OSError) else error}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{path}: is no JSON object")
    return content


def json_like(content: Mapping[str, Any]) -> Any:
    """As it would come back from a file"""
    return json.loads(json.dumps(_without_nan(content)))


def _without_nan(value: Any) -> Any:
    """JSON knows no NaN: what is no number becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(each) for each in value]
    return value
