"""What a study will cost, from a few seconds of each variant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from acc_rl.runs.spec import RunSpec
from acc_rl.runs.speed import Cost, env_cost, evaluation_seconds, training_seconds

TASK = ("env", "env_kwargs", "wrapper", "time_limit")
ELSEWHERE = ("steps", "seed", "eval_every", "eval_episodes", "log_every", "value_error", "stop_at", *TASK)
"""fields that do not change how long an env step of training takes, beside the env's own part of it"""


def expected_seconds(specs: Sequence[RunSpec]) -> dict[str, float]:
    """Seconds of each run by its name.

    Training is timed for each variant on its first task and env steps for each task: seconds per step =
    training + env step + evaluation.
    """
    tasks: dict[str, Cost] = {}
    training: dict[str, float] = {}
    result = {}
    for spec in specs:
        content = spec.as_dict()
        task = json.dumps([content[name] for name in TASK])
        variant = json.dumps({name: each for name, each in content.items() if name not in ELSEWHERE})
        if task not in tasks:
            tasks[task] = env_cost(spec)
        env = tasks[task]
        if variant not in training:
            training[variant] = training_seconds(spec, Path(spec.name)) - env.step
        result[spec.name] = spec.steps * (training[variant] + env.step + evaluation_seconds(spec, env))
    return result
