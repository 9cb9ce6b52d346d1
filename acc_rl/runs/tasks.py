"""Names of tasks. No torch; Gymnasium only for names without a version."""

from __future__ import annotations

import re
from typing import Any

GYM_TASKS = ("HalfCheetah", "Walker2d", "Ant", "Humanoid", "Hopper", "Swimmer")
METAWORLD = "metaworld/"


def full_name(env: str) -> str:
    """With the newest version that is registered, where there is none; what is not known stays as it is"""
    if env.startswith(METAWORLD):
        return env if env.endswith("-v3") else f"{env}-v3"
    if env in GYM_TASKS:
        return f"{env}-v5"
    if ":" in env or re.search(r"-v[0-9]+$", env):  # Gymnasium imports a module first, and then looks by itself
        return env
    import gymnasium as gym

    found = (re.fullmatch(rf"{re.escape(env)}-v([0-9]+)", name) for name in gym.registry)
    versions = [int(each[1]) for each in found if each]
    return f"{env}-v{max(versions)}" if versions else env


def task_bias(env: str) -> dict[str, Any]:
    """What the paper sets differently for a task: T_beta is the length of an episode"""
    return {"update_interval": 500} if env.startswith(METAWORLD) else {}
