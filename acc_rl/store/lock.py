"""One process at a time trains in a folder. No torch."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LOCK = ".lock"
TRIES, PAUSE = 10, 0.05
"""how often and at what distance to ask again: ``taken`` holds the lock while it looks"""


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Whether no other process is in ``folder``; until the end none can come in."""
    with (folder / LOCK).open("a") as lock:
        for _ in range(TRIES):
            if free := _locked(lock, fcntl.LOCK_EX):
                break
            time.sleep(PAUSE)
        yield free


def _locked(lock: IO[str], how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def taken(folder: Path) -> bool:
    """Whether a process of this machine trains there now"""
    try:
        with (folder / LOCK).open() as lock:
            return not _locked(lock, fcntl.LOCK_SH)
    except OSError:  # no lock, or none that may be looked at
        return False
