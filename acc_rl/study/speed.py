"""What a study will cost, from a few seconds of each variant."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch as th
from stable_baselines3.common.logger import Logger

from acc_rl.runs import envs
from acc_rl.runs.spec import RunSpec
from acc_rl.runs.train import make_model

ENOUGH = 1.0
"""seconds of training that are timed, at least"""
UNKNOWN_LENGTH = 1000
"""steps of an episode where the task names no limit"""


@dataclass(frozen=True)
class Cost:
    """Seconds of one core."""

    step: float
    """one step of the env"""
    length: int
    """steps of an episode, at most"""


def expected_seconds(specs: Sequence[RunSpec]) -> dict[str, float]:
    """Seconds of each run by its name.

    Training is timed for each variant on its first task and env steps for each task: seconds per step =
    training + env step + evaluation, where test episodes are taken to last until their time limit.
    """
    tasks = {env: env_cost(env) for env in dict.fromkeys(spec.env for spec in specs)}
    training: dict[tuple[Any, ...], float] = {}
    result = {}
    for spec in specs:
        variant = _variant(spec)
        if variant not in training:
            training[variant] = training_seconds(spec) - tasks[spec.env].step
        env = tasks[spec.env]
        evaluation = spec.eval_episodes * (spec.horizon or env.length) * env.step / spec.eval_every
        result[spec.name] = spec.steps * (training[variant] + env.step + evaluation)
    return result


def _variant(spec: RunSpec) -> tuple[Any, ...]:
    return spec.algo, spec.settings, spec.bias, spec.threads


def env_cost(env_id: str, steps: int = 300) -> Cost:
    env = envs.make(env_id)
    env.action_space.seed(0)
    env.reset(seed=0)
    start = time.perf_counter()
    for _ in range(steps):
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    seconds = time.perf_counter() - start
    limit = env.spec.max_episode_steps if env.spec is not None else None
    env.close()
    return Cost(seconds / steps, limit or UNKNOWN_LENGTH)


def training_seconds(spec: RunSpec, warm_up: int = 20, turn: int = 20) -> float:
    """Seconds per env step, training included"""
    settings = replace(spec.settings, learning_starts=spec.settings.batch_size or 256, buffer_size=2000)
    threads = th.get_num_threads()
    th.set_num_threads(spec.threads or threads)
    model = make_model(replace(spec, settings=settings))
    model.set_logger(Logger(None, []))
    learn = partial(model.learn, log_interval=None, reset_num_timesteps=False)  # type: ignore[arg-type]
    try:
        learn(model.learning_starts + warm_up)
        first, start = model.num_timesteps, time.perf_counter()
        while (seconds := time.perf_counter() - start) < ENOUGH:
            learn(turn)
    finally:
        th.set_num_threads(threads)
        assert model.env is not None
        model.env.close()
    return seconds / (model.num_timesteps - first)
