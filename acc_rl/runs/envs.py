"""Environments whose episodes are functions of the run's seed."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

TRAINING, EVALUATION = 0, 1
"""streams of seeds: what one uses never touches the other"""


def episode_seed(run_seed: int, stream: int, index: int, episode: int) -> int:
    return int(np.random.SeedSequence([run_seed, stream, index, episode]).generate_state(1)[0])


class EnvError(ValueError):
    """The environment itself failed."""


class SeededEpisodes(gym.Wrapper[Any, Any, Any, Any]):
    """Episode k of env i starts from a seed of its own, so that it does not depend on what came before."""

    def __init__(self, env: gym.Env[Any, Any], run_seed: int, index: int) -> None:
        super().__init__(env)
        self.run_seed, self.index, self.episode = run_seed, index, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seed = episode_seed(self.run_seed, TRAINING, self.index, self.episode)
        self.episode += 1
        return self.env.reset(seed=seed, options=options)


def make(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    return gym.make(env_id, **kwargs)


def check(env_id: str) -> None:
    """Whether the task can be made, reset and closed: better to know before a run is set up"""
    env = make(env_id)
    try:
        env.reset(seed=0)
    except Exception as error:
        raise EnvError(f"{env_id}: its reset failed: {type(error).__name__}: {error}") from error
    finally:
        env.close()
