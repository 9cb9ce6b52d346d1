"""Models of one's own on a small env, with checkpoints."""

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv

from acc_rl import ACC
from acc_rl.runs import envs
from acc_rl.runs.resume import CheckpointCallback
from acc_rl.store.checkpoint import STATE, TENSORS


class Game(gym.Env):
    """Episodes of 50 steps that follow from seed and actions, but for what ``kept`` says."""

    observation_space = gym.spaces.Box(-10, 10, (2,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, kept="nothing"):
        self.kept, self.resets, self.t = kept, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets, self.t = self.resets + 1, 0
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        self.t += 1
        observation, reward = np.array([np.sin(self.t), action[0]], np.float32), float(action[0])
        if self.t == 2 and self.kept == "an observation on the way":
            observation[0] = self.resets
        if self.kept == "reward":
            reward += self.resets
        return observation, reward, False, self.t == 50, {}


for kept in ("nothing", "an observation on the way", "reward"):
    gym.register(f"Game-{kept.replace(' ', '-')}-v0", Game, max_episode_steps=1000, kwargs={"kept": kept})


def seeded(index=0, wrap=lambda env: env):
    return envs.SeededEpisodes(wrap(gym.make("Game-nothing-v0")), 3, index)


def own_model(cls=ACC, env=None, **settings):
    small = {"learning_starts": 40, "batch_size": 8, "buffer_size": 200, "train_freq": 4, "seed": 3}
    small |= {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [8]}}, "bias": {"start_step": 60, "update_interval": 50}}
    return cls("MlpPolicy", env or DummyVecEnv([seeded]), **{**small, **settings})


def learn(model, folder, steps, callbacks=(), **options):
    saver = CheckpointCallback(folder, every=20, **options)
    done = saver.resume(model)
    model.learn(steps - (done or 0), [saver.beginning, *callbacks, saver], reset_num_timesteps=done is None)
    return model


def same(a, b, step):
    """Whether two folders have the same last checkpoint, bit for bit"""
    names = [f"step-{step:012d}/{name}" for name in (STATE, TENSORS)]
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in names)


def resumes_exactly(make, folder, steps=120, stop=77):
    whole = learn(make(), folder / "whole", steps)
    learn(make(), folder / "parts", stop)
    parts = learn(make(), folder / "parts", steps)
    assert same(folder / "whole", folder / "parts", steps)
    return whole, parts
