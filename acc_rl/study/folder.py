"""A study on disk: ``study.json`` names its runs, each has a folder of its own."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from acc_rl.core.errors import AccError
from acc_rl.runs.config import finished, read_spec
from acc_rl.runs.folder import run_folder
from acc_rl.runs.spec import RunSpec, from_dict
from acc_rl.store import records
from acc_rl.store.files import PART
from acc_rl.store.lock import LOCK, exclusive, is_locked

ATTEMPTS, LOGS = "attempts", "logs"
OPENING = ".lock-study.json"
"""held while study.json is read and written"""
PATIENCE = 60.0
"""seconds to wait for it: all jobs of an array may start at once"""

T = TypeVar("T")


class StudyError(AccError):
    """The folder holds something else, or is in use."""


@dataclass(frozen=True)
class Part:
    """Every ``of``-th run from the ``number``-th on: parts have no run in common, and together they have all."""

    number: int = 1
    of: int = 1

    @staticmethod
    def parse(text: str) -> Part:
        found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        part = Part(int(found[1]), int(found[2])) if found else Part(0)
        if not 1 <= part.number <= part.of:
            raise AccError(f"part is {text!r}, but must be K/N with 1 <= K <= N, such as 3/16")
        return part

    @property
    def suffix(self) -> str:
        """Of the files that belong to this part alone"""
        return "" if self.of == 1 else f"-{self.number}-of-{self.of}"

    def select(self, runs: Sequence[T]) -> Sequence[T]:
        return runs[self.number - 1 :: self.of]


WHOLE = Part()


@dataclass(frozen=True)
class Study:
    folder: Path
    name: str
    source: str
    scale: float
    runs: tuple[RunSpec, ...]
    part: Part = WHOLE

    def finished(self, spec: RunSpec) -> bool:
        return finished(self.folder / spec.name, spec)

    def log(self, spec: RunSpec) -> Path:
        return self.folder / LOGS / f"{spec.name}.log"


@contextmanager
def supervised(folder: Path, part: Part = WHOLE) -> Iterator[None]:
    """Be the one supervisor of this part; StudyError while there is another one, or one of another division."""
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder, LOCK + part.suffix) as free:
        # after taking ours: of two that start at the same time, at least one sees the other
        others = [LOCK, *(path.name for path in folder.glob(f"{LOCK}-*-of-*"))]
        overlapping = [each for each in others if _of(each) != part.of and is_locked(folder, each)]
        if overlapping or not free:
            named = overlapping[0] if overlapping else LOCK + part.suffix
            raise StudyError(f"another acc study is at work in {folder} (it holds {named}): wait for it, or end it")
        yield


def _of(lock: str) -> int:
    return int(lock.rpartition("-")[2]) if lock != LOCK else 1


def open_study(folder: Path, name: str, source: str, scale: float, specs: Sequence[RunSpec]) -> Study:
    """The study of these runs; those that the folder has already stay in it, with the settings they have."""
    (folder / LOGS).mkdir(parents=True, exist_ok=True)
    with exclusive(folder, OPENING, PATIENCE) as free:
        if not free:
            raise StudyError(f"{folder / OPENING} has been held for {PATIENCE:g} s: end the process that holds it")
        there = read_study(folder) if (folder / records.STUDY).exists() else None
        known = {spec.name: spec for spec in there.runs} if there else {}
        for spec in specs:
            _require_same(folder, known.get(spec.name, spec), spec)
            run_folder(folder, spec)
        added = [spec for spec in specs if spec.name not in known]
        if there is None or added:
            content = (
                records.read_json(folder / records.STUDY) if there else {"name": name, "source": source, "scale": scale}
            )
            content.setdefault("created", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
            content["runs"] = [spec.as_dict() for spec in [*known.values(), *added]]
            # a name of our own: not every shared file system has locks between machines
            aside = folder / f"{PART}-{socket.gethostname()}-{os.getpid()}-{records.STUDY}"
            records.write_json(aside, content)
            os.replace(aside, folder / records.STUDY)
    return Study(folder, name, source, scale, tuple(specs))


def _require_same(folder: Path, there: RunSpec, wanted: RunSpec) -> None:
    old, new = there.as_dict(), wanted.as_dict()
    differ = [f"{key}: {old[key]} there, {new[key]} now" for key in new if old[key] != new[key]]
    if differ:
        raise StudyError(f"{folder} has {wanted.name} with other settings ({'; '.join(differ)}): use another --out")


def read_study(folder: Path) -> Study:
    """What the folder says; run folders without study.json are a study too."""
    if (folder / records.STUDY).exists():
        content = records.read_json(folder / records.STUDY)
        runs = content.get("runs")
        if not isinstance(runs, list):
            raise records.RecordError(f"{folder / records.STUDY}: runs must be a list")
        specs = [from_dict(each) for each in runs]
        return Study(
            folder, str(content.get("name")), str(content.get("source")), content.get("scale", 1), tuple(specs)
        )
    if not folder.is_dir():
        raise StudyError(f"{folder} is not a directory")
    found = [read_spec(path.parent) for path in sorted(folder.glob(f"*/{records.SPEC}"))]
    if not found:
        raise StudyError(f"{folder} holds no study: neither {records.STUDY} nor run folders")
    return Study(folder, folder.name, str(folder), 1.0, tuple(found))


def last_step(folder: Path) -> int:
    return max(int(last_row(folder / name).get("step", 0)) for name in (records.TRAINING, records.EVALUATIONS))


def last_row(path: Path, span: int = 65536) -> dict[str, Any]:
    """The last whole row, without reading all of a long file; {} if there is none"""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):  # a pipe would hang, a device never end
            return {}
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - span))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    for line in reversed(lines[:-1]):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            return row
    return {}
