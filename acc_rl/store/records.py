"""What a run leaves on disk: append-only rows of JSON, one per line. No torch."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acc_rl.store.files import DamagedFile, RecordError, read_plain, require_writable, write_whole

__all__ = ["DamagedFile", "RecordError", "Rows", "read", "read_json", "write_json"]

SPEC, PROVENANCE, STUDY = "spec.json", "provenance.json", "study.json"
EVALUATIONS, TRAINING, VALUE_ERROR = "evaluations.jsonl", "training.jsonl", "value_error.jsonl"
CLOCK, RESULT, CHECKPOINTS = "clock.jsonl", "result.json", "checkpoints"
POLICY_WEIGHTS, POLICY = "policy.safetensors", "policy.json"
TENSORBOARD, TRACEBACK, BEST = "tensorboard", "traceback.txt", "best"
RECORDS = (SPEC, PROVENANCE, RESULT, EVALUATIONS, TRAINING, VALUE_ERROR, CLOCK)
OWN = (*RECORDS, CHECKPOINTS, POLICY_WEIGHTS, POLICY, BEST, TENSORBOARD, TRACEBACK)
"""all that a run writes into its folder"""
LARGEST_JSON = 1 << 26
LARGEST_ROWS = 1 << 30
"""bytes of one file of rows"""


class Rows:
    """A file of rows that only grows. What cannot be written now (a full disk) waits and is tried again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        content = read_rows(path)
        self._size, self._hash = len(content), hashlib.sha256(content)
        self._waiting = b""
        self._warned = False

    def append(self, row: Mapping[str, Any]) -> None:
        """One more row. A row is one write, so only the last one can be torn by a crash."""
        self._waiting += (json.dumps(_without_nan(row)) + "\n").encode()
        try:
            self.flush()
            self._warned = False
        except OSError as error:
            if not self._warned:
                warnings.warn(f"{self.path}: {error.strerror}; its rows wait until they can be written", stacklevel=2)
            self._warned = True

    def flush(self, sync: bool = False) -> None:
        """Write what waits; with ``sync`` it is on the disk when this returns."""
        if not self._waiting and not (sync and self._size):
            return
        require_writable()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        try:
            if (size := os.fstat(descriptor).st_size) < self._size:
                raise RecordError(
                    f"{self.path}: has {size} bytes, but {self._size} were written: something else has truncated or "
                    "replaced it. Start the run again to resume from its last checkpoint"
                )
            while self._waiting:
                # at the place where it belongs, so that a part written by a failed try is written over
                written = os.pwrite(descriptor, self._waiting, self._size)
                self._hash.update(self._waiting[:written])
                self._size, self._waiting = self._size + written, self._waiting[written:]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def fingerprint(self) -> dict[str, Any]:
        """What ``cut`` needs to come back to the rows written so far"""
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}

    def cut(self, fingerprint: Mapping[str, Any]) -> None:
        """Remove the rows that were written later."""
        require_writable()
        content = read_rows(self.path)[: fingerprint["bytes"]]
        if hashlib.sha256(content).hexdigest() != fingerprint["sha256"]:
            warnings.warn(f"{self.path}: its rows are no longer those that were written", stacklevel=2)
        if self.path.exists():
            os.truncate(self.path, len(content))
        self.__init__(self.path)  # type: ignore[misc]


def read_rows(path: Path) -> bytes:
    """The content of a file of rows; empty if there is none"""
    return read_plain(path, LARGEST_ROWS) if os.path.lexists(path) else b""


def read(path: Path) -> list[dict[str, Any]]:
    """All whole rows; a torn last line is passed over, damage elsewhere is an error."""
    lines = read_rows(path).split(b"\n")
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):  # no line end after it: the write was cut off
                break
            raise RecordError(f"{path}: line {number} is not valid JSON: {line[:60]!r}") from None
        if not isinstance(row, dict):
            raise RecordError(f"{path}: line {number} is not a JSON object: {line[:60]!r}")
        rows.append(row)
    return rows


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """The whole file or, after a crash, the old one."""
    write_whole(path, (json.dumps(_without_nan(content), indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    text = read_plain(path, LARGEST_JSON)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{path}: is not a JSON object")
    return content


def json_like(content: Mapping[str, Any]) -> Any:
    """As it would come back from a file"""
    return json.loads(json.dumps(_without_nan(content)))


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: it becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(each) for each in value]
    return value
