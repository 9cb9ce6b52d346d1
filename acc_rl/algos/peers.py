"""Models of SB3 and sb3-contrib as a start: their weights and plain settings, in the nets of this package."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch as th
from gymnasium import spaces
from stable_baselines3.common.preprocessing import get_action_dim
from torch import nn

from acc_rl.algos.actors import GaussianActor
from acc_rl.algos.saved import SavedModel, Weights, algorithms, architecture, require_numbers, space
from acc_rl.core.errors import AccError
from acc_rl.nn.ensemble import Ensemble

if TYPE_CHECKING:
    from acc_rl.algos.saving import Saved

S = TypeVar("S", bound="Saved")

COUNTERS = ("num_timesteps", "_n_updates", "_n_calls", "_episode_num", "exploration_rate")
NOT_TAKEN = ("policy", "env", "seed", "device", "tensorboard_log", "optimize_memory_usage")


def load_peer(cls: type[S], saved: SavedModel, env: Any, device: Any, given: Mapping[str, Any]) -> S:
    """A model of ``cls`` with the weights of its peer's in ``saved``; no pickle is run.

    Numbers and names among the peer's settings are kept, ``given`` comes before them. What SB3 pickles is left out:
    schedules, ``train_freq``, noise, the state of the optimizers.
    """
    data, weights = saved.data(), saved.weights("policy.pth")
    variables = saved.weights("pytorch_variables.pth") if "pytorch_variables.pth" in saved.names else {}
    told = algorithms(weights, data)
    if cls.peer not in told:
        what = " or ".join(told) if told else "not a known"
        raise AccError(f"{saved.path}: is a {what} model, but {cls.__name__} starts from models of {cls.peer}")
    try:
        require_numbers({**weights, **variables}, len(saved.content))
        if env is None:
            observations, actions = (
                space(data.get(f"{each}_space"), f"{each} space") for each in ("observation", "action")
            )
        else:
            env = cls._wrap_env(env, int(given.get("verbose", 0)))
            observations, actions = env.observation_space, env.action_space
        policy_kwargs = architecture(str(cls.peer), weights, actions, data)
        model = cls(
            "MultiInputPolicy" if isinstance(observations, spaces.Dict) else "MlpPolicy",
            env,
            device=device,
            _init_setup_model=False,  # type: ignore[call-arg]
            **{**_settings(cls, data, actions), "policy_kwargs": policy_kwargs, **given},
        )
        model.observation_space, model.action_space = observations, actions
        model.n_envs = model.n_envs if env is not None else 1
        model._setup_model()
        _fill(model, weights)
        for name, value in variables.items():
            getattr(model, name).data.copy_(value)
    except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise AccError(f"{saved.path}: cannot start a {cls.__name__}: {' '.join(str(error).split())}") from error
    vars(model).update({name: data[name] for name in COUNTERS if hasattr(model, name) and _is_plain(data.get(name))})
    return model


def _settings(cls: type[S], data: Mapping[str, Any], actions: spaces.Space[Any]) -> dict[str, Any]:
    known = [name for name in inspect.signature(cls).parameters if name not in NOT_TAKEN]
    settings = {name: data[name] for name in known if _is_plain(data.get(name))}
    if settings.get("target_entropy", "auto") == "auto" and "target_entropy" in known:
        settings["target_entropy"] = -float(get_action_dim(actions))  # SB3 asks the env, which may be missing
    return settings


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, str))


def _fill(model: Any, weights: Weights) -> None:
    if not hasattr(model, "actor"):
        model.policy.load_state_dict(weights)
        return
    for part in sorted({name.split(".")[0] for name in weights}):
        module, inside = getattr(model.policy, part), _under(f"{part}.", weights)
        net = getattr(module, "ensemble", None) or getattr(module, "net", None)
        if net is None:  # gSDE's actor is SB3's own
            module.load_state_dict(inside)
        elif part.startswith("critic"):
            _fill_net(net, [_layers(inside, f"qf{i}.") for i in range(net.n_nets)])
        elif isinstance(module, GaussianActor):
            last = [th.cat([inside[f"mu.{each}"], inside[f"log_std.{each}"]]) for each in ("weight", "bias")]
            _fill_net(net, [[*_layers(inside, "latent_pi."), *last]])
        else:
            _fill_net(net, [_layers(inside, "mu.")])


def _under(prefix: str, weights: Weights) -> dict[str, th.Tensor]:
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def _layers(weights: Weights, prefix: str) -> list[th.Tensor]:
    """weight, bias, weight, bias, ... of a Sequential, in its order"""
    found = _under(prefix, weights)
    places = sorted({int(name.split(".")[0]) for name in found if re.fullmatch(r"[0-9]{1,4}\.(weight|bias)", name)})
    return [found[f"{place}.{each}"] for place in places for each in ("weight", "bias")]


@th.no_grad()
def _fill_net(net: nn.Module, nets: Sequence[Sequence[th.Tensor]]) -> None:
    """One list of parameters for each net of the ensemble"""
    if not isinstance(net, Ensemble):
        raise AccError("nets of one's own have no peers: leave nets out")
    stacked = [th.stack(list(each)) for each in zip(*nets, strict=True)]
    for part, value in zip(net.parts(net.theta.data), stacked, strict=True):
        value = value[..., None] if value.dim() == 2 else value  # a bias is a column
        if part.shape != value.shape:
            raise AccError(f"a layer has the shape {tuple(value.shape)}, but the env needs {tuple(part.shape)}")
        part.copy_(value)
