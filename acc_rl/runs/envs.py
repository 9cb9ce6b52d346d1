"""Environments whose episodes are functions of the run's seed."""

from __future__ import annotations

import hashlib
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space

from acc_rl.core.errors import AccError, MissingExtra, SettingError
from acc_rl.runs import metaworld
from acc_rl.runs.plugins import load_class
from acc_rl.runs.spec import RunSpec
from acc_rl.runs.tasks import METAWORLD

TRAINING, EVALUATION = 0, 1
"""streams of seeds: what one uses never touches the other"""


def episode_seed(run_seed: int, stream: int, index: int, episode: int) -> int:
    return int(np.random.SeedSequence([run_seed, stream, index, episode]).generate_state(1)[0])


OVER_EPISODES = ("NormalizeObservation", "NormalizeReward", "EpisodicLifeEnv")
"""wrappers of Gymnasium and SB3 that carry state from one episode into the next"""
SMALLEST = 36
"""pixels of an image's height and width that SB3's NatureCNN can take"""
LONGEST = 100_000
"""steps of an episode that no time limit ends, and of one that is played again to resume"""


class EnvError(AccError):
    """The environment itself failed."""


class SeededEpisodes(gym.Wrapper[Any, Any, Any, Any]):
    """Episode k of env i starts from a seed of its own, so that it does not depend on what came before.

    An episode is a function of its seed and its actions: these are remembered, so that the env can be brought back to
    where it is now without knowing how to save itself. A running hash of all that the open episode has returned shows
    whether it really is. Of an episode longer than ``LONGEST`` no action is kept: whoever resumes starts a new one.
    """

    def __init__(self, env: gym.Env[Any, Any], run_seed: int, index: int) -> None:
        super().__init__(env)
        self.run_seed, self.index, self.episode = run_seed, index, 0
        self._actions: list[Any] | None = []
        self._observation: Any = None
        self._returned = hashlib.sha256()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seed = episode_seed(self.run_seed, TRAINING, self.index, self.episode)
        self.episode += 1
        self._actions = []
        self._observation, info = self.env.reset(seed=seed, options=options)
        self._returned = hashlib.sha256()
        self._note(self._observation)
        return self._observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._remember(action)
        self._observation, reward, terminated, truncated, info = self.env.step(action)
        for value in (self._observation, reward, terminated, truncated):
            self._note(value)
        return self._observation, reward, terminated, truncated, info

    def _remember(self, action: Any) -> None:
        if self._actions is None:
            return
        self._actions.append(np.array(action))
        if len(self._actions) > LONGEST:
            self._actions = None
            warnings.warn(
                f"the open episode of env {self.index} has more than {LONGEST} steps: a run that resumes from here on "
                "starts a new one, and is not bit-identical",
                stacklevel=3,
            )

    def _note(self, value: Any) -> None:
        if isinstance(value, dict):
            for each in value.values():
                self._note(each)
        else:
            self._returned.update(np.asarray(value).tobytes())

    def position(self) -> dict[str, Any]:
        """Where the env is: the number of its episode, the actions in it, what is observed there and was returned"""
        actions = np.stack(self._actions) if self._actions else np.empty(0)
        return {
            "episode": self.episode,
            "actions": None if self._actions is None else actions,
            "observation": _arrays(self._observation),
            "returned": self._returned.hexdigest(),
        }

    def go_to(self, position: Mapping[str, Any]) -> bool:
        """Play an episode again up to a position; whether the env returned the same, bit for bit"""
        if position["actions"] is None:
            self.episode = position["episode"]
            return False
        self.episode = position["episode"] - 1
        self.reset()
        for action in position["actions"]:
            _, _, terminated, truncated, _ = self.step(action)
            if terminated or truncated:
                return False
        returned = self._returned.hexdigest()
        # checkpoints written before there was a hash have none
        same = position.get("returned", returned) == returned
        return same and _equal(_arrays(self._observation), position["observation"])

    def stateful_wrappers(self) -> list[str]:
        """The names of the wrappers inside that are known to carry state from one episode into the next"""
        return [
            type(each).__name__
            for each in _wrappers(self.env)
            if any(base.__name__ in OVER_EPISODES for base in type(each).__mro__)
        ]


class FiniteValues(gym.Wrapper[Any, Any, Any, Any]):
    """Stops at NaN and infinite values, or replaces them: observations by the last good ones, rewards by 0."""

    def __init__(self, env: gym.Env[Any, Any], on_fault: Literal["stop", "warn"]) -> None:
        super().__init__(env)
        self.on_fault = on_fault
        self.replaced = 0
        """steps in which something was replaced"""
        self._good: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._good = None
        return self._checked(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not np.isfinite(float(reward)):
            self._tell("reward")
            reward = 0.0
        return self._checked(observation), reward, terminated, truncated, info

    def _checked(self, observation: Any) -> Any:
        if isinstance(observation, dict):
            good = self._good or {}
            self._good = {key: self._finite(value, good.get(key)) for key, value in observation.items()}
        else:
            self._good = self._finite(observation, self._good)
        return self._good

    def _finite(self, values: Any, good: Any) -> Any:
        values = np.asarray(values)
        if values.dtype.kind != "f" or np.isfinite(values).all():
            return values
        self._tell("observation")
        return np.where(np.isfinite(values), values, 0.0 if good is None else good).astype(values.dtype)

    def _tell(self, what: str) -> None:
        message = f"the environment returned a{'n' if what[0] == 'o' else ''} {what} that is NaN or infinite"
        if self.on_fault == "stop":
            raise EnvError(message)
        self.replaced += 1
        if self.replaced == 1:
            warnings.warn(f"{message}: it was replaced", stacklevel=3)


def _arrays(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: _arrays(value) for key, value in observation.items()}
    return np.array(observation)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return np.array_equal(a, b)


def make(task: str | RunSpec, horizon: int | None = None, endless: bool = False, **kwargs: Any) -> gym.Env[Any, Any]:
    """A task by its id, or as a run has it, with arguments and wrappers; its faults are errors of one line.

    It is cut after ``horizon`` steps, or else must end unless ``endless``.
    """
    if horizon is not None and horizon < 1:
        raise SettingError(f"horizon is {horizon}, but must be an integer >= 1")
    if isinstance(task, RunSpec):
        limit = {} if task.time_limit is None else {"max_episode_steps": task.time_limit}
        env = _wrap(_make(task.env, {**task.env_kwargs, **limit, **kwargs}), task)
    else:
        env = _make(task, kwargs)
    cut = env if horizon is None else gym.wrappers.TimeLimit(env, horizon)
    return Guarded(cut, task.env if isinstance(task, RunSpec) else task, endless)


def _make(env_id: str, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    try:
        return (metaworld.make if env_id.startswith(METAWORLD) else gym.make)(env_id, **kwargs)
    except MissingExtra:
        raise
    except gym.error.DependencyNotInstalled as error:
        if "mujoco" in str(error).lower():
            raise MissingExtra(f"{env_id} needs MuJoCo: pip install 'acc_rl[mujoco]'") from None
        raise
    except ImportError as error:
        raise EnvError(f"{env_id} cannot be imported: {' '.join(str(error).split())}") from None
    except (gym.error.Error, AccError):  # which say what is wrong
        raise
    except Exception as error:
        raise EnvError(f"{env_id} cannot be made: {_cause(error)}; its arguments: --env-kwargs NAME=VALUE") from error


def _wrap(env: gym.Env[Any, Any], task: RunSpec) -> gym.Env[Any, Any]:
    for name in task.wrapper:
        wrapper = load_class("wrapper", name, gym.Wrapper)
        try:
            env = wrapper(env)
        except Exception as error:
            raise EnvError(f"wrapper {name} cannot be put around {task.env}: {_cause(error)}") from error
    return env


def _cause(error: Exception) -> str:
    """In one line, with the place in the env's code"""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({Path(place.filename).name}, line {place.lineno})"


class Guarded(gym.Wrapper[Any, Any, Any, Any]):
    """Names env, step and cause where an env fails, its reward is not a number, or an episode never ends.

    Without an end, evaluation would wait forever.
    """

    def __init__(self, env: gym.Env[Any, Any], env_id: str, endless: bool = False) -> None:
        super().__init__(env)
        self.env_id, self.steps, self.length, self.limited = env_id, 0, 0, endless or _limited(env)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.length = 0
        try:
            return self.env.reset(**kwargs)
        except Exception as error:
            raise EnvError(f"{self.env_id}: its reset failed: {_cause(error)}, after {self.steps} steps") from error

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.steps, self.length = self.steps + 1, self.length + 1
        if self.length > LONGEST and not self.limited:
            raise EnvError(
                f"{self.env_id} has no time limit, and an episode has not ended after {LONGEST} steps: "
                "give it one with --time-limit 1000, or use --horizon N if it never ends"
            )
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
        except Exception as error:
            raise EnvError(f"{self.env_id}: its step {self.steps} failed: {_cause(error)}") from error
        if np.ndim(reward) or np.asarray(reward).dtype.kind not in "biuf":  # type: ignore[arg-type]
            raise EnvError(f"{self.env_id}: the reward of its step {self.steps} is {reward!r}, but must be a number")
        return observation, reward, terminated, truncated, info


def _limited(env: gym.Env[Any, Any]) -> bool:
    return any(isinstance(each, gym.wrappers.TimeLimit) for each in _wrappers(env))


def _wrappers(env: gym.Env[Any, Any]) -> Iterator[gym.Wrapper[Any, Any, Any, Any]]:
    """From the outermost on"""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def check(task: RunSpec) -> None:
    """Whether the task can be made, learned, reset, stepped and closed: better to know before a run is set up"""
    if task.env.startswith(METAWORLD) and (task.time_limit or 0) > metaworld.LIMIT:
        raise SettingError(f"time_limit is {task.time_limit}, but Meta-World's tasks end after {metaworld.LIMIT} steps")
    env = make(task, endless=task.horizon is not None)
    try:
        _check_spaces(task.env, env.observation_space, env.action_space)
        env.action_space.seed(0)
        env.reset(seed=0)
        env.step(env.action_space.sample())
    finally:
        env.close()


def _check_spaces(env_id: str, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
    parts = list(observations.spaces.values()) if isinstance(observations, spaces.Dict) else [observations]
    if not parts or not all(isinstance(part, (spaces.Box, spaces.Discrete)) for part in parts):
        raise EnvError(
            f"{env_id} has observations {observations}, but must have Box, Discrete, or a Dict of these: "
            "gymnasium.wrappers.FlattenObservation makes a Box of others"
        )
    for part in filter(is_image_space, parts):
        if sorted(part.shape or ())[1] < SMALLEST:
            raise EnvError(
                f"{env_id} has images of {part.shape}, but SB3's convolutions need {SMALLEST} x {SMALLEST}: "
                "see gymnasium.wrappers.ResizeObservation or FlattenObservation"
            )
    for name, part in [*(("observations", each) for each in parts), ("actions", actions)]:
        if isinstance(part, spaces.Discrete) and part.start != 0:
            raise EnvError(
                f"{env_id} has {name} {part}, but they must begin with 0: a wrapper can subtract {part.start}"
            )
    if isinstance(actions, spaces.Box) and not actions.is_bounded():
        raise EnvError(
            f"{env_id} has actions {actions}, but must have finite bounds: give its action space low and high"
        )
