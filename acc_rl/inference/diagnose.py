"""Does a critic keep its promises? For any off-policy model of SB3, sb3-contrib or this package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import obs_as_tensor

from acc_rl.algos.estimates import value_estimate
from acc_rl.core.episodes import Array, discounted_returns, join
from acc_rl.runs import envs
from acc_rl.runs.evaluation import AFTERWARDS, evaluation_seeds


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
            raise ValueError("estimates or returns are NaN or infinite, or returns are 0: there is no relative bias")
        return float(bias), float(low), float(high)

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
    estimate = value_estimate(model)
    made = [envs.make(env_id) for _ in range(episodes)]
    try:
        seeds = evaluation_seeds(seed, AFTERWARDS, episodes)
        th.manual_seed(seed)
        return _collect(model, estimate, made, seeds)
    finally:
        for env in made:
            env.close()


def _collect(model: OffPolicyAlgorithm, estimate: Any, made: list[gym.Env[Any, Any]], seeds: list[int]) -> Diagnosis:
    observations = [env.reset(seed=seed)[0] for env, seed in zip(made, seeds, strict=True)]
    steps: list[list[tuple[float, float, float]]] = [[] for _ in made]  # Q, bonus, reward
    tails, running = [0.0] * len(made), list(range(len(made)))
    while running:
        q, bonus, actions = _act(model, estimate, [observations[i] for i in running])
        still = []
        for k, i in enumerate(running):
            observations[i], reward, terminated, truncated, _ = made[i].step(actions[k])
            steps[i].append((float(q[k]), float(bonus[k]), float(reward)))
            if not (terminated or truncated):
                still.append(i)
            elif not terminated:
                last_q, last_bonus, _ = _act(model, estimate, [observations[i]])
                tails[i] = float(last_q[0] + last_bonus[0])
        running = still
    estimates, returns = [], []
    for episode, tail in zip(map(np.array, steps), tails, strict=True):
        later_bonus = np.append(episode[1:, 1], 0.0)
        estimates.append(episode[:, 0])
        returns.append(discounted_returns(episode[:, 2] + model.gamma * later_bonus, model.gamma, tail))
    return Diagnosis(estimates, returns)


def _act(model: OffPolicyAlgorithm, estimate: Any, observations: list[Any]) -> tuple[Array, Array, Array]:
    """Q(s, a), the entropy bonus -alpha * log pi(a|s) (0 without entropy) and the env's action, for a batch"""
    batch = join(observations, np.stack)
    with th.no_grad():
        obs = obs_as_tensor(batch, model.device)
        log_prob = th.zeros(len(observations))
        if isinstance(model.action_space, spaces.Discrete):
            env_actions = model.policy.predict(batch, deterministic=True)[0]
            actions = th.as_tensor(env_actions, device=model.device)
        else:
            if hasattr(model, "ent_coef"):
                actions, log_prob = model.actor.action_log_prob(obs)  # type: ignore[operator]
            else:
                actions = model.actor(obs)
            scaled = actions.cpu().numpy().reshape(-1, *model.action_space.shape)  # type: ignore[misc]
            env_actions = model.policy.unscale_action(scaled)
        q = estimate(obs, actions)
        alpha = _temperature(model)
    return q.cpu().numpy(), (-alpha * log_prob).cpu().numpy(), env_actions


def _temperature(model: Any) -> float:
    if getattr(model, "log_ent_coef", None) is not None:
        return float(model.log_ent_coef.exp().item())
    return float(model.ent_coef_tensor.item()) if hasattr(model, "ent_coef_tensor") else 0.0
