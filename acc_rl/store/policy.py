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
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor, nn

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
    write_policy(folder, model, description, **acting_state(model))


def acting_state(model: OffPolicyAlgorithm) -> dict[str, Any]:
    """Copies of what training changes in a policy: weights, and the statistics of VecNormalize"""
    weights = acting_module(model.policy).state_dict()
    found = model.get_vec_normalize_env()
    return {
        "weights": {name: value.detach().cpu().clone().contiguous() for name, value in weights.items()},
        "normalizer": None if found is None else normalizer_to_json(found),
    }


def write_policy(
    folder: Path,
    model: OffPolicyAlgorithm,
    description: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    normalizer: Mapping[str, Any] | None,
) -> None:
    """As ``save_policy``, with the weights and statistics of another time"""
    write_whole(folder / records.POLICY_WEIGHTS, save(dict(weights)))
    content = {
        "schema": SCHEMA,
        **description,
        "observation_space": space_to_json(model.observation_space),
        "action_space": space_to_json(model.action_space),
        **({} if normalizer is None else {"normalizer": normalizer}),
    }
    records.write_json(folder / records.POLICY, content)


def normalizer_to_json(normalizer: VecNormalize) -> dict[str, Any]:
    """Statistics of the observations by key, "" where they are no dictionaries"""
    found = normalizer.obs_rms if isinstance(normalizer.obs_rms, dict) else {"": normalizer.obs_rms}
    statistics = {key: {"mean": each.mean.tolist(), "var": each.var.tolist()} for key, each in found.items()}
    return {"clip": normalizer.clip_obs, "epsilon": normalizer.epsilon, "statistics": statistics}


class ObservationNormalizer:
    """clip((observation - mean) / sqrt(var + epsilon), -clip, clip), with statistics that stay as they are."""

    def __init__(self, content: Mapping[str, Any], space: spaces.Space[Any]) -> None:
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        self.clip = float(content["clip"])
        self.mean, self.scale = {}, {}
        for key, each in content["statistics"].items():
            mean, var = np.array(each["mean"], float), np.array(each["var"], float)
            if not mean.shape == var.shape == parts[key].shape or not np.isfinite([mean, var]).all() or (var < 0).any():
                raise AccError(f"its statistics of observations {key} do not fit a {parts[key]}")
            self.mean[key], self.scale[key] = mean, np.sqrt(var + float(content["epsilon"]))

    def __call__(self, observation: Any) -> Any:
        if isinstance(observation, dict):
            return {key: self._one(key, each) if key in self.mean else each for key, each in observation.items()}
        return self._one("", observation)

    def _one(self, key: str, values: Any) -> Any:
        return np.clip((values - self.mean[key]) / self.scale[key], -self.clip, self.clip).astype(np.float32)


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
        low, high = (np.array(content[name], dtype=str) for name in ("low", "high"))
        if not low.shape == high.shape == shape or dtype.kind not in "fiub":
            raise AccError(f"a Box of shape {shape} and type {dtype} has bounds of shapes {low.shape}, {high.shape}")
        low, high = (each == "True" if dtype.kind == "b" else each.astype(dtype) for each in (low, high))
        return spaces.Box(low, high, shape, dtype.type)
    if content["type"] == "Discrete":
        return spaces.Discrete(content["n"], start=content["start"])
    if content["type"] == "Dict":
        return spaces.Dict({key: space_from_json(each) for key, each in content["spaces"].items()})
    raise AccError(f"unknown space {content['type']!r}")


def nets(policy_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers among SB3's ``policy_kwargs`` that decide the shapes of the nets"""
    return {key: value for key, value in policy_kwargs.items() if isinstance(value, (int, bool)) and key != "device"}
