"""Test episodes with deterministic actions, all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from acc_rl.core.errors import SettingError
from acc_rl.core.observations import join
from acc_rl.runs.envs import EVALUATION, episode_seed, make
from acc_rl.runs.spec import RunSpec

Act = Callable[[Any], Any]
"""a batch of observations -> a batch of actions"""
AFTERWARDS = 2**31 - 1
"""number of an evaluation whose seeds none during training uses"""
AT_ONCE = 50


@dataclass(frozen=True)
class Step:
    """One transition of one of the envs."""

    env: int
    """which of the envs"""
    row: int
    """its place in the batch that the policy has just acted for"""
    observation: Any
    reward: float
    next_observation: Any
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


def play_episodes(act: Act, envs: Sequence[gym.Env[Any, Any]], seeds: Sequence[int]) -> Iterator[Step]:
    """One episode per env, in step with each other so that the policy acts for all in one call."""
    observations = [env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)]
    running = list(range(len(seeds)))
    while running:
        actions = act(join([observations[i] for i in running], np.stack))
        still = []
        for row, (i, action) in enumerate(zip(running, actions, strict=True)):
            before = observations[i]
            observations[i], reward, terminated, truncated, info = envs[i].step(action)
            yield Step(i, row, before, float(reward), observations[i], bool(terminated), bool(truncated), info)
            if not (terminated or truncated):
                still.append(i)
        running = still


def evaluate(
    act: Act, envs: Sequence[gym.Env[Any, Any]], seeds: Sequence[int], gamma: float | None = None
) -> list[dict[str, Any]]:
    """Return and length of each episode, and whether ``info["success"]`` (or "is_success") was ever true.

    With ``gamma`` the discounted return too, for tasks whose episodes end where we cut them.
    """
    episodes: list[dict[str, Any]] = [{"seed": seed, "return": 0.0, "length": 0} for seed in seeds]
    for step in play_episodes(act, envs, seeds):
        episode = episodes[step.env]
        episode["return"] += step.reward
        if gamma is not None:
            episode["discounted"] = episode.get("discounted", 0.0) + gamma ** episode["length"] * step.reward
        episode["length"] += 1
        success = step.info.get("success", step.info.get("is_success"))
        if success is not None:
            episode["success"] = bool(success) or episode.get("success", False)
    return episodes


def evaluation_seeds(run_seed: int, number: int, episodes: int) -> list[int]:
    """Seeds of the ``number``-th evaluation: a function of the run's seed and that number alone"""
    return [episode_seed(run_seed, EVALUATION, number, episode) for episode in range(episodes)]


def summary(episodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A row of evaluations.jsonl"""
    returns = [episode["return"] for episode in episodes]
    row: dict[str, Any] = {
        "mean_return": float(np.mean(returns)),
        "std_return": float(np.std(returns)),
        "returns": returns,
        "lengths": [episode["length"] for episode in episodes],
    }
    if all("discounted" in episode for episode in episodes):
        row["mean_discounted"] = float(np.mean([episode["discounted"] for episode in episodes]))
        row["mean_reward"] = sum(returns) / sum(row["lengths"])
    if all("success" in episode for episode in episodes):
        row["success"] = float(np.mean([episode["success"] for episode in episodes]))
    return row


def evaluate_task(
    act: Act, task: str | RunSpec, episodes: int, seed: int, horizon: int | None = None, gamma: float | None = None
) -> dict[str, Any]:
    """The summary of test episodes after training, cut after ``horizon`` steps"""
    if episodes < 1:
        raise SettingError(f"episodes is {episodes}, but must be >= 1")
    seeds = evaluation_seeds(seed, AFTERWARDS, episodes)
    made = [make(task, horizon) for _ in range(min(episodes, AT_ONCE))]
    try:
        parts = [seeds[start : start + AT_ONCE] for start in range(0, episodes, AT_ONCE)]
        return summary([each for part in parts for each in evaluate(act, made[: len(part)], part, gamma)])
    finally:
        for env in made:
            env.close()
