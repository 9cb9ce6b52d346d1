"""A spec becomes a model."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import gymnasium as gym
import torch as th
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.type_aliases import TrainFreq

from acc_rl.algos.calibrated import Calibrated
from acc_rl.algos.registry import find
from acc_rl.core.controller import TURNS
from acc_rl.core.errors import AccError
from acc_rl.runs.callbacks import OnFault
from acc_rl.runs.spec import SETTINGS, RunSpec, Settings, algorithm_arguments
from acc_rl.runs.vectors import training_envs
from acc_rl.store.policy import nets, policy_arguments

DISCRETE = ("discrete", "qrdqn")
"""modules of the algorithms for discrete actions"""


def make_model(spec: RunSpec, on_fault: OnFault = "stop") -> Calibrated:
    if spec.device.startswith("cuda") and int(spec.device.partition(":")[2] or 0) >= th.cuda.device_count():
        # SB3 would take the CPU instead and say nothing
        raise AccError(f"device is {spec.device}, but there are {th.cuda.device_count()} GPUs here: use auto or cpu")
    entry, arguments = find(spec.algo), _arguments(spec)
    vec_env = training_envs(spec, on_fault, arguments.get("gamma", 0.99))
    entry.load().check_action_space(vec_env.action_space)
    discrete = isinstance(vec_env.action_space, spaces.Discrete)
    policy_kwargs = entry.policy_kwargs(policy_arguments(spec.as_dict()["settings"], discrete))
    return entry.load()(
        policy_name(vec_env.observation_space),
        vec_env,
        seed=spec.seed,
        device=spec.device,
        policy_kwargs=policy_kwargs,
        **arguments,
    )


def _arguments(spec: RunSpec) -> dict[str, Any]:
    entry = find(spec.algo)
    arguments, known = {**entry.settings, **algorithm_arguments(spec)}, accepted(entry.load())
    for name in arguments:
        if name not in known:
            raise AccError(f"{spec.algo} has no setting {name}; it takes {', '.join(sorted(known))}")
    return arguments


def check_settings(spec: RunSpec) -> None:
    """An error for settings that the algorithm lacks, or that do not fit together, whatever the task"""
    entry, arguments = find(spec.algo), {**_arguments(spec), "buffer_size": 1}
    discrete = entry.module in DISCRETE
    policy_kwargs = policy_arguments(spec.as_dict()["settings"], discrete)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entry.make("MlpPolicy", _Smallest(discrete), device="cpu", policy_kwargs=policy_kwargs, **arguments)


def accepted(cls: type[Calibrated]) -> set[str]:
    """The names of all settings that the class takes, or passes to what it is built on"""
    return set(inspect.signature(cls).parameters) & {"bias", *Settings.__dataclass_fields__}


def policy_name(space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.Dict):
        return "MultiInputPolicy"
    return "CnnPolicy" if is_image_space(space) else "MlpPolicy"


def resolved(model: Calibrated) -> dict[str, Any]:
    """All settings in effect, the defaults among them"""
    values = {
        name: getattr(model, name, None) for name in accepted(type(model)) if name not in ("bias", "learning_rate")
    }
    plain = {name: value for name, value in values.items() if isinstance(value, (int, float, str, bool))}
    plain["learning_rate"] = model.lr_schedule(1.0)
    plain |= nets(model.policy_kwargs)
    net_arch = getattr(model.policy, "net_arch", None)
    return {**dict(sorted(plain.items())), "net_arch": net_arch, "bias": vars(model.bias)}


class _Smallest(gym.Env[Any, Any]):
    """Nothing but spaces, for a model that is only looked at"""

    observation_space = spaces.Box(-1, 1, (1,))

    def __init__(self, discrete: bool) -> None:
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-1, 1, (1,))


def default_settings(algo: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and bias of an algorithm where nothing is given, as its model has them; without what an env decides"""
    entry = find(algo)
    discrete = entry.module in DISCRETE
    model = entry.make("MlpPolicy", _Smallest(discrete), device="cpu", seed=0)
    found = resolved(model)
    settings = {name: each for name, each in found.items() if name in SETTINGS or isinstance(each, bool)}
    assert isinstance(model.train_freq, TrainFreq)
    settings |= {"train_freq": model.train_freq.frequency, "nets": None if discrete else "mlp", "activation": "relu"}
    settings |= {} if discrete else {"normalize_observations": found.get("normalize_observations", False)}
    settings |= {"ent_coef": str(settings["ent_coef"])} if "ent_coef" in settings else {}
    arch = found["net_arch"]
    settings |= {"qf": arch} if discrete else {"pi": arch["pi"], "qf": arch["qf"]}
    settings["controller"] = entry.controller
    settings.pop("target_entropy", None)
    read = model.calibration.controller.reads if model.calibration.controller.adapts else ()
    unused = {*TURNS} - {*read} | ({"moving_average"} if entry.rule != "paper" else set())
    return settings, {name: each for name, each in found["bias"].items() if each is not None and name not in unused}
