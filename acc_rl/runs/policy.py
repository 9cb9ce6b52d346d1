"""A trained policy as two files that cannot run code: weights in safetensors, everything else in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from torch import nn

from acc_rl.algos.registry import find
from acc_rl.runs import records
from acc_rl.runs.files import write_whole

SCHEMA = 1
ACTIVATIONS: Mapping[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU, "silu": nn.SiLU}


class Policy:
    """Observations in, actions out, both as the env knows them; one or a batch."""

    def __init__(self, policy: BasePolicy) -> None:
        self.policy = policy

    def __call__(self, observation: Any, deterministic: bool = True) -> Any:
        # one discrete action is a number, which can be a key, not an array without dimensions
        return self.policy.predict(observation, deterministic=deterministic)[0][()]


def policy_arguments(settings: Mapping[str, Any], discrete: bool) -> dict[str, Any]:
    """SB3's ``policy_kwargs`` for hidden sizes and activation"""
    arguments: dict[str, Any] = {}
    sizes = {name: list(settings[name]) for name in ("pi", "qf") if settings.get(name) is not None}
    if discrete and sizes:
        if "pi" in sizes:
            raise ValueError("pi is given, but an algorithm for discrete actions has no actor: use qf")
        arguments["net_arch"] = sizes["qf"]
    elif sizes:
        arguments["net_arch"] = sizes
    if settings.get("activation") is not None:
        arguments["activation_fn"] = ACTIVATIONS[settings["activation"]]
    return arguments


def save_policy(folder: Path, model: OffPolicyAlgorithm, description: Mapping[str, Any]) -> None:
    """``policy.safetensors`` and ``policy.json`` of a model; ``description`` says how its policy was built."""
    module = acting_module(model.policy)
    weights = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
    write_whole(folder / records.POLICY_WEIGHTS, save(weights))
    content = {
        "schema": SCHEMA,
        **description,
        "observation_space": space_to_json(model.observation_space),
        "action_space": space_to_json(model.action_space),
    }
    records.write_json(folder / records.POLICY, content)


def load_policy(folder: Path | str) -> Policy:
    """The policy in a run's folder."""
    folder = Path(folder)
    content = records.read_json(folder / records.POLICY)
    if content.get("schema") != SCHEMA:
        raise records.RecordError(f"{folder / records.POLICY}: schema is {content.get('schema')!r}, not {SCHEMA}")
    try:
        entry = find(content["algo"])
        policy_class = entry.load().policy_aliases[content["policy"]]
        discrete = content["action_space"]["type"] == "Discrete"
        policy = policy_class(
            space_from_json(content["observation_space"]),
            space_from_json(content["action_space"]),
            lambda progress: 0.0,
            **policy_arguments(content["settings"], discrete),
            **content["nets"],
        )
        acting_module(policy).load_state_dict(load_file(folder / records.POLICY_WEIGHTS))
    except (
        AssertionError,
        AttributeError,
        LookupError,
        OSError,
        RuntimeError,
        SafetensorError,
        TypeError,
        ValueError,
    ) as error:
        raise records.RecordError(f"{folder}: no policy that can be loaded: {error}") from None
    return Policy(policy)


def acting_module(policy: BasePolicy) -> nn.Module:
    """What is needed to act: the actor, or the network whose largest value is followed"""
    for name in ("actor", "q_net", "quantile_net"):
        module = getattr(policy, name, None)
        if isinstance(module, nn.Module):
            return module
    raise ValueError(f"{type(policy).__name__} has no actor, q_net or quantile_net")


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Box):
        bounds = {name: np.asarray(getattr(space, name)).astype(str).tolist() for name in ("low", "high")}
        return {"type": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": {key: space_to_json(each) for key, each in space.spaces.items()}}
    raise ValueError(f"a policy on {space} cannot be written: only Box, Discrete and Dict spaces can")


def space_from_json(content: Mapping[str, Any]) -> Any:
    if content["type"] == "Box":
        # numbers are strings, because JSON knows no infinity
        low, high = (np.array(content[name], dtype=float).astype(content["dtype"]) for name in ("low", "high"))
        return spaces.Box(low, high, tuple(content["shape"]), np.dtype(content["dtype"]).type)
    if content["type"] == "Discrete":
        return spaces.Discrete(content["n"], start=content["start"])
    if content["type"] == "Dict":
        return spaces.Dict({key: space_from_json(each) for key, each in content["spaces"].items()})
    raise ValueError(f"unknown space {content['type']!r}")


def nets(policy_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers among SB3's ``policy_kwargs`` that decide the shapes of the nets"""
    return {key: value for key, value in policy_kwargs.items() if isinstance(value, (int, bool)) and key != "device"}
