"""Short real learning runs, with thresholds that a broken algorithm misses."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from acc_rl import ACC
from acc_rl.algos import tqc

SMALL = {
    "n_critics": 2,
    "learning_rate": 1e-3,
    "learning_starts": 500,
    "buffer_size": 20_000,
    "batch_size": 64,
    "policy_kwargs": {"net_arch": [64, 64]},
    "bias": {"start_step": 1000, "update_interval": 200},
    "device": "cpu",
}


def learned(model, env_id, goal, within):
    """Whether the mean return of 20 test episodes reaches ``goal`` within so many steps."""
    env = Monitor(gym.make(env_id))
    env.reset(seed=100)
    while model.num_timesteps < within:
        model.learn(1000, reset_num_timesteps=False)
        if all(evaluate_policy(model, env, n_eval_episodes=n)[0] >= goal for n in (3, 20)):
            return True
    return False


@pytest.mark.parametrize(
    ("env_id", "goal", "within"), [("Pendulum-v1", -250, 10_000), ("InvertedPendulum-v5", 900, 20_000)]
)
def test_learns(env_id, goal, within):
    assert learned(ACC("MlpPolicy", env_id, seed=0, **SMALL), env_id, goal, within)


class ConstantReward(gym.Env):
    """Reward 1 for 100 steps, always: Q of the first state is (1 - gamma^100) / (1 - gamma) for every policy."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 100, False, {}


def after_one_update(shift):
    """beta after the first update of an agent whose untrained critics say ``shift`` everywhere."""
    model = ACC("MlpPolicy", ConstantReward(), **{**SMALL, "learning_starts": 10_000})
    model.critic.ensemble.weights[-1].data.zero_()
    model.critic.ensemble.biases[-1].data.fill_(shift)
    model.learn(1000)
    return model


def test_beta_rises_under_an_underestimating_critic_and_falls_under_an_overestimating_one():
    under, over = after_one_update(0.0), after_one_update(1000.0)
    assert under.beta == pytest.approx(2.6)
    assert over.beta == pytest.approx(2.4)
    assert under.dropped_per_net == pytest.approx(2.4)  # fewer dropped atoms: larger targets
    mean_return = np.mean([(1 - 0.99**n) / (1 - 0.99) for n in range(1, 101)])
    assert under._bias_metrics == pytest.approx({"gap": mean_return, "mean_q": 0, "mean_return": mean_return})


def test_the_target_follows_beta():
    """Larger beta, larger target: what would be wrong if the sign of the bias were flipped anywhere."""
    model = ACC("MlpPolicy", "Pendulum-v1", seed=0, **SMALL)
    model.learn(600)
    batch = model.replay_buffer.sample(64)
    means = []
    for beta in (0.0, 1.0, 2.5, 5.0):
        th.manual_seed(0)
        with th.no_grad():
            means.append(model.td_target(batch, beta).mean().item())
    assert means == sorted(means)
    assert means[0] < means[-1]


def test_targets_reach_the_loss_in_ascending_order(monkeypatch):
    seen = []
    real = tqc.quantile_huber_loss
    monkeypatch.setattr(tqc, "quantile_huber_loss", lambda z, y: seen.append(y) or real(z, y))
    model = ACC("MlpPolicy", "InvertedPendulum-v5", seed=0, **SMALL)  # terminations make rows of equal targets
    model.learn(600)
    assert len(seen) == 100
    assert all((y.diff(dim=1) >= 0).all() for y in seen)
