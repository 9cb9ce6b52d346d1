"""Short real learning runs, with thresholds that a broken algorithm misses."""

import gymnasium as gym
import pytest
from small import CONTINUOUS
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from acc_rl.algos.registry import REGISTRY
from acc_rl.nn import head

SMALL = {
    "learning_rate": 1e-3,
    "learning_starts": 500,
    "buffer_size": 20_000,
    "batch_size": 64,
    "policy_kwargs": {"net_arch": [64, 64]},
    "bias": {"start_step": 1000, "update_interval": 200},
    "device": "cpu",
}


def make(name, env_id, **settings):
    own = {"n_critics": 2} if REGISTRY[name].module == "tqc" else {}
    return REGISTRY[name].make("MlpPolicy", env_id, seed=0, **{**SMALL, **own, **settings})


def learned(model, env_id, goal, within):
    """Whether the mean return of 20 test episodes reaches ``goal`` within so many steps."""
    env = Monitor(gym.make(env_id))
    env.reset(seed=100)
    while model.num_timesteps < within:
        model.learn(within // 10, reset_num_timesteps=False)
        if all(evaluate_policy(model, env, n_eval_episodes=n)[0] >= goal for n in (3, 20)):
            return True
    return False


# the baselines' updates equal SB3's and the official ones, which other tests show: their learning is a slow test
PLAIN = ("tqc", "sac", "td3")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in PLAIN else ()) for n in CONTINUOUS])
def test_pendulum(name):
    assert learned(make(name, "Pendulum-v1"), "Pendulum-v1", goal=-250, within=10_000)


@pytest.mark.parametrize("name", ["sac", pytest.param("tqc", marks=pytest.mark.slow)])
def test_pendulum_with_simbas_nets(name):
    arch = {"net_arch": [32], "nets": "simba"}
    model = make(name, "Pendulum-v1", policy_kwargs=arch)
    assert learned(model, "Pendulum-v1", goal=-250, within=10_000)


def test_pendulum_with_batch_norm():
    model = make("acc-x", "Pendulum-v1", policy_kwargs={"net_arch": [64, 64], "nets": "batchnorm"}, n_steps=1)
    assert learned(model, "Pendulum-v1", goal=-250, within=10_000)


@pytest.mark.slow
def test_inverted_pendulum():
    model = make("acc", "InvertedPendulum-v5")
    assert learned(model, "InvertedPendulum-v5", goal=900, within=20_000)


# as in RL Zoo, but for the nets' sizes
CARTPOLE = {
    "learning_rate": 2.3e-3,
    "learning_starts": 1000,
    "buffer_size": 100_000,
    "batch_size": 64,
    "train_freq": 256,
    "gradient_steps": 128,
    "target_update_interval": 10,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "bias": {"start_step": 2000, "update_interval": 500},
    "device": "cpu",
}


@pytest.mark.parametrize(
    ("name", "policy_kwargs"),
    [("acc-dqn", {"net_arch": [128, 128]}), ("acc-qrdqn", {"net_arch": [128, 128], "n_quantiles": 10})],
)
def test_cartpole(name, policy_kwargs):
    model = REGISTRY[name].make("MlpPolicy", "CartPole-v1", seed=0, policy_kwargs=policy_kwargs, **CARTPOLE)
    assert learned(model, "CartPole-v1", goal=450, within=50_000)


LUNAR_LANDER = {
    **CARTPOLE,
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "train_freq": 4,
    "gradient_steps": -1,
    "target_update_interval": 250,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    "bias": {},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "policy_kwargs"),
    [("acc-dqn", {"net_arch": [256, 256]}), ("acc-qrdqn", {"net_arch": [256, 256], "n_quantiles": 50})],
)
def test_lunar_lander(name, policy_kwargs):
    model = REGISTRY[name].make("MlpPolicy", "LunarLander-v3", seed=0, policy_kwargs=policy_kwargs, **LUNAR_LANDER)
    assert learned(model, "LunarLander-v3", goal=200, within=200_000)


def test_targets_reach_the_loss_in_ascending_order(monkeypatch):
    seen = []
    real = head.quantile_huber_loss
    monkeypatch.setattr(head, "quantile_huber_loss", lambda z, y: seen.append(y) or real(z, y))
    model = make("acc", "InvertedPendulum-v5")  # terminations make rows of equal targets
    model.learn(600)
    assert len(seen) == 100
    assert all((y.diff(dim=1) >= 0).all() for y in seen)
