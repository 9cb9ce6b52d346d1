"""Attempts at the runs of a study: rows of one file, written by the supervisor alone.

One row says that an attempt was started, when and by which process, the next how it ended, when and at which step.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from acc_rl.store import records
from acc_rl.store.lock import LOCK, is_locked
from acc_rl.study.folder import ATTEMPTS, Study, last_step

How = Literal["finished", "stopped", "failed", "lost"]
"""lost: with its supervisor, or with the machine that it ran on"""
Identity = Mapping[str, Any]
"""host, pid and start_time of the process that trains, as far as they are known"""


@dataclass(frozen=True)
class End:
    how: How
    step: int
    error: tuple[str, ...] = ()
    """the last lines of its log, if it failed"""


@dataclass(frozen=True)
class Attempt:
    started: str
    worker: Identity
    end: End | None = None


def failed_attempts(ends: Sequence[End]) -> int:
    """Failures since one got further"""
    count, furthest = 0, -1
    for end in ends:
        if end.how == "failed":
            count = 1 if end.step > furthest else count + 1
            furthest = max(furthest, end.step)
    return count


class AttemptLog:
    """Writes the rows. Those that cannot be written now (a full disk) wait, with a warning that names the file."""

    def __init__(self, study: Study) -> None:
        path = study.folder / f"{ATTEMPTS}{study.part.suffix}.jsonl"
        if path.exists():  # a row that a crash has torn
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        self.rows = records.Rows(path)
        self.ends: defaultdict[str, list[End]] = defaultdict(list)
        """since this supervisor was started"""
        for run, tried in _read(path).items():
            if tried[-1].end is None:  # the supervisor before us was killed
                self.ended(run, tried[-1].worker, End("lost", last_step(study.folder / run)))

    def started(self, run: str, worker: Identity) -> None:
        self.rows.append({"run": run, "started": _now(), **worker})

    def ended(self, run: str, worker: Identity, end: End) -> None:
        self.ends[run].append(end)
        self.rows.append({"run": run, "ended": _now(), **worker, **asdict(end)})


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read_attempts(folder: Path) -> dict[str, list[Attempt]]:
    """All attempts at each run of a study, in order; those without an end whose supervisor is gone are lost"""
    found: defaultdict[str, list[Attempt]] = defaultdict(list)
    for path in folder.glob(f"{ATTEMPTS}*.jsonl"):
        supervised = is_locked(folder, LOCK + path.stem.removeprefix(ATTEMPTS))
        for run, tried in _read(path).items():
            if tried[-1].end is None and not supervised:
                tried[-1] = replace(tried[-1], end=End("lost", last_step(folder / run)))
            found[run] += tried
    return {run: sorted(tried, key=lambda each: each.started) for run, tried in found.items()}


def _read(path: Path) -> dict[str, list[Attempt]]:
    found: defaultdict[str, list[Attempt]] = defaultdict(list)
    for row in records.read(path):
        tried, worker = found[str(row.get("run"))], {key: row.get(key) for key in ("host", "pid", "start_time")}
        if "started" in row:
            tried.append(Attempt(str(row["started"]), worker))
        elif tried:
            end = End(row.get("how", "lost"), int(row.get("step", 0)), tuple(row.get("error", ())))
            tried[-1] = replace(tried[-1], worker=worker, end=end)
    return {run: tried for run, tried in found.items() if tried}
