"""Stable-Baselines3 policies whose critics are one fast ensemble."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import get_action_dim, get_flattened_obs_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor, NatureCNN
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from torch import nn

from acc_rl.algos.actors import DeterministicActor, ExactGaussianActor, GaussianActor, VectorFeatures
from acc_rl.core.errors import SettingError
from acc_rl.nn.ensemble import MakeNet, make_ensemble
from acc_rl.nn.scaling import Normalizer

NetArch = list[int] | dict[str, list[int]]
Nets = str | MakeNet | Mapping[str, "str | MakeNet"]
"""kind of the nets, of actor and critics alike or as {"pi": ..., "qf": ...}"""


def nets_of(nets: Nets, part: str) -> str | MakeNet:
    """The kind of the actor's ("pi") or the critics' ("qf") nets"""
    if not isinstance(nets, Mapping):
        return nets
    if unknown := set(nets) - {"pi", "qf"}:
        raise SettingError(f"nets has {sorted(unknown)[0]!r}, but knows 'pi' and 'qf' alone")
    return nets.get(part, "mlp")


NOT_FUSED = {"foreach", "differentiable"}
"""arguments of Adam that exclude ``fused``"""


def _sizes(given: Any, default: Mapping[str, list[int]]) -> Any:
    """Hidden sizes: one list for actor and critics, or what is given of ``pi`` and ``qf``"""
    if isinstance(given, list):
        return given
    if given is not None and (not isinstance(given, Mapping) or set(given) - {"pi", "qf"}):
        raise SettingError(f"net_arch is {given!r}, but must be a list of hidden sizes, or a dictionary of pi and qf")
    return {**default, **(given or {})}


def _why_not_normalised(space: spaces.Space[Any], extractor: type[BaseFeaturesExtractor], use_sde: bool) -> str:
    """Why the nets' inputs cannot be normalised observations, if they cannot"""
    if not (isinstance(space, spaces.Box) and len(space.shape) == 1):
        return f"observations {space}, not a Box of one dimension"
    if extractor is not FlattenExtractor:
        return f"features of {extractor.__name__}, whose statistics are not those of the observations"
    return "the nets of gSDE (use_sde), which are SB3's own" if use_sde else ""


class EnsembleCritic(VectorFeatures):
    """Z(s, a): ``n_critics`` nets with ``n_outputs`` outputs each."""

    features_extractor: BaseFeaturesExtractor

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Box,
        net_arch: list[int],
        features_extractor: BaseFeaturesExtractor,
        features_dim: int,
        activation_fn: type[nn.Module] = nn.ReLU,
        normalize_images: bool = True,
        n_critics: int = 5,
        n_outputs: int = 25,
        share_features_extractor: bool = False,
        nets: str | MakeNet = "mlp",
        normalizer: Normalizer | None = None,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            features_extractor=features_extractor,
            normalize_images=normalize_images,
        )
        self.share_features_extractor, self.normalizer = share_features_extractor, normalizer
        n_inputs = features_dim + get_action_dim(action_space)
        self.ensemble = make_ensemble(nets, n_critics, n_inputs, net_arch, n_outputs, activation_fn)

    def forward(
        self, obs: PyTorchObs, actions: th.Tensor, frozen: bool = False, n_first: int | None = None
    ) -> th.Tensor:
        """-> (n_critics, batch, n_outputs); ``frozen``: gradients go to the actions alone"""
        return self.ensemble(self.inputs(obs, actions, frozen), frozen, n_first)  # type: ignore[no-any-return]

    def both(
        self, obs: PyTorchObs, actions: th.Tensor, next_obs: PyTorchObs, next_actions: th.Tensor
    ) -> tuple[th.Tensor, th.Tensor]:
        """The outputs for (s, a) and (s', a') by one pass, whose statistics are of both (CrossQ's joint pass)"""
        inputs = th.cat([self.inputs(obs, actions), self.inputs(next_obs, next_actions)])
        now, after = self.ensemble(inputs, whole_batch=True).split(len(actions), dim=1)
        return now, after

    def inputs(self, obs: PyTorchObs, actions: th.Tensor, frozen: bool = False) -> th.Tensor:
        """Features and actions side by side, (batch, n_inputs)"""
        # features shared with the actor are learned by the actor's loss alone, as in SB3
        with th.set_grad_enabled(th.is_grad_enabled() and not self.share_features_extractor and not frozen):
            features = self.extract_features(obs, self.features_extractor)
        if self.normalizer is not None:
            features = self.normalizer(features)
        # some envs act in double precision, or with matrices
        return th.cat([features, actions.flatten(1).to(features.dtype)], dim=1)


if TYPE_CHECKING:
    _Base = SACPolicy
else:
    _Base = BasePolicy


class EnsemblePolicy(_Base):
    """Mixin for SB3's actor-critic policies: its own sizes, its critics as one ensemble."""

    default_arch: ClassVar[dict[str, list[int]]]
    default_extractor: ClassVar[type[BaseFeaturesExtractor]] = FlattenExtractor
    critic: EnsembleCritic  # type: ignore[assignment]
    critic_target: EnsembleCritic  # type: ignore[assignment]

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Box,
        lr_schedule: Schedule,
        net_arch: NetArch | None = None,
        *,
        n_atoms: int = 1,
        nets: Nets = "mlp",
        normalize_observations: bool | None = False,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        optimizer_class: type[th.optim.Optimizer] = th.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        extractor = features_extractor_class or self.default_extractor
        # before the base class builds the nets
        self.n_atoms, self.nets = n_atoms, nets
        why_not = _why_not_normalised(observation_space, extractor, kwargs.get("use_sde", False))
        if normalize_observations and why_not:
            raise SettingError(
                f"normalize_observations is True, but there are {why_not}: set it to False "
                "(--no-normalize-observations), or see VecNormalize (--normalize)"
            )
        self.normalize_observations = not why_not if normalize_observations is None else normalize_observations
        optimizer_kwargs = optimizer_kwargs or {}
        if optimizer_class in (th.optim.Adam, th.optim.AdamW) and not NOT_FUSED & set(optimizer_kwargs):
            optimizer_kwargs = {"fused": True, **optimizer_kwargs}  # one pass over the parameters instead of a dozen
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            _sizes(net_arch, self.default_arch),
            features_extractor_class=extractor,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
            **kwargs,
        )
        # not the targets, which are always in evaluation mode
        self._modules_with_mode = [*self.actor.modules(), *self.critic.modules()]

    def _parts(self, part: str) -> dict[str, Any]:
        """What the nets of the actor ("pi") and of the critics ("qf") are built with beside SB3's arguments"""
        if self.normalize_observations and not hasattr(self, "normalizer"):
            self.normalizer = Normalizer(get_flattened_obs_dim(self.observation_space))
        normalizer = self.normalizer if self.normalize_observations else None
        return {"nets": nets_of(self.nets, part), "normalizer": normalizer}

    def collected(self, observations: Any) -> None:
        """Observations of all envs after a step, for their running mean and variance"""
        if self.normalize_observations:
            self.normalizer.add(th.as_tensor(observations, device=self.device))

    def make_critic(self, features_extractor: BaseFeaturesExtractor | None = None) -> EnsembleCritic:  # type: ignore[override]
        kwargs = self._update_features_extractor(self.critic_kwargs, features_extractor)
        return EnsembleCritic(n_outputs=self.n_atoms, **self._parts("qf"), **kwargs).to(self.device)

    def set_training_mode(self, mode: bool) -> None:
        """SB3 asks for it several times per step, so it must not walk through the tree of modules each time."""
        if self.training != mode:
            for module in self._modules_with_mode:
                module.__dict__["training"] = mode
            self.training = mode

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {
            **super()._get_constructor_parameters(),
            "n_atoms": self.n_atoms,
            "nets": self.nets,
            "normalize_observations": self.normalize_observations,
        }


class SoftPolicy(EnsemblePolicy, SACPolicy):
    """A stochastic actor; sizes of the SAC paper."""

    actor_class: ClassVar[type[GaussianActor]] = GaussianActor
    default_arch: ClassVar[dict[str, list[int]]] = {"pi": [256, 256], "qf": [256, 256]}

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> GaussianActor:  # type: ignore[override]
        if self.actor_kwargs["use_sde"]:
            if (nets := nets_of(self.nets, "pi")) != "mlp":
                warnings.warn(
                    f"the actor of gSDE (use_sde) is SB3's own: nets {nets!r} is for the critics", stacklevel=2
                )
            return super().make_actor(features_extractor)  # type: ignore[return-value]
        kwargs = self._update_features_extractor(self.net_args, features_extractor)
        return self.actor_class(**self._parts("pi"), **kwargs).to(self.device)


class SoftCnnPolicy(SoftPolicy):
    default_extractor = NatureCNN


class SoftMultiInputPolicy(SoftPolicy):
    default_extractor = CombinedExtractor


class XPolicy(SoftPolicy):
    """A stochastic actor with the exact log pi; sizes of SAC."""

    actor_class = ExactGaussianActor


class XCnnPolicy(XPolicy):
    default_extractor = NatureCNN


class XMultiInputPolicy(XPolicy):
    default_extractor = CombinedExtractor


class QuantilePolicy(SoftPolicy):
    """A stochastic actor; sizes of the ACC and TQC papers."""

    default_arch: ClassVar[dict[str, list[int]]] = {"pi": [256, 256], "qf": [512, 512, 512]}


class QuantileCnnPolicy(QuantilePolicy):
    default_extractor = NatureCNN


class QuantileMultiInputPolicy(QuantilePolicy):
    default_extractor = CombinedExtractor


class DeterministicPolicy(EnsemblePolicy, TD3Policy):  # type: ignore[misc]
    """A deterministic actor; sizes of the TD3 paper."""

    default_arch: ClassVar[dict[str, list[int]]] = {"pi": [400, 300], "qf": [400, 300]}

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> DeterministicActor:  # type: ignore[override]
        kwargs = self._update_features_extractor(self.actor_kwargs, features_extractor)
        return DeterministicActor(**self._parts("pi"), **kwargs).to(self.device)


class DeterministicCnnPolicy(DeterministicPolicy):
    default_extractor = NatureCNN


class DeterministicMultiInputPolicy(DeterministicPolicy):
    default_extractor = CombinedExtractor
