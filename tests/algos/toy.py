"""A problem whose true Q is known: one state, reward 1, cut by a time limit after 1000 steps."""

import gymnasium as gym
import numpy as np
import torch as th
from small import KINDS, make

LIMIT, GAMMA = 1000, 0.99
ALPHA = 0.2
Q = 1 / (1 - GAMMA)
"""the critic looks through the time limit: 1 + gamma + gamma^2 + ... = 100"""


class ConstantReward(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, discrete):
        self.action_space = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, False, self.t == LIMIT, {}


def agent_that_says(name, value, controller=None, **bias):
    """An agent that has met one episode of 1000 steps, and whose critics say ``value`` everywhere."""
    kwargs = {"ent_coef": ALPHA} if KINDS[name] in ("tqc", "sac", "x") else {}
    settings = {"start_step": LIMIT, "update_interval": LIMIT, **bias}
    model = make(
        name,
        ConstantReward(KINDS[name] == "discrete"),
        learning_starts=10**6,
        seed=0,
        bias=settings,
        controller=controller,
        **kwargs,
    )
    for weight, bias in last_layers(model, KINDS[name]):
        weight.data.zero_()
        bias.data.fill_(value)
    model.learn(LIMIT)
    assert model.calibration.last_update == LIMIT
    return model


def last_layers(model, kind):
    if kind == "discrete":  # two layers in the online and in the target network
        for linear in [module for module in model.policy.modules() if isinstance(module, th.nn.Linear)][1::2]:
            yield linear.weight, linear.bias
    else:
        for critic in (model.critic, model.critic_target):
            yield critic.ensemble.parts(critic.ensemble.theta.data)[-2:]


def gap(model):
    return model.calibration.measured["gap"]
