"""Q(s, a), the entropy bonus and the value after a time limit, of any SB3 or sb3-contrib off-policy model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import obs_as_tensor

from acc_rl.core.errors import AccError
from acc_rl.core.observations import Array, Floats, Observations, index_observations
from acc_rl.nn.head import Law

CHUNK = 1024
"""pairs per forward pass: a batch that still fits into the caches"""


class ModelEstimator:
    """An ``Estimator`` of a model: raw observations in, numpy out, chunk by chunk; draws leave torch's stream alone.

    Where a model has ``value_estimate``, ``entropy_bonus`` or ``tail_value`` of its own, these are asked.
    """

    def __init__(self, model: OffPolicyAlgorithm) -> None:
        self.model = model
        self.value: Callable[..., th.Tensor] = getattr(model, "value_estimate", None) or _value_estimate(model)

    @property
    def soft(self) -> bool:
        return hasattr(self.model, "entropy_bonus") or hasattr(self.model, "ent_coef")

    @property
    def bootstraps(self) -> bool:
        return any(hasattr(self.model, name) for name in ("tail_value", "actor", "q_net", "quantile_net"))

    @property
    def units(self) -> float:
        """The env's rewards per unit of the critic's values"""
        return float(getattr(self.model, "reward_scale", 1.0))

    def temperature(self) -> th.Tensor:
        model: Any = self.model
        log_alpha = getattr(model, "log_ent_coef", None)
        return model.ent_coef_tensor if log_alpha is None else log_alpha.detach().exp()  # type: ignore[no-any-return]

    def act(self, obs: Any) -> tuple[th.Tensor, th.Tensor]:
        """a ~ pi(s) as the critic sees it, and log pi(a|s) (0 where the policy has none)"""
        model: Any = self.model
        n = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        if isinstance(model.action_space, spaces.Discrete):
            return self.greedy_values(obs).argmax(dim=1), th.zeros(n, device=model.device)
        if hasattr(model, "ent_coef"):
            actions, log_prob = model.actor.action_log_prob(obs)
            return actions, log_prob
        return model.actor(obs), th.zeros(n, device=model.device)

    def greedy_values(self, obs: Any) -> th.Tensor:
        """Q of all discrete actions, (batch, n_actions)"""
        model: Any = self.model
        if (net := getattr(model, "quantile_net", None)) is not None:
            return Law(net(obs).transpose(1, 2)).mean()
        return model.q_net(obs)  # type: ignore[no-any-return]

    # --- on raw observations ---

    def values(self, observations: Observations, actions: Array) -> Floats:
        return self.units * self._batched(self.value, observations, actions)

    def bonus(self, observations: Observations) -> Floats:
        own = getattr(self.model, "entropy_bonus", None)
        return self.units * self._batched(own or (lambda obs: -self.temperature() * self.act(obs)[1]), observations)

    def tail(self, observations: Observations) -> Floats:
        own = getattr(self.model, "tail_value", None)
        return self.units * self._batched(own or (lambda obs: self.value(obs, self.act(obs)[0])), observations)

    def targets(self, observations: Observations, beta: float) -> Floats:
        model: Any = self.model
        return self.units * self._batched(lambda obs: model.target_value(obs, beta), observations)

    def greedy(self, observations: Observations) -> Floats | None:
        if not (hasattr(self.model, "q_net") or hasattr(self.model, "quantile_net")):
            return None
        return self._batched(lambda obs: self.act(obs)[0], observations)

    def scale_rewards(self, rewards: Floats) -> Floats:
        """The critic learns from rewards that VecNormalize scales when they are sampled"""
        normalizer = self.model.get_vec_normalize_env()
        return rewards if normalizer is None else np.asarray(normalizer.normalize_reward(rewards), np.float64)

    def normalized(self, observations: Observations) -> Observations:
        """By VecNormalize, if the model has one: what actor and critic take"""
        normalizer = self.model.get_vec_normalize_env()
        return observations if normalizer is None else normalizer.normalize_obs(observations)

    def _batched(self, function: Callable[..., th.Tensor], obs: Observations, actions: Array | None = None) -> Floats:
        model, obs = self.model, self.normalized(obs)
        n = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        results = []
        devices = [model.device.index or 0] if model.device.type == "cuda" else []
        with th.no_grad(), th.random.fork_rng(devices):
            for part in (slice(i, i + CHUNK) for i in range(0, n, CHUNK)):
                inputs = [obs_as_tensor(index_observations(obs, part), model.device)]
                if actions is not None:
                    inputs.append(th.as_tensor(actions[part], device=model.device))
                results.append(function(*inputs))
        return th.cat(results).double().cpu().numpy()


def raw_transition(
    model: OffPolicyAlgorithm, actions: Array, new_obs: Observations, rewards: Array, dones: Array, infos: Any
) -> tuple[Observations, Array, Array, Array, list[bool], dict[int, Observations]]:
    """(s, a, r, ended, truncated, finals) as the envs know them, between ``env.step`` and the end of the step.

    ``finals[i]`` is s_T of each env whose episode ended. A time limit that the buffer does not handle is a terminal.
    """
    obs, normalizer = model._last_obs, model.get_vec_normalize_env()
    if normalizer is not None:
        obs, new_obs, rewards = (
            model._last_original_obs,
            normalizer.get_original_obs(),
            normalizer.get_original_reward(),
        )
    assert obs is not None
    finals: dict[int, Observations] = {}
    for i in np.flatnonzero(dones).tolist():
        last = infos[i].get("terminal_observation")
        if last is not None and normalizer is not None:
            last = normalizer.unnormalize_obs(last)
        finals[i] = index_observations(new_obs, i) if last is None else last
    handled = getattr(model.replay_buffer, "handle_timeout_termination", True)
    truncated = [bool(handled and info.get("TimeLimit.truncated", False)) for info in infos]
    return obs, actions, rewards, dones, truncated, finals


def _value_estimate(model: OffPolicyAlgorithm) -> Callable[..., th.Tensor]:
    """The mean of the online critics (and atoms) of SB3 and sb3-contrib; an error for models that learn no Q."""
    network: Any
    if (network := getattr(model, "quantile_net", None)) is not None:
        return lambda obs, actions: chosen(Law(network(obs).transpose(1, 2)).mean(), actions)
    if (network := getattr(model, "q_net", None)) is not None:
        return lambda obs, actions: chosen(network(obs), actions)
    if (network := getattr(model, "critic", None)) is not None:
        return lambda obs, actions: mean_of_critics(network(obs, actions.flatten(1)))
    raise AccError(f"{type(model).__name__} has no critic: expected critic, q_net or quantile_net")


def chosen(q: th.Tensor, actions: th.Tensor) -> th.Tensor:
    return q.gather(1, actions.long().reshape(-1, 1)).squeeze(1)


def mean_of_critics(outputs: th.Tensor | tuple[th.Tensor, ...]) -> th.Tensor:
    """SB3's critics give one (batch, 1) each, sb3-contrib's TQC (batch, nets, atoms)"""
    if isinstance(outputs, tuple):
        return th.cat(outputs, dim=1).mean(dim=1)
    return Law(outputs.flatten(1)).mean()
