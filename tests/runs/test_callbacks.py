"""Value error on plain SB3 models, and evaluation."""

from io import StringIO
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch as th
from rich.console import Console

from acc_rl import ValueErrorCallback
from acc_rl.algos.registry import find
from acc_rl.core.episodes import discounted_returns
from acc_rl.runs.evaluation import evaluate, evaluation_seeds, summary
from acc_rl.runs.progress import ProgressCallback
from acc_rl.store import records

MODELS = {
    "sac": (sb3.SAC, "Pendulum-v1"),
    "td3": (sb3.TD3, "Pendulum-v1"),
    "ddpg": (sb3.DDPG, "Pendulum-v1"),
    "tqc": (sb3_contrib.TQC, "Pendulum-v1"),
    "dqn": (sb3.DQN, "CartPole-v1"),
    "qrdqn": (sb3_contrib.QRDQN, "CartPole-v1"),
}


class Spy(ValueErrorCallback):
    """Keeps what it was given."""

    def _on_step(self):
        obs, locals_ = self.model._last_obs, self.locals
        with th.no_grad():
            value = self.critic.value(th.as_tensor(obs), th.as_tensor(locals_["buffer_actions"])).item()
        cut = locals_["infos"][0].get("TimeLimit.truncated", False)
        self.steps = [
            *getattr(self, "steps", []),
            (value, float(locals_["rewards"][0]), bool(locals_["dones"][0]), cut),
        ]
        return super()._on_step()


@pytest.mark.parametrize("name", MODELS)
def test_records_are_the_errors_of_the_estimates_at_that_time(name, tmp_path):
    cls, env_id = MODELS[name]
    model = cls("MlpPolicy", env_id, learning_starts=50, buffer_size=1000, policy_kwargs={"net_arch": [8]}, seed=0)
    spy = Spy(tmp_path / "value_error.jsonl", left_out=20, per_record=50)
    model.learn(450, callback=spy)
    pairs, episode = [], []
    for value, reward, done, cut in spy.steps:
        episode.append((value, reward))
        if done:
            values, rewards = np.array(episode).T
            kept = len(values) - 20 if cut else len(values)
            pairs += list(zip(values, discounted_returns(rewards, 0.99), strict=True))[:kept]
            episode = []
    rows = records.read(tmp_path / "value_error.jsonl")
    assert len(rows) == len(pairs) // 50 > 2
    for row, start in zip(rows, range(0, len(pairs), 50), strict=False):
        q, r = np.array(pairs[start : start + 50]).T
        assert row["bias"] == pytest.approx(np.mean(q - r))
        assert row["normalised"] == pytest.approx(np.mean(np.abs(q - r) / np.abs(r)))


class Countdown(gym.Env):
    """Ends after as many steps as its seed says; reward is the observation."""

    observation_space, action_space = gym.spaces.Box(0, 99, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.left = seed
        return np.array([seed], np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.array([self.left], np.float32), float(action), self.left == 0, False, {"success": self.left == 3}


def test_episodes_end_one_by_one_and_success_counts_at_any_step():
    episodes = evaluate(lambda obs: np.ones(len(obs), int), [Countdown() for _ in range(3)], [2, 5, 4])
    assert [e["length"] for e in episodes] == [2, 5, 4]
    assert [e["return"] for e in episodes] == [2, 5, 4]
    assert [e["success"] for e in episodes] == [False, True, True]
    assert summary(episodes)["success"] == pytest.approx(2 / 3)
    assert summary(episodes)["mean_return"] == pytest.approx(11 / 3)


def test_seeds_of_evaluations_are_all_different():
    seeds = [seed for run in range(3) for number in range(20) for seed in evaluation_seeds(run, number, 10)]
    assert len(set(seeds)) == 600
    assert evaluation_seeds(1, 2, 3) == evaluation_seeds(1, 2, 3)


@pytest.mark.parametrize(
    ("algo", "shown"), [("sac", None), ("acc-sac", "beta 0.00"), ("tqc-d2", "d 2.00"), ("acc", "d 2.50")]
)
def test_progress_shows_the_knob_where_there_is_one(algo, shown):
    model = find(algo).make("MlpPolicy", "Pendulum-v1", buffer_size=10, policy_kwargs={"net_arch": [8]})
    callback = ProgressCallback(100, "run", SimpleNamespace(last={"mean_return": -1}), Console(file=StringIO()))
    callback.init_callback(model)
    callback.start, callback.first = 0.0, 0
    assert callback.parts()[3:] == ([] if shown is None else [shown])
