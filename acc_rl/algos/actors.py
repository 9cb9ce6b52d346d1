"""Actors for SB3's policies, built on the same fast nets as the critics."""

from __future__ import annotations

from typing import Any, ClassVar

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BaseModel, BasePolicy
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor
from stable_baselines3.common.type_aliases import PyTorchObs
from torch import nn

from acc_rl.nn.ensemble import MakeNet, make_ensemble
from acc_rl.nn.gaussian import LOG_STD_MAX, LOG_STD_MIN, sample
from acc_rl.nn.scaling import Normalizer


class VectorFeatures(BaseModel):
    """Mixin for SB3's modules: observations that are vectors of floats already are their own features."""

    def extract_features(self, obs: PyTorchObs, features_extractor: BaseFeaturesExtractor) -> th.Tensor:
        if type(features_extractor) is FlattenExtractor and type(self.observation_space) is spaces.Box:
            assert isinstance(obs, th.Tensor)
            if obs.dim() == 2 and obs.dtype == th.float32:
                return obs
        return super().extract_features(obs, features_extractor)


class _Actor(VectorFeatures, BasePolicy):
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
        nets: str | MakeNet = "mlp",
        normalizer: Normalizer | None = None,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            features_extractor=features_extractor,
            normalize_images=normalize_images,
            squash_output=True,
        )
        self.normalizer = normalizer
        self._built_with = {
            "net_arch": net_arch,
            "features_dim": features_dim,
            "activation_fn": activation_fn,
            "nets": nets,
        }
        n_outputs = self.outputs_per_action * get_action_dim(action_space)
        self.net = make_ensemble(nets, 1, features_dim, net_arch, n_outputs, activation_fn)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        parts = {"features_extractor": self.features_extractor, "normalizer": self.normalizer}
        return {**super()._get_constructor_parameters(), **self._built_with, **parts}

    def outputs(self, obs: PyTorchObs) -> th.Tensor:
        """(batch, outputs_per_action * n_actions)"""
        features = self.extract_features(obs, self.features_extractor)
        out: th.Tensor = self.net(features if self.normalizer is None else self.normalizer(features))
        return out[0]

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> th.Tensor:
        actions: th.Tensor = self(observation, deterministic)
        return actions


class GaussianActor(_Actor):
    """a = tanh(mean + std * noise), for soft actor-critics."""

    outputs_per_action = 2
    exact: ClassVar[bool] = False
    """log pi in the exact form, not in SB3's"""

    def forward(self, obs: PyTorchObs, deterministic: bool = False) -> th.Tensor:
        outputs = self.outputs(obs)
        mean, log_std = outputs.chunk(2, dim=1)
        if deterministic:
            return mean.tanh()
        return (mean + log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp() * _noise(outputs)).tanh()

    def action_log_prob(self, obs: PyTorchObs) -> tuple[th.Tensor, th.Tensor]:
        """a ~ pi(s) and log pi(a|s), (batch, n_actions) and (batch,)"""
        outputs = self.outputs(obs)
        return sample(outputs, _noise(outputs), self.exact)


class ExactGaussianActor(GaussianActor):
    """The same with a gradient of log pi where tanh saturates."""

    exact = True


def _noise(outputs: th.Tensor) -> th.Tensor:
    return th.randn(len(outputs), outputs.shape[1] // 2, device=outputs.device)


class DeterministicActor(_Actor):
    """a = tanh(output), for TD3 and DDPG."""

    outputs_per_action = 1

    def forward(self, obs: PyTorchObs, deterministic: bool = True) -> th.Tensor:
        return self.outputs(obs).tanh()
