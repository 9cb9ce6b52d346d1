"""One process at a time trains in a folder. No torch."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock"


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Whether no other process is in ``folder``; until the end none can come in."""
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def taken(folder: Path) -> bool:
    """Whether a process of this machine trains there now"""
    if not (folder / LOCK).exists():
        return False
    try:
        with alone(folder) as free:
            return not free
    except OSError:  # a folder that is only to be read
        return False
