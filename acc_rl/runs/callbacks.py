"""What happens beside training: evaluation, records, progress. SB3 callbacks, usable with plain SB3 models too."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import obs_as_tensor

from acc_rl.algos.buffers import steps_of_targets
from acc_rl.algos.calibrated import Calibrated
from acc_rl.algos.estimates import ModelEstimator, raw_transition
from acc_rl.core.errors import AccError
from acc_rl.core.value_error import LEFT_OUT, PER_RECORD, ValueErrorMeter
from acc_rl.runs.evaluation import evaluate, evaluation_seeds, summary
from acc_rl.store import records

OnFault = Literal["stop", "warn"]


class ValueErrorCallback(BaseCallback):
    """Compares the critic's estimate of each pair, at the time it is collected, with the return that follows.

    Works with every SB3 and sb3-contrib off-policy model that learns a Q. Each record (signed bias, absolute and
    normalised error over 1000 pairs) is logged under ``value_error/`` and, if ``path`` is given, appended there.
    """

    model: OffPolicyAlgorithm

    def __init__(self, path: Path | str | None = None, left_out: int = LEFT_OUT, per_record: int = PER_RECORD) -> None:
        super().__init__()
        self.rows = None if path is None else records.Rows(Path(path))
        self.left_out, self.per_record = left_out, per_record
        self.seconds = 0.0
        """time spent on it"""
        self.meter: ValueErrorMeter | None = None
        self._watched: OffPolicyAlgorithm | None = None
        self._newest: Any = None
        """the observations after the last step"""

    def _on_training_start(self) -> None:
        self.critic = ModelEstimator(self.model)
        if self.meter is None:
            self.meter = self._new_meter()
        elif self.model is not self._watched or self._envs_were_reset():
            self.meter.episodes.forget_open(self.model.n_envs)
        self._watched = self.model

    def _envs_were_reset(self) -> bool:
        """Models of this package say so; those of SB3 go on from the observations of the last step if they do not"""
        goes_on = self.model._last_obs is self._newest and not self.locals["reset_num_timesteps"]
        return bool(getattr(self.model, "envs_were_reset", not goes_on))

    def _new_meter(self) -> ValueErrorMeter:
        model = self.model
        return ValueErrorMeter(model.n_envs, model.gamma, self.left_out, self.per_record, steps_of_targets(model))

    def state_dict(self) -> dict[str, Any]:
        return {} if self.meter is None else self.meter.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], model: OffPolicyAlgorithm) -> None:
        self.model = self._watched = model
        self.critic = ModelEstimator(model)
        self.meter = self._new_meter()
        if state:
            self.meter.load_state_dict(state)

    def cut(self, index: int, final: Any) -> None:
        """Close the open episode of one env as if a time limit had cut it."""
        if self.meter is not None:
            self.meter.cut(index, final, self.critic)

    def _on_step(self) -> bool:
        # before the transition is stored: _last_obs is still s_t, and the weights are those that chose the action
        assert self.meter is not None
        start = time.perf_counter()
        names = ("buffer_actions", "new_obs", "rewards", "dones", "infos")
        transition = raw_transition(self.model, *(self.locals[name] for name in names))
        self._newest = self.locals["new_obs"]
        for record in self.meter.add(transition, self._estimates(), self.critic):
            row = {"step": self.num_timesteps, **record}
            for key in ("bias", "bias_soft", "absolute", "relative", "normalised"):
                self.logger.record(f"value_error/{key}", row[key])
            if self.rows is not None:
                self.rows.append(row)
        self.seconds += time.perf_counter() - start
        return True

    def _estimates(self) -> Any:
        model = self.model
        assert model._last_obs is not None
        with th.no_grad():
            obs = obs_as_tensor(model._last_obs, model.device)
            actions = th.as_tensor(self.locals["buffer_actions"], device=model.device)
            return self.critic.units * self.critic.value(obs, actions).cpu().numpy()


class EvaluationCallback(BaseCallback):
    """Evaluates every ``every`` env steps, and before the first, on envs and seeds of its own.

    With 0 ``episodes`` it does nothing, and no other env is made: there may be only one.
    """

    model: OffPolicyAlgorithm

    def __init__(
        self,
        path: Path,
        make_env: Callable[[], gym.Env[Any, Any]],
        every: int,
        episodes: int,
        run_seed: int,
        interrupt: Callable[[], None] = lambda: None,
        snapshot: Callable[[], dict[str, Any]] | None = None,
        enough: Callable[[Mapping[str, Any]], bool] = lambda row: False,
        discounted: bool = False,
    ) -> None:
        super().__init__()
        self.rows = records.Rows(path)
        self.make_env, self.every, self.episodes, self.run_seed = make_env, every, episodes, run_seed
        self.interrupt = interrupt
        """called at each step of an evaluation; may raise to end it, as if it had not begun"""
        self.discounted = discounted
        """whether discounted and average returns are recorded too"""
        self.snapshot, self.enough = snapshot, enough
        """what is kept of the best policy, and whether a row ends training with ``Reached``"""
        self.best: dict[str, Any] | None = None
        """step and mean return of the best evaluation, the first of equals, and its snapshot"""
        self.number, self.next = 0, 0
        """evaluations so far, and the env step of the next"""
        self.seconds = 0.0
        self.last: dict[str, Any] | None = None
        self._envs: list[gym.Env[Any, Any]] = []

    def _on_rollout_start(self) -> None:
        # between training and the next step: what is evaluated is what the steps so far have made of the policy
        if self.episodes and self.model.num_timesteps >= self.next:
            self.evaluate()
            assert self.last is not None
            if self.enough(self.last):
                raise Reached

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self.episodes and (self.last is None or self.last["step"] < self.model.num_timesteps):
            self.evaluate()
        self.close()

    def close(self) -> None:
        for env in self._envs:
            env.close()
        self._envs = []

    def evaluate(self) -> None:
        start = time.perf_counter()
        self._envs = self._envs or [self.make_env() for _ in range(self.episodes)]
        seeds = evaluation_seeds(self.run_seed, self.number, self.episodes)
        gamma = self.model.gamma if self.discounted else None
        episodes = evaluate(self._act, self._envs, seeds, gamma)
        self.last = {"step": self.model.num_timesteps, "number": self.number, **summary(episodes)}
        self.rows.append(self.last)
        for key in ("mean_return", "std_return", "mean_discounted", "mean_reward", "success"):
            if key in self.last:
                self.logger.record(f"evaluation/{key}", self.last[key])
        mean = self.last["mean_return"]
        if self.snapshot is not None and (self.best is None or mean > self.best["mean_return"]):
            self.best = {"step": self.model.num_timesteps, "mean_return": mean, **self.snapshot()}
        self.number += 1
        self.next = (self.model.num_timesteps // self.every + 1) * self.every
        self.seconds += time.perf_counter() - start

    def _act(self, obs: Any) -> Any:
        self.interrupt()
        normalizer = self.model.get_vec_normalize_env()
        return self.model.predict(obs if normalizer is None else normalizer.normalize_obs(obs), deterministic=True)[0]

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number, "next": self.next, "last": self.last, "best": self.best}

    def load_state_dict(self, state: Mapping[str, Any], model: OffPolicyAlgorithm) -> None:
        self.number, self.next, self.last = state["number"], state["next"], state["last"]
        self.best = state.get("best")


class Reached(Exception):
    """An evaluation was good enough."""


class LogCallback(BaseCallback):
    """Writes the log every ``every`` env steps."""

    model: OffPolicyAlgorithm

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every, self.next, self.last = every, every, -1

    def _on_rollout_start(self) -> None:
        if self.model.num_timesteps >= self.next:
            self._write()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self.last < self.model.num_timesteps:
            self._write()

    def _write(self) -> None:
        self.model.dump_logs()
        self.last = self.model.num_timesteps
        self.next = (self.last // self.every + 1) * self.every

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next, "last": self.last}

    def load_state_dict(self, state: Mapping[str, Any], model: OffPolicyAlgorithm) -> None:
        self.next, self.last = state["next"], state["last"]


class DivergenceCallback(BaseCallback):
    """Looks every ``every`` env steps whether Q is more than any policy could earn, by far.

    No return is larger than ``value_limit``, the largest reward seen at every step for ever. Beyond ten times that, or
    when it is NaN, the critic has diverged: ``on_fault`` says whether to stop or to warn.
    """

    model: Calibrated
    MARGIN, SMALL = 10.0, 100.0

    def __init__(self, every: int, on_fault: OnFault = "stop") -> None:
        super().__init__()
        self.every, self.on_fault, self.next, self.warned = every, on_fault, 0, False

    def _on_rollout_start(self) -> None:
        if self.model.num_timesteps >= self.next:
            self.next = self.model.num_timesteps + self.every
            self.check()

    def _on_step(self) -> bool:
        return True

    def check(self) -> None:
        q = self.model.mean_target()
        allowed = max(self.MARGIN * self.model.value_limit(), self.SMALL)
        if q is None or abs(q) <= allowed:  # NaN is not
            return
        what = (
            f"the critic has diverged: its targets average {q:.4g} at step {self.model.num_timesteps}, but the largest "
            f"reward seen, {self.model.largest_reward:.4g}, allows no return beyond {self.model.value_limit():.4g}"
        )
        if self.on_fault == "stop" or not math.isfinite(q):
            raise Diverged(f"{what}; a smaller learning rate or rewards of a smaller scale may help")
        if not self.warned:
            warnings.warn(what, stacklevel=2)
        self.warned = True


class Diverged(AccError):
    """Training made no sense any more."""


def python_number(value: Any) -> Any:
    """Numbers of numpy and torch as Python's."""
    return value.item() if isinstance(value, (np.generic, th.Tensor)) else value
