"""Where a resumed run is not the run that was never stopped, someone says so."""

import gymnasium as gym
import numpy as np
import pytest
from kit import Crash, at_step, crash, digests, run, tiny

from acc_rl.runs import envs

# --- the open episode is played again: all that it returned is compared ---


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


def normalized(**_):
    return gym.wrappers.NormalizeReward(Game())


for kept in ("nothing", "an observation on the way", "reward"):
    gym.register(f"Game-{kept.replace(' ', '-')}-v0", Game, max_episode_steps=1000, kwargs={"kept": kept})
gym.register("Game-normalized-v0", normalized, max_episode_steps=1000)


def crashed(spec, out, monkeypatch, step=430):
    with monkeypatch.context() as patch, pytest.raises(Crash):
        at_step(patch, step, crash)
        run(spec, out, checkpoint_every=20)


@pytest.mark.parametrize("kept", ["an-observation-on-the-way", "reward"])
def test_state_over_episodes_is_noticed(kept, tmp_path, monkeypatch):
    spec = tiny(f"Game-{kept}-v0", eval_every=1000)
    crashed(spec, tmp_path, monkeypatch)
    with pytest.warns(UserWarning, match="env 0 could not be brought back .* do not follow from seed and actions"):
        run(spec, tmp_path)


def test_episodes_that_follow_from_seed_and_actions_are_exact(tmp_path, monkeypatch):
    spec = tiny("Game-nothing-v0")
    whole = digests(run(spec, tmp_path / "whole"))
    crashed(spec, tmp_path / "crashed", monkeypatch)
    assert digests(run(spec, tmp_path / "crashed")) == whole


@pytest.mark.parametrize("changed", ["observation", "reward", "truncated", "terminated", "nothing"])
def test_what_the_env_returned_is_compared_bit_for_bit(changed):
    class Once(gym.Env):
        observation_space = gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (2,)), "b": gym.spaces.Discrete(3)})
        action_space = gym.spaces.Box(-1, 1, (1,))
        resets = 0

        def reset(self, *, seed=None, options=None):
            Once.resets, self.t = Once.resets + 1, 0
            return {"a": np.zeros(2), "b": 0}, {}

        def step(self, action):
            self.t += 1
            what = changed if Once.resets == 2 and self.t == 3 else "nothing"
            observation = {"a": np.full(2, -0.0 if what == "observation" else 0.0), "b": 1}
            return observation, 1e-300 * (what == "reward"), what == "terminated", what == "truncated", {}

    env = envs.SeededEpisodes(Once(), 0, 0)
    env.reset()
    for _ in range(5):
        env.step(np.zeros(1))
    position = env.position()
    assert env.go_to(position) == (changed == "nothing")
    assert env.go_to(position)
    assert env.go_to({key: value for key, value in position.items() if key != "returned"})  # as acc_rl 0.1 had it
