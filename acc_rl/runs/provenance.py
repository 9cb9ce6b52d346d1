"""Where numbers come from."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from acc_rl.store import records

PACKAGES = ("acc_rl", "torch", "numpy", "stable_baselines3", "sb3_contrib", "gymnasium", "mujoco")


def record_start(path: Path, run_id: str, step: int, threads: int) -> None:
    """Add this start, at an env step, to those of the run; what belongs to the first is at the top level too."""
    start = _start(step, threads)
    before: dict[str, Any] = {}
    if step > 0:
        with suppress(records.RecordError):
            before = records.read_json(path)
    first = {key: before.get(key, value) for key, value in start.items() if key != "step"}
    starts = before.get("starts", [{**first, "step": 0}] if before else [])
    starts = [*starts, start] if isinstance(starts, list) else [start]
    records.write_json(path, {**first, "run_id": run_id, "starts": starts})


def _start(step: int, threads: int) -> dict[str, Any]:
    return {
        "versions": versions(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "git_commit": _git_commit(),
        "command": [Path(sys.argv[0]).name, *map(without_folders, sys.argv[1:])],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "step": step,
    }


def without_folders(word: str) -> str:
    """Of an absolute path its last name, so that published records do not show the folders of this machine"""
    if Path(word).is_absolute():
        return Path(word).name or word
    name, equals, value = word.partition("=")
    return f"{name}{equals}{Path(value).name}" if Path(value).is_absolute() else word


def versions() -> dict[str, str | None]:
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git_commit() -> str | None:
    """The commit of the folder that the run was started in, if it is one of git's"""
    try:
        result = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None
