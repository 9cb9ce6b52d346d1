"""Actors for SB3's policies, built on the same fast nets as the critics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BaseModel, BasePolicy
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import PyTorchObs
from torch import nn

from acc_rl.nn.ensemble import Ensemble
from acc_rl.nn.gaussian import LOG_STD_MAX, LOG_STD_MIN, gradient, sample

Backward = Callable[..., None]
"""gradients with respect to results -> the parameters' ``grad``"""


def through_features(
    module: BasePolicy | BaseModel, net: Ensemble, obs: PyTorchObs, *others: th.Tensor, learn: bool = True
) -> tuple[th.Tensor, Callable[[th.Tensor], None]]:
    """What the net makes of the features and the other inputs, and the way back to the ``grad`` of all parameters.

    Autograd is only asked where the features themselves are learned, unless ``learn`` leaves them to somebody else.
    """
    with th.set_grad_enabled(learn):
        features = module.extract_features(obs, module.features_extractor)  # type: ignore[arg-type]
    learned = features.requires_grad
    out, pullback = net.vjp(th.cat((features.detach(), *others), dim=1) if others else features.detach())

    def backward(grad: th.Tensor) -> None:
        if learned or not learn:  # features left to somebody else may hold that one's gradient
            assert module.optimizer is not None
            module.optimizer.zero_grad()
        d_features = pullback(grad, inputs=slice(features.shape[1]) if learned else None)
        if learned:
            features.backward(d_features)

    return out, backward


class _Actor(BasePolicy):
    """pi(s): features, then one net with ``outputs_per_action`` outputs for each dimension of the action."""

    outputs_per_action: ClassVar[int]

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Box,
        net_arch: list[int],
        features_extractor: BaseFeaturesExtractor,
        features_dim: int,
        activation_fn: type[nn.Module] = nn.ReLU,
        normalize_images: bool = True,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            features_extractor=features_extractor,
            normalize_images=normalize_images,
            squash_output=True,
        )
        n_outputs = self.outputs_per_action * get_action_dim(action_space)
        self.net = Ensemble(1, features_dim, net_arch, n_outputs, activation_fn)

    def outputs(self, obs: PyTorchObs) -> th.Tensor:
        """(batch, outputs_per_action * n_actions)"""
        out: th.Tensor = self.net(self.extract_features(obs, self.features_extractor))
        return out[0]

    def outputs_vjp(self, obs: PyTorchObs) -> tuple[th.Tensor, Callable[[th.Tensor], None]]:
        """``outputs``, and the way back from a gradient with respect to them to the parameters' ``grad``"""
        out, backward = through_features(self, self.net, obs)
        return out[0], lambda grad: backward(grad[None])

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> th.Tensor:
        actions: th.Tensor = self(observation, deterministic)
        return actions


class GaussianActor(_Actor):
    """a = tanh(mean + std * noise), for soft actor-critics."""

    outputs_per_action = 2

    def forward(self, obs: PyTorchObs, deterministic: bool = False) -> th.Tensor:
        outputs = self.outputs(obs)
        mean, log_std = outputs.chunk(2, dim=1)
        if deterministic:
            return mean.tanh()
        return (mean + log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp() * _noise(outputs)).tanh()

    def action_log_prob(self, obs: PyTorchObs) -> tuple[th.Tensor, th.Tensor]:
        """a ~ pi(s) and log pi(a|s), (batch, n_actions) and (batch,)"""
        outputs = self.outputs(obs)
        return sample(outputs, _noise(outputs))[:2]

    def action_log_prob_vjp(self, obs: PyTorchObs) -> tuple[th.Tensor, th.Tensor, Backward]:
        """The same, and the way back from gradients with respect to both to the parameters' ``grad``"""
        outputs, backward = self.outputs_vjp(obs)
        actions, log_prob, saved = sample(outputs, _noise(outputs))
        return actions, log_prob, lambda *grads: backward(gradient(saved, *grads))


def _noise(outputs: th.Tensor) -> th.Tensor:
    return th.randn(len(outputs), outputs.shape[1] // 2, device=outputs.device)


class DeterministicActor(_Actor):
    """a = tanh(output), for TD3 and DDPG."""

    outputs_per_action = 1

    def forward(self, obs: PyTorchObs, deterministic: bool = True) -> th.Tensor:
        return self.outputs(obs).tanh()

    def action_vjp(self, obs: PyTorchObs) -> tuple[th.Tensor, Backward]:
        """The same, and the way back from a gradient with respect to it to the parameters' ``grad``"""
        outputs, backward = self.outputs_vjp(obs)
        actions = outputs.tanh()
        return actions, lambda grad: backward(th.ops.aten.tanh_backward(grad, actions))
