"""Meta-World's tasks as single-task envs (MT1) under names like ``metaworld/push-v3``."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
from gymnasium.utils import seeding

from acc_rl.core.checks import hint
from acc_rl.core.errors import AccError, needs
from acc_rl.runs.tasks import METAWORLD

LIMIT = 500
"""steps of an episode"""


class SeededGoals(gym.Wrapper[Any, Any, Any, Any]):
    """The goal is drawn anew in each episode, and the whole episode is a function of the reset's seed and the actions.

    Meta-World ignores the seed of a reset and draws from 50 goals that are fixed when the env is made.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        inner: Any = env
        # as in MT1: the goal is part of the observation
        data = {"env_cls": type(env), "rand_vec": None, "partially_observable": False}
        inner.set_task(_task(pickle.dumps(data)))
        inner._freeze_rand_vec, inner.seeded_rand_vec = False, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            inner: Any = self.env
            inner.np_random, _ = seeding.np_random(seed)
        return self.env.reset()


def _task(data: bytes) -> Any:
    from metaworld.types import Task

    return Task(env_name="", data=data)


def make(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """The task with its time limit; ``env.spec`` tells both."""
    with needs("metaworld", f"{env_id} needs Meta-World"):
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS
    name = env_id.removeprefix(METAWORLD)
    if name not in ALL_V3_ENVIRONMENTS:
        raise AccError(f"unknown task {env_id}; {hint(name, ALL_V3_ENVIRONMENTS, 'tasks are', METAWORLD)}")
    if env_id not in gym.registry:

        def entry(**arguments: Any) -> SeededGoals:
            return SeededGoals(ALL_V3_ENVIRONMENTS[name](**arguments))

        # the checker takes a task with a compute_reward for one with a goal space
        gym.register(env_id, entry_point=entry, max_episode_steps=LIMIT, disable_env_checker=True)
    return gym.make(env_id, **kwargs)
