"""What lies in the zip files of SB3 and sb3-contrib, read without running a pickle: weights and plain numbers."""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from torch import nn

from acc_rl.core.checks import is_number
from acc_rl.core.errors import AccError

LARGEST = 1 << 30
"""bytes of a model, and those that one file in it may unpack to"""
OWN = "calibration.pth"
"""is in all zips of this package, whose names for algorithms are partly SB3's"""
TQC_ONLY = "top_quantiles_to_drop_per_net"
ACTIVATIONS: Mapping[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU, "silu": nn.SiLU}
NUMBER = r"[-+]?(?:inf|[0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?)"

Weights = Mapping[str, th.Tensor]


class OnlyPickled(AccError):
    """What is needed is in a pickle alone."""


class SavedModel:
    """The files in a model's zip, read with limits."""

    def __init__(self, path: Any, content: bytes) -> None:
        self.path, self.content = path, content
        try:
            self.archive = zipfile.ZipFile(io.BytesIO(self.content))
            self.names = self.archive.namelist()
        except (zipfile.BadZipFile, ValueError):
            self.names = []
        if "data" not in self.names:
            raise AccError(f"{path}: no model that SB3 saved")

    def data(self) -> dict[str, Any]:
        """What SB3 saved as JSON; pickled objects are texts in it"""
        content = self._read("data")
        try:
            data = json.loads(content)
        except (ValueError, RecursionError):
            raise AccError(f"{self.path}: no model that SB3 saved") from None
        data = data if isinstance(data, dict) else {}
        gamma = data.setdefault("gamma", 0.99)
        if not is_number(gamma) or not 0 <= gamma <= 1:
            raise AccError(f"{self.path}: its gamma is {gamma!r}, but must be a number in [0, 1]")
        return data

    def weights(self, name: str) -> dict[str, th.Tensor]:
        content = self._read(name)
        try:
            weights = th.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise AccError(f"{self.path}: {name} holds more than weights: {reason}") from None
        if not isinstance(weights, dict) or not all(
            isinstance(key, str) and type(value) in (th.Tensor, th.nn.Parameter) for key, value in weights.items()
        ):
            raise AccError(f"{self.path}: {name} holds no weights by name")
        return weights

    def _read(self, name: str) -> bytes:
        try:
            size = self.archive.getinfo(name).file_size
            if size > LARGEST:
                raise AccError(f"says it has {size} bytes, not at most {LARGEST}")
            content = self.archive.read(name)
            if zipfile.is_zipfile(io.BytesIO(content)):  # torch's weights, which it does not compress
                with zipfile.ZipFile(io.BytesIO(content)) as inside:
                    size = sum(each.file_size for each in inside.infolist())
                if size > len(content):
                    raise AccError(f"says it holds {size} bytes, but has {len(content)}")
        except (KeyError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise AccError(f"{self.path}: {name} cannot be read: {error}") from None
        return content


def algorithms(weights: Weights, data: Mapping[str, Any]) -> tuple[str, ...]:
    """The algorithms that names and shapes of the nets belong to, the likeliest first; none if they are not known.

    Two names are given for SB3's DDPG, which is its TD3 with other settings: nothing in the file tells them apart.
    """

    def has(prefix: str) -> bool:
        return any(name.startswith(prefix) for name in weights)

    if has("q_net.") or has("quantile_net."):
        return ("dqn",) if has("q_net.") else ("qrdqn",)
    if has("actor.log_std"):
        *_, last_bias = [th.empty(1), *(each for name, each in weights.items() if name.startswith("critic.qf0."))]
        return ("tqc",) if TQC_ONLY in data or last_bias.numel() > 1 else ("sac",)
    if has("actor.mu."):
        as_ddpg = data.get("policy_delay", 1) == 1 and data.get("target_noise_clip", 0) == 0
        return ("ddpg", "td3") if as_ddpg else ("td3",)
    return ()


def require_numbers(weights: Weights, size: int) -> None:
    """Every weight is in the file, none is told by a stride or a shared storage, and all are finite."""
    total = sum(each.numel() * each.element_size() for each in weights.values())
    if total > size:
        raise AccError(f"its tensors say they have {total} bytes, but the file has {size}")
    for name, each in weights.items():
        if not th.isfinite(each).all():
            raise AccError(f"{name} is NaN or infinite")


def _layers(weights: Weights, net: str) -> list[tuple[int, ...]]:
    """(outputs, inputs) of each layer of a net, which must fit each other"""
    pattern = rf"{re.escape(net)}\.([0-9]{{1,4}})\.weight"
    found = {int(m[1]): tuple(each.shape) for name, each in weights.items() if (m := re.fullmatch(pattern, name))}
    shapes = [found[i] for i in sorted(found)]
    if not shapes:
        raise AccError(f"it has no weights of {net}")
    if any(len(shape) != 2 for shape in shapes) or any(a[0] != b[1] for a, b in pairwise(shapes)):
        raise AccError(f"the layers of {net} do not fit each other: {shapes}")
    return shapes


def architecture(algo: str, weights: Weights, actions: spaces.Space[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the nets, read off the weights; the activation's name is told in plain text"""

    def outputs(net: str) -> list[int]:
        return [shape[0] for shape in _layers(weights, net)]

    if any("features_extractor" in name for name in weights):
        raise OnlyPickled("its features extractor is only told in pickled code")
    kwargs: dict[str, Any] = {}
    if algo in ("dqn", "qrdqn"):
        name = "q_net" if algo == "dqn" else "quantile_net"
        *hidden, last = outputs(f"{name}.{name}")
        kwargs["net_arch"] = hidden
        if algo == "qrdqn":
            if not isinstance(actions, spaces.Discrete):
                raise AccError(f"its actions are discrete, not {actions}")
            kwargs["n_quantiles"] = last // int(actions.n)
    else:
        n_critics = sum(bool(re.fullmatch(r"critic\.qf[0-9]+\.0\.weight", name)) for name in weights)
        critics = [_layers(weights, f"critic.qf{i}") for i in range(max(n_critics, 1))]
        if any(critic != critics[0] for critic in critics):
            raise AccError(f"its critics differ in their layers: {critics}")
        actor = outputs("actor.latent_pi") if algo in ("sac", "tqc") else outputs("actor.mu")[:-1]
        *hidden, last = outputs("critic.qf0")
        kwargs |= {"net_arch": {"pi": actor, "qf": hidden}, "n_critics": n_critics}
        if algo == "tqc":
            kwargs["n_quantiles"] = last
    told = data.get("policy_kwargs")
    activation = str(told.get("activation_fn", "ReLU")) if isinstance(told, dict) else "ReLU"
    known = [cls for cls in ACTIVATIONS.values() if re.search(rf"\b{cls.__name__}\b", activation)]
    if not known:
        raise OnlyPickled(f"activation {activation} is not known here")
    return {**kwargs, "activation_fn": known[0]}


def space(told: Any, what: str) -> Any:
    """A Box or Discrete space from the texts beside its pickle"""
    try:
        if "Discrete'" in told[":type:"] and "Multi" not in told[":type:"]:
            return spaces.Discrete(int(told["n"]), start=int(told.get("start", 0)))
        shape, dtype = tuple(told["_shape"]), np.dtype(told["dtype"])
        if "Box'" in told[":type:"] and dtype.kind in "fiub":
            low, high = (np.array(re.findall(NUMBER, told[name]), float).reshape(shape) for name in ("low", "high"))
            return spaces.Box(low.astype(dtype), high.astype(dtype), shape, dtype.type)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError):
        pass
    raise OnlyPickled(f"its {what} is only told in pickled code: give the env, load(path, env=env)")
