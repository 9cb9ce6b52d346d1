"""Q(s, a) of any SB3 or sb3-contrib off-policy model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch as th
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from acc_rl.algos.calibrated import Calibrated

Estimate = Callable[[Any, th.Tensor], th.Tensor]
"""(observations, actions as the critic sees them) -> (batch,)"""


def value_estimate(model: OffPolicyAlgorithm) -> Estimate:
    """The mean of the online critics (and atoms); an error for models that learn no Q."""
    if isinstance(model, Calibrated):
        return model.value_estimate
    network: Any
    if (network := getattr(model, "quantile_net", None)) is not None:
        return lambda obs, actions: chosen(network(obs).mean(dim=1), actions)
    if (network := getattr(model, "q_net", None)) is not None:
        return lambda obs, actions: chosen(network(obs), actions)
    if (network := getattr(model, "critic", None)) is not None:
        return lambda obs, actions: mean_of_critics(network(obs, actions.flatten(1)))
    raise ValueError(f"{type(model).__name__} has no critic: expected critic, q_net or quantile_net")


def chosen(q: th.Tensor, actions: th.Tensor) -> th.Tensor:
    return q.gather(1, actions.long().reshape(-1, 1)).squeeze(1)


def mean_of_critics(outputs: th.Tensor | tuple[th.Tensor, ...]) -> th.Tensor:
    """SB3's critics give one (batch, 1) each, sb3-contrib's TQC (batch, nets, atoms)"""
    if isinstance(outputs, tuple):
        return th.cat(outputs, dim=1).mean(dim=1)
    return outputs.mean(dim=(1, 2))
