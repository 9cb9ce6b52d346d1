"""All state of a model that decides how it resumes: weights, optimizers, counters, random streams, envs."""

from __future__ import annotations

import hashlib
import random
import warnings
from collections import deque
from collections.abc import Mapping
from typing import Any

import cloudpickle
import numpy as np
import torch as th
from stable_baselines3.common.noise import ActionNoise, VectorizedActionNoise
from stable_baselines3.common.save_util import recursive_getattr
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize, unwrap_vec_wrapper

from acc_rl.algos.actor_critic import ActorCritic
from acc_rl.algos.calibrated import Calibrated
from acc_rl.core.controller import Controller
from acc_rl.core.errors import AccError
from acc_rl.core.observations import Observations, copied, index_observations
from acc_rl.runs.envs import LONGEST, SeededEpisodes

RUNNING = (
    "num_timesteps",
    "_episode_num",
    "_n_updates",
    "_n_calls",
    "exploration_rate",
    "_current_progress_remaining",
)
"""what SB3's algorithms count"""
CLOCKED = ("start_time", "_total_timesteps", "_num_timesteps_at_start")
"""what belongs to the call of ``learn``, not to the run"""
BY_NAME = ("ep_info_buffer", "ep_success_buffer", "action_space", "observation_space", "action_noise", "controller")
"""what ``gather`` or the calibration asks for by name, or what decides nothing"""
LAST = ("_last_obs", "_last_original_obs", "_last_episode_starts")
NOISE = ("exploration_mat", "exploration_matrices")
LOG = ("name_to_value", "name_to_count", "name_to_excluded")
STATISTICS = ("mean", "var", "count")
OPEN_EPISODES = ("episode_returns", "episode_lengths", "episode_count")
"""of ``VecMonitor``"""


class UndeclaredState(AccError):
    """An attribute changed during training that no checkpoint keeps."""


def gather(model: Calibrated) -> dict[str, Any]:
    """To be called between two steps: after training, before the next action is chosen"""
    assert model.env is not None
    normalizer = model.get_vec_normalize_env()
    return {
        "parameters": model.state_dicts(),
        "variables": {name: recursive_getattr(model, name) for name in model._get_torch_save_params()[1]},
        "attributes": {name: getattr(model, name) for name in _declared(model)},
        "last": {name: getattr(model, name) for name in LAST},
        # how long episodes took by the clock is no state
        "episodes": [{k: v for k, v in each.items() if k != "t"} for each in model.ep_info_buffer or ()],
        "successes": list(model.ep_success_buffer or ()),
        "metrics": {name: list(each) for name, each in model._metrics.items()},
        "log": {name: dict(getattr(model.logger, name)) for name in LOG},
        "envs": [_position(model, i) for i in range(model.n_envs)],
        "normalizer": None if normalizer is None else _normalizer_state(normalizer),
        "monitor": {name: getattr(_monitor(model), name, None) for name in OPEN_EPISODES},
        "random": random_state(model),
    }


def restore(model: Calibrated, state: Mapping[str, Any]) -> dict[int, Observations]:
    """Everything but the random streams and the log, which ``learn`` still uses: ``restore_late`` sets these.

    Gives the last observation of each env that could not be brought back to where it was and has started anew.
    """
    model.set_parameters(dict(state["parameters"]), exact_match=True, device=model.device)
    with th.no_grad():
        for name, value in state["variables"].items():
            recursive_getattr(model, name).copy_(value)
    saved = state["attributes"]
    for name in (*RUNNING, *model.state_attributes):
        if name in saved or hasattr(model, name):
            setattr(model, name, saved[name])
    for name in LAST:
        setattr(model, name, state["last"][name])
    window = model._stats_window_size
    model.ep_info_buffer = deque(state["episodes"], maxlen=window)
    model.ep_success_buffer = deque(state["successes"], maxlen=window)
    model._metrics = {name: (total.to(model.device), count) for name, (total, count) in state["metrics"].items()}
    normalizer = model.get_vec_normalize_env()
    if normalizer is not None:
        _restore_normalizer(normalizer, state["normalizer"])
    if (monitor := _monitor(model)) is not None:
        vars(monitor).update({name: state["monitor"][name] for name in OPEN_EPISODES})
    lost = {i: _go_to(model, i, position) for i, position in enumerate(state["envs"])}
    return {i: last for i, last in lost.items() if last is not None}


# --- attributes: what is declared is saved, and what is not must not change ---


def _declared(model: Calibrated) -> list[str]:
    return [name for name in (*RUNNING, *model.state_attributes) if hasattr(model, name)]


def fingerprints(model: Calibrated) -> dict[str, bytes]:
    """A digest of each attribute that no checkpoint keeps, by its name"""
    state_dicts, variables = model._get_torch_save_params()
    kept = {
        *_declared(model),
        *LAST,
        *CLOCKED,
        *BY_NAME,
        *model._excluded_save_params(),
        *state_dicts,
        *variables,
    }
    # SB3's lists of the statistics of BatchNorm are the nets' own tensors
    found = {name: value for name, value in vars(model).items() if name not in kept and "batch_norm" not in name}
    controller = model.calibration.controller
    if type(controller).state_dict is Controller.state_dict:  # otherwise its author has seen to it
        others = vars(controller).keys() - {*controller.stored}
        found |= {f"controller.{name}": getattr(controller, name) for name in others}
    return {name: _digest(value) for name, value in found.items()}


def _digest(value: Any) -> bytes:
    """Nothing if it cannot be pickled, hence not compared either"""
    try:
        return hashlib.sha256(cloudpickle.dumps(value)).digest()
    except Exception:
        return b""


def require_declared(model: Calibrated, before: Mapping[str, bytes]) -> None:
    """Raise UndeclaredState if an attribute is not what it was when ``fingerprints`` was called"""
    for name, digest in fingerprints(model).items():
        if before.get(name) != digest:
            declaration = (
                "the controller's stored" if name.startswith("controller.") else "the class's state_attributes"
            )
            raise UndeclaredState(
                f"{name} of {type(model).__name__} has changed during training, but no checkpoint keeps it: add it to "
                f"{declaration} (plain data), or keep it out of the model"
            )


# --- random streams ---


def random_state(model: Calibrated) -> dict[str, Any]:
    version, words, gauss = random.getstate()
    name, *rest = np.random.get_state()  # noqa: NPY002, the stream that SB3 draws from
    state: dict[str, Any] = {
        "python": [version, np.array(words, np.uint64), gauss],
        "numpy": [name, *rest],
        "torch": th.get_rng_state(),
        "action_space": model.action_space.np_random.bit_generator.state,
        "action_noise": _noise_state(model.action_noise),
    }
    if model.device.type == "cuda":
        state["cuda"] = th.cuda.get_rng_state(model.device)
    if model.use_sde:
        state["sde"] = {name: getattr(model.actor.action_dist, name) for name in NOISE}
    return state


def restore_late(model: Calibrated, state: Mapping[str, Any]) -> None:
    """To be called in ``learn``, just before the first step"""
    for name, values in state["log"].items():
        getattr(model.logger, name).update(values)
    _restore_random(model, state["random"])


def _restore_random(model: Calibrated, state: Mapping[str, Any]) -> None:
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    np.random.set_state(tuple(state["numpy"]))  # noqa: NPY002
    th.set_rng_state(state["torch"])
    model.action_space.np_random.bit_generator.state = state["action_space"]
    _restore_noise(model.action_noise, state["action_noise"])
    if model.device.type == "cuda":
        th.cuda.set_rng_state(state["cuda"], model.device)
    if model.use_sde:
        for name, value in state["sde"].items():
            setattr(model.actor.action_dist, name, value.to(model.device))


def _noise_state(noise: ActionNoise | None) -> Any:
    """Most noise draws from numpy's stream and has no state; Ornstein-Uhlenbeck remembers its last value."""
    if isinstance(noise, VectorizedActionNoise):
        return [_noise_state(each) for each in noise.noises]
    return getattr(noise, "noise_prev", None)


def _restore_noise(noise: ActionNoise | None, state: Any) -> None:
    if isinstance(noise, VectorizedActionNoise):
        for each, its in zip(noise.noises, state, strict=True):
            _restore_noise(each, its)
    elif noise is not None and hasattr(noise, "noise_prev"):
        noise.noise_prev = state


# --- envs ---


def _position(model: Calibrated, index: int) -> Any:
    assert model.env is not None
    if not model.env.env_is_wrapped(SeededEpisodes, indices=index)[0]:
        return None
    return model.env.env_method("position", indices=index)[0]


def _go_to(model: Calibrated, index: int, position: Any) -> Observations | None:
    """None if the env is where it was; otherwise its last observation, where the episode is closed as truncated."""
    assert model.env is not None
    model.env.env_method("reset", indices=index)  # wrappers outside ours insist on it
    if position is not None and model.env.env_method("go_to", position, indices=index)[0]:
        return None
    long = position is not None and position["actions"] is None
    why = f"more than {LONGEST} steps without an end" if long else "its episodes do not follow from seed and actions"
    warnings.warn(
        f"env {index} could not be brought back to where it was ({why}): "
        "the open episode is closed as truncated and a new one started; the run is no longer bit-identical",
        stacklevel=4,
    )
    assert model.replay_buffer is not None
    normalizer = model.get_vec_normalize_env()
    before = model._last_obs if normalizer is None else model._last_original_obs
    assert before is not None
    newest = model.replay_buffer.pos - 1, index
    if not model.replay_buffer.dones[newest]:  # otherwise the episode had no step yet
        model.replay_buffer.dones[newest] = model.replay_buffer.timeouts[newest] = 1
    last = copied(index_observations(before, index))
    model.calibration.cut(index, last)
    if isinstance(model, ActorCritic):
        model.scale.forget_open(index)
    if (monitor := _monitor(model)) is not None:
        monitor.episode_returns[index] = monitor.episode_lengths[index] = 0
    fresh = model.env.env_method("reset", indices=index)[0][0]
    _put(before, index, fresh)
    if normalizer is not None:
        assert model._last_obs is not None
        normalizer.returns[index] = 0
        _put(model._last_obs, index, normalizer.normalize_obs(fresh))
    return last


def _put(observations: Observations, index: int, fresh: Observations) -> None:
    if isinstance(observations, dict):
        assert isinstance(fresh, dict)
        for key, value in fresh.items():
            observations[key][index] = value
    else:
        observations[index] = fresh


# --- VecMonitor and VecNormalize ---


def _monitor(model: Calibrated) -> VecMonitor | None:
    assert model.env is not None
    return unwrap_vec_wrapper(model.env, VecMonitor)


def _normalizer_state(normalizer: VecNormalize) -> dict[str, Any]:
    obs_rms = getattr(normalizer, "obs_rms", None)
    if isinstance(obs_rms, dict):
        observations: Any = {key: _statistics(each) for key, each in obs_rms.items()}
    else:
        observations = None if obs_rms is None else _statistics(obs_rms)
    kept = {name: getattr(normalizer, name) for name in ("returns", "old_reward", "old_obs", "training")}
    return {"observations": observations, "rewards": _statistics(normalizer.ret_rms), **kept}


def _restore_normalizer(normalizer: VecNormalize, state: Mapping[str, Any]) -> None:
    if isinstance(normalizer.obs_rms, dict):
        for key, each in normalizer.obs_rms.items():
            vars(each).update(state["observations"][key])
    elif state["observations"] is not None:
        vars(normalizer.obs_rms).update(state["observations"])
    vars(normalizer.ret_rms).update(state["rewards"])
    for name in ("returns", "old_reward", "old_obs", "training"):
        setattr(normalizer, name, state[name])


def _statistics(statistics: Any) -> dict[str, Any]:
    return {name: getattr(statistics, name) for name in STATISTICS}
