"""Does a critic keep its promises? For any off-policy model of SB3, sb3-contrib or this package."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import gymnasium as gym
import numpy as np
import sb3_contrib
import stable_baselines3 as sb3
import torch as th
from gymnasium import spaces
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import check_for_correct_spaces, obs_as_tensor

from acc_rl.algos.estimates import ModelEstimator
from acc_rl.algos.registry import REGISTRY, find
from acc_rl.core.checks import hint
from acc_rl.core.episodes import Array, Episodes, join
from acc_rl.core.errors import AccError
from acc_rl.runs import envs
from acc_rl.runs.evaluation import AFTERWARDS, evaluation_seeds, play_episodes
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
"""bytes that one file in a model may unpack to"""


@dataclass(frozen=True)
class Diagnosis:
    """Estimates and returns of all pairs, episode by episode."""

    estimates: list[Array]
    returns: list[Array]

    def interval(self, samples: int = 10_000, seed: int = 0) -> tuple[float, float, float]:
        """Relative bias mean(Q - R) / |mean R| and its 95 % interval, by a bootstrap over episodes"""
        sums = np.array([[q.sum(), r.sum()] for q, r in zip(self.estimates, self.returns, strict=True)])
        draws = np.random.default_rng(seed).integers(len(sums), size=(samples, len(sums)))
        q, r = sums[draws].sum(axis=1).T
        total_q, total_r = sums.sum(axis=0)
        low, high = np.quantile((q - r) / np.abs(r), [0.025, 0.975])
        return float((total_q - total_r) / abs(total_r)), float(low), float(high)

    def verdict(self) -> str:
        bias, low, high = self.interval()
        numbers = f"[{100 * low:.0f}, {100 * high:.0f}]"
        if low > 0:
            return f"overestimates by {100 * bias:.0f} % {numbers}"
        if high < 0:
            return f"underestimates by {-100 * bias:.0f} % [{-100 * high:.0f}, {-100 * low:.0f}]"
        return f"shows no bias that could be told from zero: {100 * bias:+.0f} % {numbers}"

    def draw(self, path: Path, title: str, points: int = 2000) -> None:
        """Q against return, with the line on which a perfect critic lies"""
        q, r = np.concatenate(self.estimates), np.concatenate(self.returns)
        some = np.random.default_rng(0).permutation(len(q))[:points]
        rows = [{"return": float(r[i]), "Q": float(q[i])} for i in some]
        low, high = float(min(q.min(), r.min())), float(max(q.max(), r.max()))
        line = alt.Chart(alt.Data(values=[{"x": low}, {"x": high}])).mark_line(color="black").encode(x="x:Q", y="x:Q")
        dots = (
            alt.Chart(alt.Data(values=rows), title=title, width=420, height=420)
            .mark_circle(opacity=0.35)
            .encode(alt.X("return:Q", title="return that followed"), alt.Y("Q:Q", title="critic's estimate"))
        )
        (dots + line).save(path, scale_factor=2)


def diagnose(model: OffPolicyAlgorithm, env_id: str, episodes: int, seed: int = 0) -> Diagnosis:
    """Play episodes as the model explores (soft policies sample) and compare Q(s, a) with what followed.

    For soft critics the returns contain the entropy bonus; where a time limit cut an episode, the critic's own value of
    the last state stands for what would have come.
    """
    made = [envs.make(env_id) for _ in range(episodes)]
    try:
        th.manual_seed(seed)
        return _collect(model, made, evaluation_seeds(seed, AFTERWARDS, episodes))
    finally:
        for env in made:
            env.close()


def _collect(model: OffPolicyAlgorithm, made: list[gym.Env[Any, Any]], seeds: list[int]) -> Diagnosis:
    critic = ModelEstimator(model)
    kept = Episodes(1, model.gamma, getattr(model, "n_steps", 1))
    steps: list[list[tuple[Any, ...]]] = [[] for _ in made]
    actions: Any = None

    def act(observations: Any) -> Any:
        nonlocal actions
        with th.no_grad():
            actions = critic.act(obs_as_tensor(observations, model.device))[0].cpu().numpy()
        return _env_actions(model, actions)

    for step in play_episodes(act, made, seeds):
        steps[step.env].append((step, actions[step.row]))
    for episode in steps:  # one after the other, as one env would have played them
        for step, action in episode:
            obs = join([step.observation], np.stack)
            ended, cut = [step.ended], [not step.terminated]
            kept.add(obs, [action], [step.reward], ended, cut, {0: step.next_observation})
    pairs = kept.pairs(critic)
    assert pairs is not None
    returns, where = pairs.returns(critic.soft, bootstrap=True), np.flatnonzero(np.diff(pairs.episode)) + 1
    return Diagnosis(np.split(pairs.estimates, where), np.split(returns, where))


def _env_actions(model: OffPolicyAlgorithm, actions: Array) -> Any:
    if isinstance(model.action_space, spaces.Discrete):
        return actions
    return model.policy.unscale_action(actions.reshape(-1, *model.action_space.shape))  # type: ignore[misc]


def load_model(path: Path, algo: str, env_id: str, trust_pickle: bool = False) -> OffPolicyAlgorithm:
    """A model from SB3's zip. Unless it is trusted, only its weights and plain numbers are read, never a pickle."""
    if algo not in FOREIGN and algo not in REGISTRY:
        find(algo)  # its error suggests the nearest name
    if not zipfile.is_zipfile(path):
        raise AccError(f"{path}: no model that SB3 saved" if path.exists() else f"{path}: No such file")
    with zipfile.ZipFile(path) as archive:
        ours = OWN in archive.namelist()
        if ours and algo not in REGISTRY:
            raise AccError(f"{path}: a model of this package, which has no {algo}; {hint(algo, REGISTRY)}")
        if not ours and algo not in FOREIGN:
            raise AccError(f"{path}: no {algo} model: it was not saved by this package")
        if ours and not trust_pickle:
            raise AccError(f"{path}: a model of this package can only be read with --trust-pickle")
        cls: Any = find(algo).load() if ours else FOREIGN[algo]
        if trust_pickle:
            return _trusted(cls, path, algo, env_id)
        data = _plain_data(archive)
        weights = _weights(archive, "policy.pth")
        variables = _weights(archive, "pytorch_variables.pth", default={})
    if any("features_extractor" in name for name in weights):
        raise AccError(f"{path}: its features extractor is only told in pickled code; if you trust it: --trust-pickle")
    env = envs.make(env_id)
    fixed = variables.get("ent_coef_tensor")
    arguments: dict[str, Any] = {} if fixed is None else {"ent_coef": float(fixed)}
    gamma = data.get("gamma", 0.99)
    if not isinstance(gamma, (int, float)):
        raise AccError(f"{path}: its gamma is {gamma!r}, but must be a number")
    try:
        policy_kwargs = _architecture(algo, weights, env, data)
        model: OffPolicyAlgorithm = cls(
            "MlpPolicy", env, buffer_size=1, gamma=gamma, policy_kwargs=policy_kwargs, device="cpu", **arguments
        )
        model.policy.load_state_dict(weights)
    except (AssertionError, RuntimeError, ValueError) as error:
        raise _unfit(path, algo, env_id, error) from None
    learned = variables.get("log_ent_coef")
    if learned is not None:
        model.log_ent_coef.data = learned.data  # type: ignore[attr-defined]
    return model


def _trusted(cls: Any, path: Path, algo: str, env_id: str) -> OffPolicyAlgorithm:
    env = envs.make(env_id)
    try:
        model: OffPolicyAlgorithm = cls.load(path, device="cpu")
        check_for_correct_spaces(env, model.observation_space, model.action_space)
    except Exception as error:  # whatever a pickle of something else brings
        raise _unfit(path, algo, env_id, error) from None
    finally:
        env.close()
    return model


def _unfit(path: Path, algo: str, env_id: str, error: Exception) -> AccError:
    reason = " ".join(str(error).split())
    return AccError(f"{path}: does not fit a {algo} model on {env_id}: {reason}")


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > LARGEST:
        raise AccError(f"{archive.filename}: {name} says it is larger than {LARGEST} bytes")
    return archive.read(name)


def _plain_data(archive: zipfile.ZipFile) -> dict[str, Any]:
    try:
        data = json.loads(_read(archive, "data"))
    except (KeyError, ValueError):
        raise AccError(f"{archive.filename}: no model that SB3 saved") from None
    return data if isinstance(data, dict) else {}


def _weights(archive: zipfile.ZipFile, name: str, default: Any = None) -> Any:
    if name not in archive.namelist() and default is not None:
        return default
    try:
        weights = th.load(io.BytesIO(_read(archive, name)), map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise AccError(f"{archive.filename}: {name} holds more than weights: {reason}") from None
    if not isinstance(weights, dict):
        raise AccError(f"{archive.filename}: {name} holds no weights by name")
    return weights


def _architecture(algo: str, weights: Mapping[str, th.Tensor], env: gym.Env[Any, Any], data: Any) -> dict[str, Any]:
    """Sizes of the nets, read off the weights; the activation's name is told in plain text"""

    def outputs(prefix: str) -> list[int]:
        layers = {int(m[1]): len(w) for n, w in weights.items() if (m := re.fullmatch(rf"{prefix}\.(\d+)\.weight", n))}
        if not layers:
            raise AccError("it has no weights of " + prefix.replace("\\", ""))
        return [layers[i] for i in sorted(layers)]

    kwargs: dict[str, Any] = {}
    if algo in ("dqn", "qrdqn"):
        name = "q_net" if algo == "dqn" else "quantile_net"
        *hidden, last = outputs(rf"{name}\.{name}")
        kwargs["net_arch"] = hidden
        if algo == "qrdqn":
            if not isinstance(env.action_space, spaces.Discrete):
                raise AccError(f"its actions are discrete, not {env.action_space}")
            kwargs["n_quantiles"] = last // int(env.action_space.n)
    else:
        *critic, last = outputs(r"critic\.qf0")
        actor = outputs(r"actor\.latent_pi") if algo in ("sac", "tqc") else outputs(r"actor\.mu")[:-1]
        kwargs["net_arch"] = {"pi": actor, "qf": critic}
        kwargs["n_critics"] = sum(bool(re.fullmatch(r"critic\.qf\d+\.0\.weight", name)) for name in weights)
        if algo == "tqc":
            kwargs["n_quantiles"] = last
    told = data.get("policy_kwargs")
    activation = str(told.get("activation_fn", "ReLU")) if isinstance(told, dict) else "ReLU"
    known = [cls for cls in ACTIVATIONS.values() if re.search(rf"\b{cls.__name__}\b", activation)]
    if not known:
        raise AccError(f"activation {activation} is not known here; if you trust the file: --trust-pickle")
    return {**kwargs, "activation_fn": known[0]}
