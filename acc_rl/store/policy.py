"""The files of a trained policy, which cannot run code: weights in safetensors, everything else in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from safetensors.torch import save
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from torch import nn

from acc_rl.algos.saved import ACTIVATIONS
from acc_rl.core.errors import AccError
from acc_rl.store import records
from acc_rl.store.files import write_whole

SCHEMA = 1


def policy_arguments(settings: Mapping[str, Any], discrete: bool) -> dict[str, Any]:
    """SB3's ``policy_kwargs`` for hidden sizes and activation"""
    arguments: dict[str, Any] = {}
    sizes = {name: list(settings[name]) for name in ("pi", "qf") if settings.get(name) is not None}
    if discrete and sizes:
        if "pi" in sizes:
            raise AccError("pi is given, but an algorithm for discrete actions has no actor: use qf")
        arguments["net_arch"] = sizes["qf"]
    elif sizes:
        arguments["net_arch"] = sizes
    if settings.get("activation") is not None:
        arguments["activation_fn"] = ACTIVATIONS[settings["activation"]]
    if settings.get("nets") is not None:
        if discrete:
            raise AccError(
                f"nets is {settings['nets']!r}, but algorithms for discrete actions have SB3's own: leave it out"
            )
        arguments["nets"] = settings["nets"]
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


def acting_module(policy: BasePolicy) -> nn.Module:
    """What is needed to act: the actor, or the network whose largest value is followed"""
    for name in ("actor", "q_net", "quantile_net"):
        module = getattr(policy, name, None)
        if isinstance(module, nn.Module):
            return module
    raise AccError(f"{type(policy).__name__} has no actor, q_net or quantile_net")


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Box):
        bounds = {name: np.asarray(getattr(space, name)).astype(str).tolist() for name in ("low", "high")}
        return {"type": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": {key: space_to_json(each) for key, each in space.spaces.items()}}
    raise AccError(f"a policy on {space} cannot be written: only Box, Discrete and Dict spaces can")


def space_from_json(content: Mapping[str, Any]) -> Any:
    if content["type"] == "Box":
        shape, dtype = tuple(content["shape"]), np.dtype(content["dtype"])
        # numbers are strings, because JSON knows no infinity
        low, high = (np.array(content[name], dtype=float) for name in ("low", "high"))
        if not low.shape == high.shape == shape or dtype.kind not in "fiub":
            raise AccError(f"a Box of shape {shape} and type {dtype} has bounds of shapes {low.shape}, {high.shape}")
        return spaces.Box(low.astype(dtype), high.astype(dtype), shape, dtype.type)
    if content["type"] == "Discrete":
        return spaces.Discrete(content["n"], start=content["start"])
    if content["type"] == "Dict":
        return spaces.Dict({key: space_from_json(each) for key, each in content["spaces"].items()})
    raise AccError(f"unknown space {content['type']!r}")


def nets(policy_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers among SB3's ``policy_kwargs`` that decide the shapes of the nets"""
    return {key: value for key, value in policy_kwargs.items() if isinstance(value, (int, bool)) and key != "device"}
