"""What may have state that no checkpoint keeps: found before training, and reported by name."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ProgressBarCallback
from stable_baselines3.common.noise import (
    ActionNoise,
    NormalActionNoise,
    OrnsteinUhlenbeckActionNoise,
    VectorizedActionNoise,
)
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecExtractDictObs,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from acc_rl.algos.buffers import SharedNStepReplayBuffer, SharedReplayBuffer
from acc_rl.algos.calibrated import Calibrated
from acc_rl.runs.callbacks import DivergenceCallback
from acc_rl.runs.envs import SeededEpisodes
from acc_rl.runs.progress import ProgressCallback
from acc_rl.runs.spec import RunSpec

# each is saved, or has nothing that training depends on; subclasses may add something
VEC_WRAPPERS = (VecNormalize, VecMonitor, VecTransposeImage, VecExtractDictObs, VecCheckNan)
NOISES = (NormalActionNoise, OrnsteinUhlenbeckActionNoise)
BUFFERS = (SharedReplayBuffer, SharedNStepReplayBuffer)
CALLBACKS = (DivergenceCallback, ProgressCallback, ProgressBarCallback)


def warn_of_lost_state(
    model: Calibrated, callback: BaseCallback, kept: Collection[Any], digests: Mapping[str, bytes]
) -> None:
    """One warning that names all that may have state outside checkpoints; ``kept`` are the callbacks that have not.

    ``digests`` are the fingerprints of the model's other attributes.
    """
    assert model.env is not None
    found = [*_of_envs(model.env), *_of_model(model)]
    found += [f"attribute {name}, which cannot be pickled" for name, digest in digests.items() if not digest]
    found += [f"callback {_name(each)}" for each in _flat(callback) if not _is_kept(each, kept)]
    if found:
        warnings.warn(
            f"this run cannot be resumed exactly because no checkpoint keeps the state of {', '.join(found)}",
            stacklevel=3,
        )


def wrapper_notice(spec: RunSpec) -> str | None:
    """What exact resume asks of wrappers of the user's own, which nobody can see from outside"""
    if not spec.wrapper:
        return None
    return (
        f"{', '.join(spec.wrapper)}: resumed exactly if it leaves nothing from one episode to the next; otherwise a "
        "warning when the run resumes"
    )


def _of_envs(env: VecEnv) -> Iterator[str]:
    while isinstance(env, VecEnvWrapper):
        if type(env) not in VEC_WRAPPERS:
            yield f"VecEnvWrapper {type(env).__name__}"
        env = env.venv
    if not all(env.env_is_wrapped(SeededEpisodes)):
        yield "an env that is not in acc_rl.runs.envs.SeededEpisodes"
        return
    outside = [name for text in env.env_method("__str__") for name in _outside(text)]
    inside = [name for names in env.env_method("stateful_wrappers") for name in names]
    yield from dict.fromkeys(f"env wrapper {name} outside SeededEpisodes" for name in outside)
    yield from dict.fromkeys(f"env wrapper {name}" for name in inside)


def _outside(text: str) -> list[str]:
    """Of ``<Monitor<SeededEpisodes<...>>>``, as Gymnasium writes an env, what is left of ours"""
    return re.findall(r"<(\w+)", text.partition(f"<{SeededEpisodes.__name__}<")[0])


def _of_model(model: Calibrated) -> Iterator[str]:
    for noise in _noises(model.action_noise):
        if type(noise) not in NOISES:
            yield f"action noise {type(noise).__name__}"
    if type(model.replay_buffer) not in BUFFERS:
        yield f"replay buffer {type(model.replay_buffer).__name__}"


def _noises(noise: ActionNoise | None) -> list[ActionNoise]:
    if isinstance(noise, VectorizedActionNoise):
        return [noise.base_noise]
    return [] if noise is None else [noise]


def _flat(callback: BaseCallback) -> list[BaseCallback]:
    if isinstance(callback, CallbackList):
        return [each for part in callback.callbacks for each in _flat(part)]
    return [callback]


def _is_kept(callback: BaseCallback, kept: Collection[Any]) -> bool:
    return type(callback) in CALLBACKS or any(callback is each for each in kept)


def _name(callback: BaseCallback) -> str:
    """Of a function, what ``learn`` has made a callback of, its own"""
    return getattr(getattr(callback, "callback", None), "__name__", type(callback).__name__)
