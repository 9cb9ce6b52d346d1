"""The tables in docs/control.md: gaps by n-step residuals and by whole episodes against Monte Carlo rollouts.

A policy and its critic are trained on Hopper-v5 and then frozen. Some states are put back into MuJoCo, and many
rollouts from each, without a time limit, give its true soft value. Each kind of evidence is computed from the same
rollouts, and from windows of steps as the calibration keeps them.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch as th

from acc_rl.algos.calibrated import Calibrated
from acc_rl.algos.registry import find
from acc_rl.core.episodes import Episode, Episodes, Pairs, clustered
from acc_rl.runs.provenance import cpu_name

LENGTHS = (20, 100, 300)
WINDOW = 5000
"""pairs that the calibration keeps"""
LONGEST = 2000
"""steps of a rollout: what comes later weighs 2e-9"""


@dataclass(frozen=True)
class Pair:
    """A state of MuJoCo and the action taken there"""

    qpos: np.ndarray
    qvel: np.ndarray
    observation: np.ndarray
    action: np.ndarray


class Player:
    """A frozen policy in envs without a time limit, and its critic"""

    def __init__(self, model: Calibrated, n_envs: int) -> None:
        self.model, self.envs = model, [gym.make("Hopper-v5").unwrapped for _ in range(n_envs)]
        self.episodes = Episodes(1, model.gamma)

    def act(self, observations: list[np.ndarray]) -> np.ndarray:
        """a ~ pi(s), as the critic sees it"""
        with th.no_grad():
            obs = th.as_tensor(np.stack(observations), dtype=th.float32)
            return self.model.estimator.act(obs)[0].numpy()

    def step(self, env: gym.Env, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        observation, reward, terminated, _, _ = env.step(self.model.policy.unscale_action(action))
        return observation, float(reward), terminated

    def pairs(self, episodes: list[Episode]) -> Pairs:
        found = self.episodes.pairs(self.model.estimator, episodes)
        assert found is not None
        return found

    # --- windows of steps, as training collects them ---

    def windows(self, limit: int = 1000) -> tuple[list[list[Episode]], list[Pair]]:
        """WINDOW steps of each env, episodes cut at the time limit; and all pairs, to which MuJoCo can be set back"""
        parts: list[list[Episode]] = [[] for _ in self.envs]
        steps: list[list[tuple]] = [[] for _ in self.envs]
        visited = []
        observations = [env.reset(seed=i)[0] for i, env in enumerate(self.envs)]
        for t in range(WINDOW):
            actions = self.act(observations)
            for i, env in enumerate(self.envs):
                before, action = observations[i], actions[i]
                visited.append(Pair(env.data.qpos.copy(), env.data.qvel.copy(), before, action))
                observations[i], reward, terminated = self.step(env, action)
                steps[i].append((before, action, reward))
                if terminated or len(steps[i]) == limit or t == WINDOW - 1:
                    parts[i].append(episode(steps[i], observations[i], not terminated))
                    observations[i], steps[i] = env.reset()[0], []
        return parts, visited

    # --- Monte Carlo ---

    def rollouts(self, pair: Pair, number: int) -> list[Episode]:
        """From one state and action on, to the end"""
        envs, steps, done = self.envs[:number], [[] for _ in range(number)], {}
        observations = []
        for env in envs:
            env.reset()
            env.set_state(pair.qpos, pair.qvel)
            observations.append(pair.observation)
        running, actions = list(range(number)), np.repeat(pair.action[None], number, axis=0)
        while running:
            for i, action in zip(running, actions, strict=True):
                before = observations[i]
                observations[i], reward, terminated = self.step(envs[i], action)
                steps[i].append((before, action, reward))
                if terminated or len(steps[i]) == LONGEST:
                    done[i] = episode(steps[i], observations[i], not terminated)
            running = [i for i in running if i not in done]
            actions = self.act([observations[i] for i in running]) if running else actions
        return [done[i] for i in range(number)]


def episode(steps: list[tuple], final: np.ndarray, truncated: bool) -> Episode:
    observations, actions, rewards = zip(*steps, strict=True)
    unknown = np.full(len(steps), np.nan)
    return Episode(np.stack(observations), np.stack(actions), np.array(rewards), final, truncated, unknown, 0)


def kinds(pairs: Pairs, gamma: float) -> Iterator[tuple[str, Pairs]]:
    """Every kind of evidence, with what its standard error counts as one"""
    for n in LENGTHS:
        yield f"n = {n}", pairs.within(n, gamma)
    yield "whole episodes", pairs


def gaps(pairs: Pairs) -> np.ndarray:
    """(soft R with the critic's value where it stops - Q) of each pair"""
    return pairs.returns(soft=True, bootstrap=True) - pairs.estimates


def against_rollouts(player: Player, pairs: list[Pair], rollouts: int) -> None:
    """Bias of each kind of evidence in single states, from the rollouts that give the true value too"""
    truth, found = [], {}
    for pair in pairs:
        all_pairs = player.pairs(player.rollouts(pair, rollouts))
        first = np.flatnonzero(np.diff(all_pairs.episode, prepend=-1))
        truth.append(gaps(all_pairs)[first])
        for name, each in kinds(all_pairs, player.model.gamma):
            # a constant error of the critic shows by this share alone
            found.setdefault(name, []).append(gaps(each)[first] / (1 - each.weight[first].mean()))
    true = np.array(truth)
    mean = true.mean(axis=1)
    print(
        f"Monte Carlo: gap {mean.mean():.2f} +- {standard_error(mean):.2f} over {len(pairs)} states, in single states"
    )
    print(f"{mean.min():.1f} to {mean.max():.1f}, +- {np.mean(true.std(axis=1, ddof=1)) / rollouts**0.5:.2f} each.\n")
    print("| evidence | gap | bias | bias in single states, RMS | spread of one residual |\n|---|---|---|---|---|")
    for name, values in found.items():
        estimates = np.array(values)
        bias = estimates.mean(axis=1) - mean
        noise = np.mean(np.var(estimates - true, axis=1, ddof=1)) / rollouts  # of the rollouts, in the mean square
        print(
            f"| {name} | {estimates.mean():.2f} | {bias.mean():+.2f} +- {standard_error(bias):.2f} "
            f"| {max(np.mean(bias**2) - noise, 0) ** 0.5:.2f} | {estimates.std(axis=1, ddof=1).mean():.1f} |"
        )


def over_windows(player: Player, windows: list[list[Episode]]) -> None:
    """What the calibration would have measured on each window"""
    measured: dict[str, list[tuple[float, float]]] = {}
    for window in windows:
        for name, each in kinds(player.pairs(window), player.model.gamma):
            seen = 1 - float(each.weight.mean())
            measured.setdefault(name, []).append(clustered(gaps(each), each.episode, seen))
    print(
        "\n| evidence | gap, mean of windows | spread of windows | standard error that is logged |\n|---|---|---|---|"
    )
    for name, values in measured.items():
        gap, error = np.array(values).T
        print(
            f"| {name} | {gap.mean():.2f} +- {standard_error(gap):.2f} | {gap.std(ddof=1):.2f} | {error.mean():.2f} |"
        )


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5)


def trained(algo: str, steps: int, path: Path | None) -> Calibrated:
    if path is not None and path.exists():
        return find(algo).load().load(path)
    model = find(algo).make("MlpPolicy", "Hopper-v5", seed=0)
    model.learn(steps)
    if path is not None:
        model.save(path)
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algo", default="acc-x", help="a soft algorithm")
    parser.add_argument("--steps", type=int, default=30_000, help="of training")
    parser.add_argument("--model", type=Path, help="file to take the model from, or to save it to")
    parser.add_argument("--states", type=int, default=20, help="to which MuJoCo is set back")
    parser.add_argument("--rollouts", type=int, default=100, help="from each of them")
    parser.add_argument("--windows", type=int, default=20, help=f"of {WINDOW} steps each")
    asked = parser.parse_args()
    th.set_num_threads(1)
    model = trained(asked.algo, asked.steps, asked.model)
    th.manual_seed(1)
    windows, visited = Player(model, asked.windows).windows()
    some = [visited[i] for i in np.random.default_rng(0).choice(len(visited), asked.states, replace=False)]
    lengths = [len(each) for window in windows for each in window]
    print(f"{asked.algo}, {asked.steps} steps of Hopper-v5, seed 0; {asked.states} states, {asked.rollouts} rollouts")
    print(f"each; {asked.windows} windows of {WINDOW} steps, episodes of {np.mean(lengths):.0f} steps on average.")
    player = Player(model, asked.rollouts)
    against_rollouts(player, some, asked.rollouts)
    over_windows(player, windows)
    print(f"\nMade by `python examples/evidence.py` on {time.strftime('%Y-%m-%d')}, {cpu_name()}, 1 thread.")
