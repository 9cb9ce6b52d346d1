"""Where a resumed run is not the run that was never stopped, someone says so."""

import threading
import warnings

import gymnasium as gym
import numpy as np
import pytest
from kit import Crash, at_step, crash, digests, run, tiny
from own_models import Game, learn, own_model, seeded
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnvWrapper, VecFrameStack

from acc_rl.algos.buffers import SharedReplayBuffer
from acc_rl.runs import envs
from acc_rl.runs.callbacks import DivergenceCallback, ValueErrorCallback

# --- the open episode is played again: all that it returned is compared ---


def normalized(**_):
    return gym.wrappers.NormalizeReward(Game())


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
    assert env.go_to(
        {key: value for key, value in position.items() if key != "returned"}
    )  # a checkpoint from before there was a hash


# --- what may have state outside checkpoints is named when training starts ---


class OwnNoise(ActionNoise):
    def __init__(self):
        self.generator = np.random.default_rng(0)

    def __call__(self):
        return self.generator.normal(size=1)


class OwnWrapper(VecEnvWrapper):
    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        return self.venv.step_wait()


class OwnBuffer(SharedReplayBuffer):
    """As a prioritised one would be"""


class OwnCallback(BaseCallback):
    def _on_step(self):
        return True


def function_as_callback(found, _):
    return True


def timed(env):
    return gym.wrappers.TimeLimit(env, 30)


MODELS = {
    "VecEnvWrapper VecFrameStack": lambda: own_model(env=VecFrameStack(DummyVecEnv([seeded]), 2)),
    "VecEnvWrapper OwnWrapper": lambda: own_model(env=OwnWrapper(DummyVecEnv([seeded]))),
    "env wrapper TimeLimit outside SeededEpisodes": lambda: own_model(env=DummyVecEnv([lambda: timed(seeded())])),
    "env wrapper Monitor outside SeededEpisodes": lambda: own_model(env=seeded()),
    "env wrapper NormalizeReward": lambda: own_model(
        env=DummyVecEnv([lambda: seeded(wrap=gym.wrappers.NormalizeReward)])
    ),
    "an env that is not in acc_rl.runs.envs.SeededEpisodes": lambda: own_model(env=gym.make("Game-nothing-v0")),
    "action noise OwnNoise": lambda: own_model(action_noise=OwnNoise()),
    "replay buffer OwnBuffer": lambda: own_model(replay_buffer_class=OwnBuffer),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_no_checkpoint_keeps_is_named_once_at_the_start(name, tmp_path):
    model = MODELS[name]()
    with pytest.warns(UserWarning, match="this run cannot be resumed exactly because") as told:
        learn(model, tmp_path, 60)
    assert [str(each.message).partition(" keeps the state of ")[2] for each in told] == [name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "this run cannot|env 0 could not")
        assert learn(MODELS[name](), tmp_path, 100).num_timesteps == 100


def test_envs_in_processes_of_their_own_are_looked_at_too(tmp_path):
    factories = [
        lambda: seeded(0, gym.wrappers.NormalizeObservation),
        lambda: timed(seeded(1)),
    ]
    model = own_model(env=SubprocVecEnv(factories, start_method="fork"))
    with pytest.warns(UserWarning, match="env wrapper TimeLimit outside SeededEpisodes, env wrapper NormalizeObs"):
        learn(model, tmp_path / "seeded", 40)
    model.env.close()
    model = own_model(env=SubprocVecEnv([lambda: gym.make("Game-nothing-v0")], start_method="fork"))
    with pytest.warns(UserWarning, match="an env that is not in"):
        learn(model, tmp_path / "plain", 40)
    model.env.close()


def test_callbacks_that_are_no_parts_are_named(tmp_path):
    value_error = ValueErrorCallback()
    callbacks = [OwnCallback(), ConvertCallback(function_as_callback), value_error, DivergenceCallback(10)]
    with pytest.warns(UserWarning, match="callback OwnCallback, callback function_as_callback$"):
        learn(own_model(), tmp_path / "a", 40, callbacks, parts={"value_error": value_error})
    with pytest.warns(UserWarning, match="callback ValueErrorCallback$"):
        learn(own_model(), tmp_path / "b", 40, [ValueErrorCallback()])


def test_a_registered_env_with_state_over_episodes_is_named_by_train(tmp_path, monkeypatch):
    spec = tiny("Game-normalized-v0", eval_every=1000)
    with pytest.warns(UserWarning, match="cannot be resumed exactly because .* env wrapper NormalizeReward$"):
        crashed(spec, tmp_path, monkeypatch)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run(spec, tmp_path)
    told = [str(each.message) for each in told]
    assert sum("env 0 could not be brought back" in each for each in told) == 1
    assert sum("cannot be resumed exactly" in each for each in told) == 1


def test_what_cannot_be_pickled_is_named(tmp_path):
    model = own_model()
    model.lock = threading.Lock()
    with pytest.warns(UserWarning, match="attribute lock, which cannot be pickled$"):
        learn(model, tmp_path, 40)
