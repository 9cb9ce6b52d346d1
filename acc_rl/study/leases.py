"""Who works on a run: files that several processes and machines agree by, without locks.

Each attempt at a run has a number. Attempt n is the file ``n.lease``, created exclusively, so that only one process
can begin it. Its lines name who began it and the worker, and its time of change moves while they live; ``n.end`` says
how it ended. The last attempt holds the run. Nothing is ever removed or renamed, so there is no moment at which two
could take over the same attempt, and who held the run and why it ended stays on record.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from acc_rl.store import records

BEAT = 3.0
"""seconds between two signs of life"""
LOST = 14.0
"""seconds without one after which the holder must not write any more"""
STALE = 20.0
"""seconds without one after which another may take over"""

Stale = tuple[str, tuple[int, int]]
How = Literal["finished", "stopped", "failed", "lost", "idle"]
"""lost: others took the run over, or nobody knows; idle: there was nothing left to do"""


def clock() -> float:
    """Seconds that go on while the machine sleeps"""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def host() -> str:
    """This machine since its last start, as far as process ids mean the same"""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with contextlib.suppress(OSError):
            parts.append(os.readlink(path) if path.endswith("pid") else Path(path).read_text().strip())
    return " ".join(parts)


def born(pid: int) -> int | None:
    """When that process began, in ticks: tells it from a later one with the same id; None if there is none"""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        try:  # a system without /proc: the id alone must do
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return 0
    return None if stat[0] in "ZX" else int(stat[19])


@dataclass(frozen=True)
class Process:
    host: str
    pid: int
    born: int | None

    @staticmethod
    def this() -> Process:
        return Process(host(), os.getpid(), born(os.getpid()))

    @property
    def here(self) -> bool:
        return self.host == host()

    @property
    def alive(self) -> bool:
        """Of a process on this machine"""
        return self.born is not None and born(self.pid) == self.born

    def kill(self) -> None:
        """Also if it is suspended: it cannot come back and write"""
        give_up = time.monotonic() + 10  # it waits in the kernel, and will end without another step of its own
        while self.here and self.alive and self.pid != os.getpid() and time.monotonic() < give_up:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            except PermissionError:
                return  # another user's: it will notice by itself that it has lost the run
            time.sleep(0.01)


@dataclass(frozen=True)
class Attempt:
    """One attempt as it is on disk."""

    path: Path
    processes: tuple[Process, ...]
    """who began it, then its workers"""
    sign: tuple[int, int]
    """of life: it changes as long as the holder lives"""
    end: Mapping[str, Any] | None

    @property
    def number(self) -> int:
        return int(self.path.stem)

    @property
    def dead(self) -> bool:
        """Ended, or known to be without processes"""
        gone = bool(self.processes) and all(each.here and not each.alive for each in self.processes)
        return self.end is not None or gone

    @property
    def age(self) -> float:
        """Seconds since the last sign of life by the file system's time; for people, not for decisions"""
        with contextlib.suppress(OSError):
            return max(0.0, time.time() - self.path.stat().st_mtime)
        return 0.0

    @property
    def stale(self) -> Stale:
        """What another watch needs to know it by"""
        return self.path.name, self.sign

    @property
    def running(self) -> bool:
        return not self.dead and self.age < STALE


def attempts(folder: Path) -> list[Attempt]:
    """All attempts at a run, in order"""
    names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    return [_read(folder / name) for name in names if name.endswith(".lease")]


def last(folder: Path) -> Attempt | None:
    names = [each.name for each in folder.iterdir() if each.name.endswith(".lease")] if folder.is_dir() else []
    return _read(folder / max(names)) if names else None


def _read(path: Path) -> Attempt:
    # opened anew each time, which makes a network file system ask its server
    with path.open("rb") as file:
        content, stat = file.read(), os.fstat(file.fileno())
    processes = []
    for line in content.splitlines():
        if line:
            with contextlib.suppress(ValueError, TypeError):  # a line that is being written
                processes.append(Process(**json.loads(line)))
    end = None
    with contextlib.suppress(records.RecordError):
        end = records.read_json(path.with_suffix(".end"))
    return Attempt(path, tuple(processes), (stat.st_size, stat.st_mtime_ns), end)


class Lease:
    """The right to write a run's folder, held by this process until ``end``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.beaten = clock()

    @property
    def next(self) -> Path:
        return _numbered(self.path.parent, int(self.path.stem) + 1)

    def beat(self) -> bool:
        """A sign of life, if one is due; whether the run is still ours"""
        now = clock()
        if now - self.beaten > LOST or self.next.exists():
            return False
        if now - self.beaten >= BEAT:
            with contextlib.suppress(OSError):  # which needs no room on a full disk
                os.utime(self.path)
                self.beaten = now
        return True

    def join(self) -> None:
        """This process works on the run: whoever takes over ends it first"""
        with self.path.open("ab") as file:
            file.write(_line(Process.this()))

    def end(self, how: How, **more: Any) -> None:
        """Give the run up; what was said first stays"""
        _create(self.path.with_suffix(".end"), (json.dumps({"how": how, **more}) + "\n").encode())


class Watch:
    """Takes leases, also of holders that have shown no sign of life for as long as we have watched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, tuple[Path, tuple[int, int], float]] = {}

    def free(self, name: str, holder: Attempt | None) -> bool:
        if holder is None or holder.dead:
            return True
        # by our own clock, because those of other machines may differ
        path, sign, since = self._seen.get(name, (None, (0, 0), 0.0))
        if (path, sign) != (holder.path, holder.sign):
            self._seen[name] = (holder.path, holder.sign, clock())
            return False
        return clock() - since > STALE

    def take(self, name: str, stale: Stale | None = None) -> Lease | None:
        """The lease on a run, or None while somebody else has it; ``stale`` is a holder that another watch let go"""
        folder = self.folder / name
        holder = last(folder)
        if not self.free(name, holder) and (holder is None or stale != holder.stale):
            return None
        folder.mkdir(parents=True, exist_ok=True)
        path = _numbered(folder, 1 if holder is None else holder.number + 1)
        if not _create(path, _line(Process.this())):
            return None
        for earlier in attempts(folder):
            if earlier.number < int(path.stem) and earlier.end is None:
                # a worker that joined late, or was suspended, must not write beside us
                for worker in earlier.processes[1:]:
                    worker.kill()
                Lease(earlier.path).end("lost")
        return Lease(path)


def _numbered(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.lease"


def _line(process: Process) -> bytes:
    return (json.dumps(vars(process)) + "\n").encode()


def _create(path: Path, content: bytes) -> bool:
    """A new file with this content, or False if there is one"""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(file, "wb") as stream:
        stream.write(content)
    return True
