"""Models as SB3, sb3-contrib and this package save them: which algorithm's they are, and loading without pickle."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import check_for_correct_spaces

from acc_rl.algos.registry import REGISTRY, find
from acc_rl.algos.saved import (
    LARGEST,
    OWN,
    OnlyPickled,
    SavedModel,
    Weights,
    algorithms,
    architecture,
    require_numbers,
)
from acc_rl.core.checks import hint, is_whole
from acc_rl.core.errors import AccError, needs
from acc_rl.runs import envs
from acc_rl.store.files import read_plain

FOREIGN: Mapping[str, str] = {
    **dict.fromkeys(("sac", "td3", "ddpg", "dqn"), "stable_baselines3"),
    **dict.fromkeys(("tqc", "qrdqn"), "sb3_contrib"),
}
"""algorithms of others and the packages that have them"""


def load_model(path: Path, algo: str | None, env_id: str, trust_pickle: bool = False) -> OffPolicyAlgorithm:
    """A model from SB3's zip. Unless it is trusted, only its weights and plain numbers are read, never a pickle.

    The file tells the algorithm; ``algo`` must agree with it, and is only needed for models of this package.
    """
    if algo is not None and algo not in FOREIGN and algo not in REGISTRY:
        find(algo)  # its error suggests the nearest name
    saved = SavedModel(path, read_plain(path, LARGEST, follow=True))
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
    return _load_pickled(saved, foreign_class(algo), algo, env_id)


def foreign_class(algo: str) -> type[OffPolicyAlgorithm]:
    """The class of that name"""
    with needs("contrib", f"{algo} is an algorithm of sb3-contrib"):
        cls: type[OffPolicyAlgorithm] = getattr(import_module(FOREIGN[algo]), algo.upper())
    return cls


def _agreed(path: Path, algo: str | None, candidates: tuple[str, ...]) -> str:
    """What the user says, if the file says the same or nothing; else what the file says"""
    if algo is None and not candidates:
        raise AccError(f"{path}: its weights do not tell the algorithm: name it with --algo")
    if algo is not None and candidates and algo not in candidates:
        raise AccError(f"{path}: is a {' or '.join(candidates)} model, but --algo is {algo}: leave --algo out")
    return algo or candidates[0]


def _load_plain(
    saved: SavedModel, algo: str, env_id: str, data: Mapping[str, Any], weights: Weights
) -> OffPolicyAlgorithm:
    path = saved.path
    variables = saved.weights("pytorch_variables.pth") if "pytorch_variables.pth" in saved.names else {}
    env = envs.make(env_id)
    try:
        require_numbers({**weights, **variables}, len(saved.content))
        fixed, learned = (variables.get(name) for name in ("ent_coef_tensor", "log_ent_coef"))
        arguments: dict[str, Any] = {} if fixed is None else {"ent_coef": fixed.item()}
        arguments |= _n_steps(data)
        policy_kwargs = architecture(algo, weights, env.action_space, data)
        model: Any = foreign_class(algo)(
            "MlpPolicy", env, buffer_size=1, gamma=data["gamma"], policy_kwargs=policy_kwargs, device="cpu", **arguments
        )
        model.policy.load_state_dict(weights)
        if learned is not None and fixed is None:
            model.log_ent_coef.data.fill_(learned.item())
    except OnlyPickled as error:
        raise AccError(f"{path}: {error}; if you trust it: --trust-pickle") from None
    except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise _unfit(path, algo, env_id, error) from None
    return model  # type: ignore[no-any-return]


def _n_steps(data: Mapping[str, Any]) -> dict[str, int]:
    """n of the n-step returns that the critics have learned from; SB3 goes by the replay buffer's"""
    given = data.get("replay_buffer_kwargs")
    n = given.get("n_steps", 1) if isinstance(given, dict) else 1
    if not is_whole(n, 1):
        raise ValueError(f"its n_steps is {n!r}, but must be an integer >= 1")
    return {"n_steps": n} if n > 1 else {}


def _load_own(saved: SavedModel, algo: str | None, env_id: str, trust_pickle: bool) -> OffPolicyAlgorithm:
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


def _load_pickled(saved: SavedModel, cls: type[OffPolicyAlgorithm], algo: str, env_id: str) -> OffPolicyAlgorithm:
    env = envs.make(env_id)
    try:
        model = cls.load(io.BytesIO(saved.content), device="cpu")
        check_for_correct_spaces(env, model.observation_space, model.action_space)
    except Exception as error:  # whatever a pickle of something else brings
        raise _unfit(saved.path, algo, env_id, error) from None
    finally:
        env.close()
    return model


def _unfit(path: Path, algo: str, env_id: str, error: Exception) -> AccError:
    reason = " ".join(str(error).split())
    return AccError(f"{path}: does not fit a {algo} model on {env_id}: {reason}")
