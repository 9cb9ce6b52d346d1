"""A trained policy from the files of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from stable_baselines3.common.policies import BasePolicy

from acc_rl.algos.registry import find
from acc_rl.store import records
from acc_rl.store.policy import SCHEMA, acting_module, policy_arguments, space_from_json


class Policy:
    """Observations in, actions out, both as the env knows them; one or a batch."""

    def __init__(self, policy: BasePolicy) -> None:
        self.policy = policy

    def __call__(self, observation: Any, deterministic: bool = True) -> Any:
        # one discrete action is a number, which can be a key, not an array without dimensions
        return self.policy.predict(observation, deterministic=deterministic)[0][()]


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
