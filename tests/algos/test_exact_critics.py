"""The gap of an exact critic is 0, however many envs play and however the policy explores."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from small import make
from stable_baselines3.common.vec_env import DummyVecEnv
from toy import last_layers

GAMMA, DEATH = 0.99, 0.01
Q_MORTAL = 1 / (1 - GAMMA * (1 - DEATH))
"""reward 1 at every step, and every step may be the last"""


class Mortal(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))
    made = 0

    def __init__(self):
        Mortal.made += 1
        self.rng = np.random.default_rng(Mortal.made)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, bool(self.rng.random() < DEATH), False, {}


def gap_of_many(tail, vec_steps, n_envs=256):
    Mortal.made = 0
    bias = {"start_step": 0, "update_interval": 1000, "pairs_kept": 5000, "tail": tail}
    model = make("td3", DummyVecEnv([Mortal] * n_envs), learning_starts=10**9, bias=bias, seed=0)
    for weight, last in last_layers(model, "td3"):
        weight.data.zero_()
        last.data.fill_(Q_MORTAL)
    gaps = []
    model.calibration.controller.measured = lambda evidence: gaps.append(evidence.gap)
    model.learn(vec_steps * n_envs)
    return np.array(gaps)


@pytest.mark.filterwarnings("ignore:n_envs is 256 and bias.tail")
def test_early_deaths_do_not_come_first():
    # ended episodes alone are the short ones: after 20 steps none is longer
    assert gap_of_many("none", 20)[-1] < -0.6 * Q_MORTAL
    gaps = gap_of_many("bootstrap", 100)
    assert len(gaps) == 25
    assert abs(gaps.mean()) < 0.02 * Q_MORTAL
    assert np.abs(gaps).max() < 0.08 * Q_MORTAL


def test_many_envs_are_reported():
    with pytest.warns(UserWarning, match="n_envs is 9 and bias.tail 'none'"):
        make("td3", DummyVecEnv([Mortal] * 9), gradient_steps=-1)
    make("td3", DummyVecEnv([Mortal] * 8), gradient_steps=-1)
    make("td3", DummyVecEnv([Mortal] * 9), gradient_steps=-1, bias={"tail": "bootstrap"})


def test_few_gradient_steps_per_env_step_are_reported():
    with pytest.warns(UserWarning, match="n_envs is 2: 1 gradient steps follow 2 env steps"):
        make("td3", DummyVecEnv([Mortal] * 2))
    make("td3", DummyVecEnv([Mortal] * 2), gradient_steps=2)
    make("td3", DummyVecEnv([Mortal]))


LENGTH = 20
CHAIN = np.stack([GAMMA ** np.arange(LENGTH - 1, -1, -1.0), np.zeros(LENGTH)], axis=1)
"""Q(s, a): action 0 walks to the reward of 1 at the end of the chain, action 1 ends the episode with nothing"""


class Chain(gym.Env):
    observation_space = gym.spaces.Box(0, 1, (LENGTH,))
    action_space = gym.spaces.Discrete(2)

    def observe(self):
        return np.eye(LENGTH, dtype=np.float32)[min(self.at, LENGTH - 1)]

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return self.observe(), {}

    def step(self, action):
        self.at += 1
        ended = bool(action == 1 or self.at == LENGTH)
        return self.observe(), float(action == 0 and self.at == LENGTH), ended, False, {}


@pytest.mark.parametrize("name", ["dqn", "qrdqn"])
def test_exploration_does_not_make_an_exact_critic_look_too_high(name):
    relative = {}
    for tail in ("none", None):  # None: the default of discrete algorithms
        bias = {"start_step": 2500, "update_interval": 2500, **({"tail": tail} if tail else {})}
        exploration = {"exploration_initial_eps": 0.05, "exploration_final_eps": 0.05}
        arch = {"policy_kwargs": {"net_arch": []}}
        model = make(name, Chain(), learning_starts=10**9, bias=bias, seed=0, gamma=GAMMA, **exploration, **arch)
        (linear,) = [m for m in model.policy.modules() if isinstance(m, th.nn.Linear)][:1]
        atoms = linear.out_features // 2
        with th.no_grad():
            weight = th.as_tensor(CHAIN.T, dtype=th.float32)
            linear.weight.copy_(weight.repeat(atoms, 1))
            linear.bias.zero_()
        model.learning_starts = 0
        model.train = lambda *_, **__: None
        model.learn(2600)
        found = model.calibration.measured
        relative[tail] = found["gap"] / found["mean_q"]
    assert relative["none"] < -0.2
    assert relative[None] == pytest.approx(0, abs=1e-6)
