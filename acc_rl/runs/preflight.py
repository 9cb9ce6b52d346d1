"""Whether memory and disk will suffice, before hours are spent."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from acc_rl.algos.buffers import bytes_per_transition
from acc_rl.algos.calibrated import Calibrated
from acc_rl.algos.registry import find
from acc_rl.core.errors import AccError, SettingError
from acc_rl.runs.spec import RunSpec
from acc_rl.store.records import CHECKPOINTS

CONTAINER = Path("/sys/fs/cgroup")
STATES = 3
"""times the weights and optimizers are on disk at most: two checkpoints and the one being written"""


@dataclass(frozen=True)
class Needs:
    """Bytes that a run may come to need."""

    memory: int
    """of its replay buffer"""
    disk: int
    """of its checkpoints"""

    def __str__(self) -> str:
        return f"up to {_size(self.memory)} of memory for the replay buffer, {_size(self.disk)} of disk for checkpoints"


class TooLarge(AccError):
    """Memory or disk is too small for the run."""


def check_rounds(spec: RunSpec, checkpoint_every: int) -> None:
    """Whether the run can be saved between rounds of training, and has the ends of episodes that it is to wait for"""
    train_freq, controller = spec.settings.train_freq, spec.settings.controller or find(spec.algo).controller
    if train_freq == "episode" and spec.n_envs > 1:
        raise SettingError(f"train_freq is 'episode', but n_envs is {spec.n_envs}: use 1, or count train_freq in steps")
    if spec.horizon is not None and spec.time_limit is not None:
        raise SettingError(
            f"horizon is {spec.horizon}, for a task that never ends, but time_limit is {spec.time_limit}: leave one out"
        )
    if spec.horizon is not None and (train_freq == "episode" or controller == "top"):
        name = "train_freq is 'episode'" if train_freq == "episode" else "the controller is 'top'"
        raise SettingError(
            f"{name}, which waits for the ends of episodes, but horizon is {spec.horizon}, for a task that has none: "
            "leave one of them out"
        )
    if train_freq != "episode" and (train_freq or 1) * spec.n_envs > min(checkpoint_every, spec.steps):
        raise AccError(
            f"train_freq is {train_freq}, with n_envs {spec.n_envs}, but a run can only be stopped and "
            f"saved between rounds of training: use less, or more checkpoint_every ({checkpoint_every}) and steps"
        )


def check_resources(model: Calibrated, steps: int, folder: Path) -> Needs:
    transitions = min(model.buffer_size, steps)
    replay = transitions * bytes_per_transition(model.observation_space, model.action_space)
    free = memory_available()
    if replay > free:
        raise TooLarge(
            f"the replay buffer of {transitions} transitions needs {_size(replay)} of memory, but {_size(free)} are "
            "free: use a smaller --buffer-size"
        )
    # Adam keeps two numbers beside each weight
    states = STATES * 3 * sum(each.numel() * each.element_size() for each in model.policy.parameters())
    total, _, free_disk = shutil.disk_usage(_existing(folder))
    needs = Needs(replay, replay + states)
    there = sum(path.stat().st_size for path in (folder / CHECKPOINTS).rglob("*") if path.is_file())
    if total and replay + states > free_disk + there:  # what has no size is no disk
        raise TooLarge(
            f"checkpoints need up to {_size(replay + states)} of disk ({transitions} transitions, {STATES} states), "
            f"but {_size(free_disk)} are free in {_existing(folder)}: use another --out or a smaller --buffer-size"
        )
    return needs


def memory_available() -> int:
    """Bytes that can still be had, also under the limit of a container, which psutil does not know"""
    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
        limit, used = (int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current"))
        free = min(free, limit - used)
    return free


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    return next(each for each in (folder, *folder.parents) if each.exists())


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
