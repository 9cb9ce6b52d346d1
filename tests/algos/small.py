"""Algorithms small enough for a test, with a bias rule that acts within a few hundred steps."""

import gymnasium as gym
import numpy as np

from acc_rl.algos.registry import REGISTRY

BIAS = {"start_step": 100, "update_interval": 50, "pairs_kept": 300}
PAPER = {"returns": "plain", "tail": "none", "warm_up": "keep", "rule": "paper"}
"""for acc-x, whose own defaults are others"""
COMMON = {"buffer_size": 1000, "learning_starts": 50, "batch_size": 16, "device": "cpu"}
QUANTILE = {"n_critics": 2, "n_atoms": 7}
OWN = {
    "acc": QUANTILE,
    "tqc": QUANTILE,
    "acc-x": {"n_atoms": 21},
    "acc-td3": {},
    "td3": {},
    "acc-sac": {},
    "sac": {},
    "acc-ddpg": {},
    "acc-dqn": {"target_update_interval": 40},
    "acc-qrdqn": {"target_update_interval": 40},
}
ALSO = {
    "x-min": OWN["acc-x"],
    "ddpg": OWN["acc-ddpg"],
    "dqn": OWN["acc-dqn"],
    "qrdqn": OWN["acc-qrdqn"],
}
"""the same with a constant controller"""
KINDS = {name: "discrete" if "dqn" in name else REGISTRY[name].module for name in OWN | ALSO}
SOFT = [name for name in OWN if KINDS[name] in ("tqc", "sac", "x")]
CONTINUOUS = [name for name in OWN if KINDS[name] != "discrete"]
ADAPTIVE = [name for name in OWN if name.startswith("acc")]


def make(name, env, policy="MlpPolicy", **kwargs):
    policy_kwargs = {"net_arch": [16], **kwargs.pop("policy_kwargs", {})}
    paper = PAPER if KINDS[name] == "x" else {}
    kwargs["bias"] = {**paper, **kwargs.get("bias", BIAS)}
    settings = {**COMMON, **(OWN | ALSO)[name], "policy_kwargs": policy_kwargs, **kwargs}
    return REGISTRY[name].make(policy, env, **settings)


class ShortPendulum(gym.Wrapper):
    """Episodes of 20 steps, so that the bias rule is due early."""

    def __init__(self):
        super().__init__(gym.wrappers.TimeLimit(gym.make("Pendulum-v1").unwrapped, 20))


class DiscretePendulum(gym.ActionWrapper):
    """The same with three torques to choose from."""

    def __init__(self):
        super().__init__(ShortPendulum())
        self.action_space = gym.spaces.Discrete(3)

    def action(self, action):
        return np.array([2.0 * (action - 1)], dtype=np.float32)


def env_class(name):
    return DiscretePendulum if KINDS[name] == "discrete" else ShortPendulum
