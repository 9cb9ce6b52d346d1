"""What a run's folder holds already, and what a fault leaves in it. No torch."""

from __future__ import annotations

import contextlib
import shutil
import traceback
from pathlib import Path

from acc_rl.core.errors import AccError
from acc_rl.runs.config import differences, finished
from acc_rl.runs.spec import RunSpec
from acc_rl.store import records
from acc_rl.store.files import PART, write_whole
from acc_rl.store.lock import LOCK, is_locked


class RunExists(AccError):
    """The folder is taken."""


def run_folder(out: Path, spec: RunSpec) -> Path:
    """The run's folder; one that still has the name of earlier versions gets today's."""
    folder = out / spec.name
    for old in (out / name for name in spec.old_names):
        if old != folder and old.is_dir() and not folder.exists() and not is_locked(old):
            old.rename(folder)
    return folder


def is_finished(folder: Path, spec: RunSpec) -> bool:
    """Whether the folder holds all of this run; RunExists if it holds something else"""
    if not (folder / records.SPEC).exists():
        if folder.exists() and any(path.name != LOCK and not path.name.startswith(PART) for path in folder.iterdir()):
            raise RunExists(f"{folder} exists but holds no run: use --restart to replace it, or another --out")
        return False
    there = records.read_json(folder / records.SPEC)
    if differ := differences(there, spec):
        raise RunExists(
            f"{folder} holds a run with other settings ({', '.join(differ)}): "
            "use --restart to start it over, or another --out"
        )
    steps = there.get("steps")
    if not isinstance(steps, int) or spec.steps < steps:
        raise RunExists(f"{folder} holds a run of {steps} steps: steps can only grow, {spec.steps} is less")
    if finished(folder, spec):
        return True
    if (folder / records.RESULT).exists() and not has_checkpoint(folder):
        raise RunExists(f"{folder} holds a finished run, but no checkpoint to resume from: use --restart to start over")
    return False


def has_checkpoint(folder: Path) -> bool:
    return any((folder / records.CHECKPOINTS).glob("step-*"))


def last_saved(folder: Path) -> int:
    """The env step of the newest checkpoint, by its name"""
    names = (path.name.partition("-")[2].rstrip("+") for path in (folder / records.CHECKPOINTS).glob("step-*"))
    return max((int(name) for name in names if name.isdecimal()), default=0)


def clear(folder: Path, all_of_it: bool) -> None:
    """Remove what the folder holds, or what a run has written there"""
    for path in sorted(folder.iterdir(), key=lambda each: each.name == records.SPEC):  # which says that it is a run's
        if path.name == LOCK or not (all_of_it or path.name in records.OWN or path.name.startswith(PART)):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def tidy(error: Exception, folder: Path, made: list[Path], step: int) -> None:
    """Before the first step a fault leaves nothing behind; later its traceback stays in the run's folder."""
    with contextlib.suppress(OSError, AccError):  # which must not hide the fault
        if step:
            text = "".join(traceback.format_exception(error))
            write_whole(folder / records.TRACEBACK, f"at step {step}\n{text}".encode())
        elif not has_checkpoint(folder):
            clear(folder, all_of_it=False)
            if made:
                (folder / LOCK).unlink(missing_ok=True)
            for each in made:
                each.rmdir()
