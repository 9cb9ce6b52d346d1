"""Files that survive a crash at any moment: written aside, flushed, renamed. No torch."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from acc_rl.core.errors import AccError

PART = ".part"
"""begins the name of what is not whole yet, or no longer"""
CHUNK = 1 << 24

_checks: list[Callable[[], None]] = []


def before_write(check: Callable[[], None]) -> None:
    """Have ``check`` called before each write of this process from now on"""
    _checks.append(check)


def require_writable() -> None:
    """Called before anything is written: a process that has lost its run to another one ends here"""
    for check in _checks:
        check()


class RecordError(AccError):
    """A file that is not what it should be."""


class DamagedFile(RecordError):
    """A file that is missing, changed or not what it claims to be."""


def fsync_folder(folder: Path) -> None:
    """What was renamed or removed in it stays so after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_flushed(path: Path, content: bytes) -> dict[str, Any]:
    """A new file that is on the disk when this returns; its size and SHA-256."""
    require_writable()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest[:CHUNK]) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def write_whole(path: Path, content: bytes) -> dict[str, Any]:
    """The whole file or, after a crash, the old one."""
    aside = path.with_name(PART + path.name)
    recorded = write_flushed(aside, content)
    os.rename(aside, path)
    fsync_folder(path.parent)
    return recorded


def commit_folder(aside: Path, folder: Path) -> None:
    """A folder that was written aside gets its name, all of it or nothing."""
    require_writable()
    fsync_folder(aside)
    os.rename(aside, folder)
    fsync_folder(folder.parent)


def remove_folder(folder: Path) -> None:
    """Gone as a whole: a crash in between leaves a part that nobody takes for a folder."""
    require_writable()
    aside = folder.with_name(f"{PART}-old-{folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    os.rename(folder, aside)
    shutil.rmtree(aside)


def remove_parts(folder: Path) -> None:
    """What a crash has left"""
    for path in folder.glob(PART + "*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def read_checked(path: Path, recorded: Mapping[str, Any]) -> bytes:
    """The content, if size and SHA-256 are those recorded when it was written."""
    size, digest = recorded.get("bytes"), recorded.get("sha256")
    if not isinstance(size, int) or not isinstance(digest, str):
        raise DamagedFile(f"{path}: its size and SHA-256 are not recorded")
    content = read_plain(path, size)
    if len(content) != size:
        raise DamagedFile(f"{path}: has {len(content)} bytes, not {size}")
    if hashlib.sha256(content).hexdigest() != digest:
        raise DamagedFile(f"{path}: its content has changed (SHA-256 differs)")
    return content


def read_plain(path: Path, largest: int, follow: bool = False) -> bytes:
    """The content of a plain file: no device, not larger than ``largest``, and no link unless ``follow``."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        what = "is a link" if path.is_symlink() and not follow else error.strerror
        raise DamagedFile(f"{path}: {what}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFile(f"{path}: is no plain file")
        if found.st_size > largest:
            raise DamagedFile(f"{path}: has {found.st_size} bytes, not at most {largest}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(found.st_size)  # not what is written meanwhile, which may have no end
    except OSError as error:
        raise DamagedFile(f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)
