"""Where numbers come from."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("acc_rl", "torch", "numpy", "stable_baselines3", "sb3_contrib", "gymnasium", "mujoco")


def provenance(run_id: str, threads: int) -> dict[str, Any]:
    return {
        "versions": versions(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "git_commit": _git_commit(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "run_id": run_id,
    }


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
