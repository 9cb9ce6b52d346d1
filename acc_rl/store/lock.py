"""One process at a time works in a folder: kernel locks, freed by the death of their holder. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor

from acc_rl.core.errors import AccError
from acc_rl.store.files import before_write

LOCK = ".lock"
WAIT = 0.5
"""seconds to wait for a lock: ``is_locked`` holds it while it looks"""
LOOK = 0.002
"""seconds to wait before a lock counts as held: another process may be looking too"""

_held: list[tuple[Path, tuple[int, int] | None]] = []
"""the locks of this process, and which file each of them is"""


class LockLost(AccError):
    """The file of a lock was removed or replaced, so that others can come in."""


@contextmanager
def exclusive(folder: Path, name: str = LOCK, wait: float = WAIT) -> Iterator[bool]:
    """Whether no other process holds this lock of ``folder``; until the end none can take it."""
    path = folder.absolute() / name
    lock = FileLock(path)
    free = _acquired(lock, wait)
    entry = path, _identity(path)
    if free:
        _held.append(entry)
    try:
        yield free
    finally:
        if free:
            _held.remove(entry)
            lock.release()


def is_locked(folder: Path, name: str = LOCK) -> bool:
    """Whether a process holds this lock of ``folder`` now"""
    path = folder / name
    try:
        if not path.exists():
            return False
        lock = FileLock(path)
        free = _acquired(lock, LOOK)
        lock.release()
    except OSError:  # another user's, say, which can be looked at without writing to it
        return _is_held(path)
    return not free


def _is_held(path: Path) -> bool:
    try:
        with path.open("rb") as file:  # whose end frees it
            return not lock_descriptor(file.fileno(), blocking=False)
    except OSError:
        return False


def _acquired(lock: FileLock, wait: float) -> bool:
    try:
        lock.acquire(timeout=wait, poll_interval=min(wait / 2, 0.05))
    except Timeout:
        return False
    return True


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is; None if there is none"""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _require_held() -> None:
    """LockLost if a lock of this process keeps nobody out any more, because its file or folder was removed"""
    for path, identity in _held:
        if identity is None or _identity(path) != identity:
            raise LockLost(
                f"{path} was removed or replaced, so that another process may work in its folder: "
                "nothing more is written; start again once no other process is in it"
            )


before_write(_require_held)
