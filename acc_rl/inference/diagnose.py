"""Does a critic over- or underestimate? For any off-policy model of SB3, sb3-contrib or this package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.preprocessing import maybe_transpose
from stable_baselines3.common.utils import obs_as_tensor

from acc_rl.algos.buffers import steps_of_targets
from acc_rl.algos.estimates import ModelEstimator
from acc_rl.core.episodes import Episodes
from acc_rl.core.errors import AccError, needs
from acc_rl.core.observations import Array, join
from acc_rl.runs import envs
from acc_rl.runs.evaluation import AFTERWARDS, evaluation_seeds, play_episodes
from acc_rl.runs.spec import RunSpec

with needs("report", "a diagnosis needs Altair"):  # for its picture
    import altair as alt


@dataclass(frozen=True)
class Diagnosis:
    """Estimates and returns of all pairs, episode by episode."""

    estimates: list[Array]
    returns: list[Array]

    def interval(self, samples: int = 10_000, seed: int = 0) -> tuple[float, float, float]:
        """Relative bias mean(Q - R) / |mean R| and its 95 % interval, by a bootstrap over episodes; all finite"""
        sums = np.array([[q.sum(), r.sum()] for q, r in zip(self.estimates, self.returns, strict=True)])
        draws = np.random.default_rng(seed).integers(len(sums), size=(samples, len(sums)))
        q, r = sums[draws].sum(axis=1).T
        total_q, total_r = sums.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = np.quantile((q - r) / np.abs(r), [0.025, 0.975])
            bias = (total_q - total_r) / abs(total_r)
        if not np.isfinite([bias, low, high]).all():
            raise AccError("estimates or returns are NaN or infinite, or returns are 0: there is no relative bias")
        return float(bias), float(low), float(high)

    def verdict(self) -> str:
        bias, low, high = self.interval()
        numbers = f"[{100 * low:.0f}, {100 * high:.0f}]"
        if low > 0:
            return f"overestimates by {100 * bias:.0f} % {numbers}"
        if high < 0:
            return f"underestimates by {-100 * bias:.0f} % [{-100 * high:.0f}, {-100 * low:.0f}]"
        return f"shows no bias that differs from zero: {100 * bias:+.0f} % {numbers}"

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


def diagnose(
    model: OffPolicyAlgorithm, task: str | RunSpec, episodes: int, seed: int = 0, horizon: int | None = None
) -> Diagnosis:
    """Play episodes as the model explores (soft policies sample) and compare Q(s, a) with what followed.

    The task is given by its id, or as a run has it, with limits, arguments and wrappers.

    For soft critics the returns contain the entropy bonus; where a time limit cut an episode, the critic's own value of
    the last state stands for what would have come.
    """
    made = [envs.make(task, horizon) for _ in range(episodes)]
    try:
        th.manual_seed(seed)
        return _collect(model, made, evaluation_seeds(seed, AFTERWARDS, episodes))
    finally:
        for env in made:
            env.close()


def _collect(model: OffPolicyAlgorithm, made: list[gym.Env[Any, Any]], seeds: list[int]) -> Diagnosis:
    critic = ModelEstimator(model)
    kept = Episodes(1, model.gamma, steps_of_targets(model))
    steps: list[list[tuple[Any, ...]]] = [[] for _ in made]
    actions: Any = None

    def act(observations: Any) -> Any:
        nonlocal actions
        observations = _channels_first(model, observations)
        with th.no_grad():
            actions = critic.act(obs_as_tensor(critic.normalized(observations), model.device))[0].cpu().numpy()
        return _env_actions(model, actions)

    for step in play_episodes(act, made, seeds):
        steps[step.env].append((step, actions[step.row]))
    for episode in steps:  # one after the other, as one env would have played them
        for step, action in episode:
            obs, final = (_channels_first(model, each) for each in (step.observation, step.next_observation))
            ended, cut = [step.ended], [not step.terminated]
            kept.add(join([obs], np.stack), [action], [step.reward], ended, cut, {0: final})
    pairs = kept.pairs(critic)
    assert pairs is not None
    returns, where = pairs.returns(critic.soft, bootstrap=True), np.flatnonzero(np.diff(pairs.episode)) + 1
    return Diagnosis(np.split(pairs.estimates, where), np.split(returns, where))


def _channels_first(model: OffPolicyAlgorithm, observations: Any) -> Any:
    """Images as SB3's wrappers hand them on"""
    space = model.observation_space
    if isinstance(space, spaces.Dict):
        return {key: maybe_transpose(each, space[key]) for key, each in observations.items()}
    return maybe_transpose(observations, space)


def _env_actions(model: OffPolicyAlgorithm, actions: Array) -> Any:
    if isinstance(model.action_space, spaces.Discrete):
        return actions
    return model.policy.unscale_action(actions.reshape(-1, *model.action_space.shape))  # type: ignore[misc]
