"""What happens beside training: evaluation, records, progress. SB3 callbacks, usable with plain SB3 models too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import obs_as_tensor

from acc_rl.algos.estimates import value_estimate
from acc_rl.core.value_error import LEFT_OUT, PER_RECORD, ValueErrorMeter
from acc_rl.runs import records
from acc_rl.runs.evaluation import evaluate, evaluation_seeds, summary


class ValueErrorCallback(BaseCallback):
    """Compares the critic's estimate of each pair, at the time it is met, with the return that follows.

    Works with every SB3 and sb3-contrib off-policy model that learns a Q. Each record (signed bias, absolute and
    normalised error over 1000 pairs) is logged under ``value_error/`` and, if ``path`` is given, appended there.
    """

    model: OffPolicyAlgorithm

    def __init__(self, path: Path | str | None = None, left_out: int = LEFT_OUT, per_record: int = PER_RECORD) -> None:
        super().__init__()
        self.path = None if path is None else Path(path)
        self.left_out, self.per_record = left_out, per_record
        self.seconds = 0.0
        """time spent on it"""
        self.meter: ValueErrorMeter | None = None

    def _on_training_start(self) -> None:
        self.estimate = value_estimate(self.model)
        if self.meter is None:
            self.meter = ValueErrorMeter(self.model.n_envs, self.model.gamma, self.left_out, self.per_record)
        else:
            self.meter.forget_open(self.model.n_envs)

    def _on_step(self) -> bool:
        # before the transition is stored: _last_obs is still s_t, and the weights are those that chose the action
        assert self.meter is not None
        assert self.model._last_obs is not None
        start = time.perf_counter()
        with th.no_grad():
            obs = obs_as_tensor(self.model._last_obs, self.model.device)
            actions = th.as_tensor(self.locals["buffer_actions"], device=self.model.device)
            values = self.estimate(obs, actions).cpu().numpy()
        infos, normalizer = self.locals["infos"], self.model.get_vec_normalize_env()
        rewards = self.locals["rewards"]
        if normalizer is not None:  # the critic learns from rewards that are scaled when they are sampled
            rewards = normalizer.normalize_reward(normalizer.get_original_reward())
        cut = [info.get("TimeLimit.truncated", False) for info in infos]
        for record in self.meter.add(values, rewards, self.locals["dones"], cut):
            row = {"step": self.num_timesteps, **record}
            for key in ("bias", "absolute", "normalised"):
                self.logger.record(f"value_error/{key}", row[key])
            if self.path is not None:
                records.append(self.path, row)
        self.seconds += time.perf_counter() - start
        return True


class EvaluationCallback(BaseCallback):
    """Evaluates every ``every`` env steps, and before the first, on envs and seeds of its own."""

    def __init__(
        self, path: Path, make_env: Callable[[], gym.Env[Any, Any]], every: int, episodes: int, run_seed: int
    ) -> None:
        super().__init__()
        self.path, self.make_env, self.every, self.episodes, self.run_seed = path, make_env, every, episodes, run_seed
        self.number = 0
        """evaluations so far"""
        self.seconds = 0.0
        self.last: dict[str, Any] | None = None
        self._envs: list[gym.Env[Any, Any]] = []

    def _on_rollout_start(self) -> None:
        # between training and the next step: what is evaluated is what the steps so far have made of the policy
        if self.model.num_timesteps >= self.number * self.every:
            self.evaluate()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self.last is None or self.last["step"] < self.model.num_timesteps:
            self.evaluate()
        for env in self._envs:
            env.close()
        self._envs = []

    def evaluate(self) -> None:
        start = time.perf_counter()
        self._envs = self._envs or [self.make_env() for _ in range(self.episodes)]
        seeds = evaluation_seeds(self.run_seed, self.number, self.episodes)
        episodes = evaluate(lambda obs: self.model.predict(obs, deterministic=True)[0], self._envs, seeds)
        self.last = {"step": self.model.num_timesteps, "number": self.number, **summary(episodes)}
        records.append(self.path, self.last)
        for key in ("mean_return", "std_return", "success"):
            if key in self.last:
                self.logger.record(f"evaluation/{key}", self.last[key])
        self.number = max(self.number, self.model.num_timesteps // self.every) + 1
        self.seconds += time.perf_counter() - start


class LogCallback(BaseCallback):
    """Writes the log every ``every`` env steps."""

    model: OffPolicyAlgorithm

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every, self.next = every, every

    def _on_rollout_start(self) -> None:
        if self.model.num_timesteps >= self.next:
            self.model.dump_logs()
            self.next = (self.model.num_timesteps // self.every + 1) * self.every

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.model.dump_logs()


def python_number(value: Any) -> Any:
    """Numbers of numpy and torch as Python's."""
    return value.item() if isinstance(value, (np.generic, th.Tensor)) else value
