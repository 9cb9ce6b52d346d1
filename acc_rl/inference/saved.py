"""Models as SB3, sb3-contrib and this package save them: which algorithm's they are, and loading without pickle."""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import sb3_contrib
import stable_baselines3 as sb3
import torch as th
from gymnasium import spaces
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import check_for_correct_spaces

from acc_rl.algos.registry import REGISTRY, find
from acc_rl.core.checks import hint, is_number
from acc_rl.core.errors import AccError
from acc_rl.runs import envs
from acc_rl.store.files import read_plain
from acc_rl.store.policy import ACTIVATIONS

FOREIGN: Mapping[str, type[OffPolicyAlgorithm]] = {
    "sac": sb3.SAC,
    "td3": sb3.TD3,
    "ddpg": sb3.DDPG,
    "dqn": sb3.DQN,
    "tqc": sb3_contrib.TQC,
    "qrdqn": sb3_contrib.QRDQN,
}
OWN = "calibration.pth"
"""is in all zips of this package, whose names for algorithms are partly SB3's"""
LARGEST = 1 << 30
"""bytes of a model, and those that one file in it may unpack to"""
TQC_ONLY = "top_quantiles_to_drop_per_net"

Weights = Mapping[str, th.Tensor]


def load_model(path: Path, algo: str | None, env_id: str, trust_pickle: bool = False) -> OffPolicyAlgorithm:
    """A model from SB3's zip. Unless it is trusted, only its weights and plain numbers are read, never a pickle.

    The file tells the algorithm; ``algo`` must agree with it, and is only needed for models of this package.
    """
    if algo is not None and algo not in FOREIGN and algo not in REGISTRY:
        find(algo)  # its error suggests the nearest name
    saved = _Zip(path)
    if OWN in saved.names:
        return _load_own(saved, algo, env_id, trust_pickle)
    if algo is not None and algo not in FOREIGN:
        raise AccError(f"{path}: no {algo} model: it was not saved by this package")
    if not trust_pickle:
        data, weights = saved.data(), saved.weights("policy.pth")
        return _load_plain(saved, _agreed(path, algo, algorithms(weights, data)), env_id, data, weights)
    candidates: tuple[str, ...] = ()
    with suppress(ValueError):  # weights of a policy of one's own may be more than tensors
        candidates = algorithms(saved.weights("policy.pth"), saved.data())
    algo = _agreed(path, algo, candidates)
    return _load_pickled(saved, FOREIGN[algo], algo, env_id)


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


def _agreed(path: Path, algo: str | None, candidates: tuple[str, ...]) -> str:
    """What the user says, if the file says the same or nothing; else what the file says"""
    if algo is None and not candidates:
        raise AccError(f"{path}: its weights do not tell the algorithm: name it with --algo")
    if algo is not None and candidates and algo not in candidates:
        raise AccError(f"{path}: is a {' or '.join(candidates)} model, but --algo is {algo}: leave --algo out")
    return algo or candidates[0]


class _Zip:
    """The files in a model's zip, read with limits."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = read_plain(path, LARGEST, follow=True)
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


def _load_plain(saved: _Zip, algo: str, env_id: str, data: Mapping[str, Any], weights: Weights) -> OffPolicyAlgorithm:
    path = saved.path
    if any("features_extractor" in name for name in weights):
        raise AccError(f"{path}: its features extractor is only named in pickled code; if you trust it: --trust-pickle")
    variables = saved.weights("pytorch_variables.pth") if "pytorch_variables.pth" in saved.names else {}
    env = envs.make(env_id)
    try:
        _require_numbers({**weights, **variables}, len(saved.content))
        fixed, learned = (variables.get(name) for name in ("ent_coef_tensor", "log_ent_coef"))
        arguments: dict[str, Any] = {} if fixed is None else {"ent_coef": fixed.item()}
        policy_kwargs = _architecture(algo, weights, env, data)
        model: Any = FOREIGN[algo](
            "MlpPolicy", env, buffer_size=1, gamma=data["gamma"], policy_kwargs=policy_kwargs, device="cpu", **arguments
        )
        model.policy.load_state_dict(weights)
        if learned is not None and fixed is None:
            model.log_ent_coef.data.fill_(learned.item())
    except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise _unfit(path, algo, env_id, error) from None
    return model  # type: ignore[no-any-return]


def _load_own(saved: _Zip, algo: str | None, env_id: str, trust_pickle: bool) -> OffPolicyAlgorithm:
    path = saved.path
    if not trust_pickle and (algo is None or algo in REGISTRY):
        raise AccError(f"{path}: a model of this package can only be read with --trust-pickle")
    if algo is None:
        raise AccError(f"{path}: a model of this package does not tell, for instance, acc from tqc: use --algo")
    if algo not in REGISTRY:
        raise AccError(f"{path}: a model of this package, which has no {algo}; {hint(algo, REGISTRY)}")
    cls = find(algo).load()
    model = _load_pickled(saved, cls, algo, env_id)
    policy, known = type(model.policy), {each for entry in REGISTRY.values() for each in _policies(entry.load())}
    if policy in known and policy not in _policies(cls):
        raise AccError(f"{path}: has a {policy.__name__}, which is not that of {algo}: use another --algo")
    return model


def _policies(cls: type[OffPolicyAlgorithm]) -> set[type[Any]]:
    return set(cls.policy_aliases.values())


def _load_pickled(saved: _Zip, cls: type[OffPolicyAlgorithm], algo: str, env_id: str) -> OffPolicyAlgorithm:
    env = envs.make(env_id)
    try:
        model = cls.load(io.BytesIO(saved.content), device="cpu")
        check_for_correct_spaces(env, model.observation_space, model.action_space)
    except Exception as error:  # whatever a pickle of something else brings
        raise _unfit(saved.path, algo, env_id, error) from None
    finally:
        env.close()
    return model


def _unfit(path: Path, algo: str, env_id: str, error: Exception) -> ValueError:
    reason = " ".join(str(error).split())
    return ValueError(f"{path}: does not fit a {algo} model on {env_id}: {reason}")


def _require_numbers(weights: Weights, size: int) -> None:
    """Every weight is in the file, none by a stride or a shared storage, and all are finite."""
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


def _architecture(algo: str, weights: Weights, env: gym.Env[Any, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the nets, read off the weights; the activation's name is stored in plain text"""

    def outputs(net: str) -> list[int]:
        return [shape[0] for shape in _layers(weights, net)]

    kwargs: dict[str, Any] = {}
    if algo in ("dqn", "qrdqn"):
        name = "q_net" if algo == "dqn" else "quantile_net"
        *hidden, last = outputs(f"{name}.{name}")
        kwargs["net_arch"] = hidden
        if algo == "qrdqn":
            if not isinstance(env.action_space, spaces.Discrete):
                raise AccError(f"its actions are discrete, not {env.action_space}")
            kwargs["n_quantiles"] = last // int(env.action_space.n)
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
    given = data.get("policy_kwargs")
    activation = str(given.get("activation_fn", "ReLU")) if isinstance(given, dict) else "ReLU"
    known = [cls for cls in ACTIVATIONS.values() if re.search(rf"\b{cls.__name__}\b", activation)]
    if not known:
        raise AccError(f"activation {activation} is not known here; if you trust the file: --trust-pickle")
    return {**kwargs, "activation_fn": known[0]}
