"""A trained policy from the files of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gymnasium import spaces
from safetensors import SafetensorError
from safetensors.torch import load
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, is_image_space
from stable_baselines3.common.utils import set_random_seed
from torch import Tensor

from acc_rl.algos.registry import find
from acc_rl.core.checks import is_whole
from acc_rl.core.errors import AccError
from acc_rl.store import records
from acc_rl.store.files import read_plain
from acc_rl.store.policy import SCHEMA, ObservationNormalizer, acting_module, policy_arguments, space_from_json

LARGEST = 1 << 30
"""bytes of a policy's weights"""
CRITICS = {"n_critics", "n_atoms"}
"""sizes that only the critics have"""


class Policy:
    """Observations in, actions out, both as the env knows them; one or a batch."""

    def __init__(self, policy: BasePolicy, normalizer: ObservationNormalizer | None = None) -> None:
        self.policy, self.normalizer = policy, normalizer

    def __call__(self, observation: Any, deterministic: bool = True) -> Any:
        if self.normalizer is not None:
            observation = self.normalizer(observation)
        # one discrete action is a number, which can be a key, not an array without dimensions
        return self.policy.predict(observation, deterministic=deterministic)[0][()]

    def drawn(self, seed: int) -> Callable[[Any], Any]:
        """The policy with the actions that it draws, the same for the same seed"""
        set_random_seed(seed)
        return lambda observation: self(observation, deterministic=False)


def load_policy(folder: Path | str) -> Policy:
    """The policy in a run's folder."""
    folder = Path(folder)
    content = records.read_json(folder / records.POLICY)
    if content.get("schema") != SCHEMA:
        raise records.RecordError(f"{folder / records.POLICY}: schema is {content.get('schema')!r}, not {SCHEMA}")
    try:
        policy_class = find(content["algo"]).load().policy_aliases[content["policy"]]
        observations, actions = (space_from_json(content[f"{name}_space"]) for name in ("observation", "action"))
        settings, nets = content["settings"], content["nets"]
        weights = load(read_plain(folder / records.POLICY_WEIGHTS, LARGEST))
        discrete = isinstance(actions, spaces.Discrete)
        _require_sizes(observations, actions, settings.get("qf" if discrete else "pi"), nets, weights)
        if not discrete:  # the critics are not in the files and need not be made as large as they were
            settings, nets = {**settings, "qf": [1]}, {**nets, **dict.fromkeys(CRITICS & set(nets), 1)}
        arguments = {**policy_arguments(settings, discrete), **nets}
        policy = policy_class(observations, actions, lambda progress: 0.0, **arguments)
        acting_module(policy).load_state_dict(weights)
        given = content.get("normalizer")
        normalizer = None if given is None else ObservationNormalizer(given, observations)
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        MemoryError,
        RuntimeError,
        SafetensorError,
        TypeError,
        ValueError,
    ) as error:
        raise records.RecordError(f"{folder}: no policy that can be loaded: {error}") from None
    return Policy(policy, normalizer)


def _require_sizes(
    observations: Any,
    actions: Any,
    hidden: Sequence[int] | None,
    nets: Mapping[str, Any],
    weights: Mapping[str, Tensor],
) -> None:
    """The layers that are declared must fit into the weights that are there, before any of them is made."""
    for name, value in nets.items():
        if not isinstance(value, bool) and not is_whole(value, 1):
            raise AccError(f"{name} is {value!r}, but must be an integer >= 1")
    parts = observations.spaces.values() if isinstance(observations, spaces.Dict) else [observations]
    images = [part for part in parts if is_image_space(part)]
    inputs = sum(get_flattened_obs_dim(part) for part in parts if not is_image_space(part))
    outputs = get_flattened_obs_dim(actions) * nets.get("n_quantiles", 1)
    layers = [max(inputs, 1), *(hidden or [1]), outputs]
    needed = sum(a * b for a, b in pairwise(layers)) + sum(map(_convolved, images))
    there = sum(each.numel() for each in weights.values())
    if needed > there:
        raise AccError(f"nets of that size have at least {needed} weights, but there are {there}")


def _convolved(image: Any) -> int:
    """Weights that SB3's NatureCNN has at least after its convolutions: 64 channels of an eighth of the image"""
    height, width = image.shape[1:]
    return int(64 * max(height // 8 - 5, 0) * max(width // 8 - 5, 0) * 256)
