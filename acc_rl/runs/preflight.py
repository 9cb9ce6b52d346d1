"""Whether memory and disk will suffice, before hours are spent."""

from __future__ import annotations

import shutil
from pathlib import Path

from acc_rl.algos.buffers import bytes_per_transition
from acc_rl.algos.calibrated import Calibrated
from acc_rl.store.records import CHECKPOINTS

STATES = 3
"""times the weights and optimizers are on disk at most: two checkpoints and the one being written"""


class NoRoom(ValueError):
    """Memory or disk is too small for the run."""


def check_room(model: Calibrated, steps: int, folder: Path) -> None:
    transitions = min(model.buffer_size, steps)
    replay = transitions * bytes_per_transition(model.observation_space, model.action_space)
    free = memory_available()
    if free is not None and replay > free:
        raise NoRoom(
            f"the replay buffer of {transitions} transitions needs {_size(replay)} of memory, but {_size(free)} are "
            "free: use a smaller --buffer-size"
        )
    # Adam keeps two numbers beside each weight
    states = STATES * 3 * sum(each.numel() * each.element_size() for each in model.policy.parameters())
    total, _, free_disk = shutil.disk_usage(_existing(folder))
    there = sum(path.stat().st_size for path in (folder / CHECKPOINTS).rglob("*") if path.is_file())
    if total and replay + states > free_disk + there:  # what has no size is no disk
        raise NoRoom(
            f"checkpoints need up to {_size(replay + states)} of disk ({transitions} transitions, {STATES} states), "
            f"but {_size(free_disk)} are free in {_existing(folder)}: use another --out or a smaller --buffer-size"
        )


def memory_available() -> int | None:
    """Bytes that can still be had, also under the limit of a container; None where the system does not say"""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            found.append(int(limit) - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return min(found) if found else None


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    return next(each for each in (folder, *folder.parents) if each.exists())


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
