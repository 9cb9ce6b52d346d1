"""The envs that a run learns from, side by side."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecMonitor, VecNormalize

from acc_rl.core.errors import SettingError
from acc_rl.runs import envs
from acc_rl.runs.callbacks import OnFault
from acc_rl.runs.interrupt import StopRequest
from acc_rl.runs.spec import RunSpec


def training_envs(spec: RunSpec, on_fault: OnFault, gamma: float) -> VecEnv:
    make = [partial(_training_env, spec, index, on_fault) for index in range(spec.n_envs)]
    if spec.vec == "subproc":
        vec_env: VecEnv = Processes([partial(_undisturbed, each) for each in make])
    else:
        vec_env = DummyVecEnv(make)  # type: ignore[arg-type]
    if spec.horizon is not None:
        vec_env = VecMonitor(vec_env)
    if not spec.normalize:
        return vec_env
    try:
        keys = _normalized_keys(spec, vec_env.observation_space)
    except SettingError:
        vec_env.close()
        raise
    return VecNormalize(vec_env, gamma=gamma, norm_obs_keys=keys)


class Processes(SubprocVecEnv):
    """Rewards and observations of the types that ``DummyVecEnv`` gives them, so that a run is the same with either."""

    def reset(self) -> Any:
        return self._as_told(super().reset())

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = super().step_wait()
        return self._as_told(observations), np.asarray(rewards, np.float32), dones, infos

    def close(self) -> None:
        with suppress(EOFError, OSError):  # of a process that has died; what it has done to the run is reported
            super().close()

    def _as_told(self, observations: Any) -> Any:
        space = self.observation_space
        if isinstance(space, spaces.Dict):
            return {key: np.asarray(each, space[key].dtype) for key, each in observations.items()}
        return np.asarray(observations, space.dtype)


@contextmanager
def processes_live(spec: RunSpec) -> Iterator[None]:
    """The end of an env's process is an error of one line; the process itself has printed why"""
    try:
        yield
    except (EOFError, ConnectionError) as error:
        if spec.vec != "subproc":
            raise
        raise envs.EnvError(
            f"{spec.env}: the process of an env has died, see above; --vec dummy may tell more"
        ) from error


def _training_env(spec: RunSpec, index: int, on_fault: OnFault) -> envs.SeededEpisodes:
    env = envs.make(spec, endless=spec.horizon is not None)
    # without it the model itself stops at NaN
    checked = envs.FiniteValues(env, on_fault) if on_fault == "warn" else env
    # Monitor would keep the rewards of all steps until an episode ends
    return envs.SeededEpisodes(Monitor(checked) if spec.horizon is None else checked, spec.seed, index)


def _undisturbed(make: partial[envs.SeededEpisodes]) -> envs.SeededEpisodes:
    """In a process of its own: a signal for the whole group is the trainer's, which still has to save"""
    for number in StopRequest.SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return make()


def _normalized_keys(spec: RunSpec, space: spaces.Space[object]) -> list[str] | None:
    """Of observations that are dictionaries, the entries that are numbers, not images"""
    parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
    keys = [key for key, part in parts.items() if isinstance(part, spaces.Box) and not is_image_space(part)]
    if not keys:
        raise SettingError(f"normalize is True, but {spec.env} has observations {space}: only a Box of numbers can be")
    return keys if isinstance(space, spaces.Dict) else None
