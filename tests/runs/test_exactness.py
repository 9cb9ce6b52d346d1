"""Where a resumed run is not the run that was never stopped, someone says so."""

import threading
import warnings
from collections import deque
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from kit import Crash, at_step, crash, digests, run, tiny
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.noise import ActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnvWrapper, VecFrameStack, VecMonitor

from acc_rl import ACC
from acc_rl.algos.buffers import SharedReplayBuffer
from acc_rl.core.controller import Calibrating
from acc_rl.runs import envs
from acc_rl.runs.callbacks import DivergenceCallback, ValueErrorCallback
from acc_rl.runs.resume import CheckpointCallback
from acc_rl.runs.state import UndeclaredState
from acc_rl.store.checkpoint import STATE, TENSORS, Checkpoints

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
    assert env.go_to(
        {key: value for key, value in position.items() if key != "returned"}
    )  # a checkpoint from before there was a hash


# --- what may have state outside checkpoints is named when training starts ---


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


# --- attributes of an algorithm of one's own ---


class Keeping(ACC):
    """Changes ``kept`` by what it learns, and learns by what it has kept."""

    start = staticmethod(list)

    def __init__(self, *args, **kwargs):
        if (start := type(self).start()) is not Ellipsis:
            self.kept = start
        super().__init__(*args, **kwargs)

    def change(self, x):
        self.kept.append(x)

    def number(self):
        return sum(self.kept)

    def train(self, gradient_steps, batch_size=100):
        super().train(gradient_steps, batch_size)
        self.change(self.largest_reward + self.num_timesteps)
        with th.no_grad():
            self.critic_target.ensemble.theta.mul_(float(1 - 1e-6 * self.number()))


def changing(start, change, number):
    return type("Kept", (Keeping,), {"start": staticmethod(start), "change": change, "number": number})


def append(self, x):
    self.kept = [*self.kept, x]


def add_in_place(self, x):
    self.kept += np.float32(x / 3)


def first(self, x):
    self.kept = x if self.kept is None else self.kept + x


def first_float32(self, x):
    self.kept = np.float32(x / 3) if self.kept is None else self.kept * 1.01


def first_deque(self, x):
    self.kept = deque(maxlen=3) if self.kept is None else self.kept
    self.kept.append(np.float32(x / 3))


def later(self, x):
    self.kept = [*getattr(self, "kept", []), x]


def total(self):
    return sum(self.kept)


def itself(self):
    return self.kept if self.kept is None else float(self.kept * np.ones(1, np.float32)[0])


KEPT = {
    "a list": Keeping,
    "another list each time": changing(list, append, total),
    "an array": changing(lambda: np.zeros(3, np.float32), add_in_place, total),
    "a deque": changing(lambda: deque(maxlen=5), Keeping.change, total),
    "np.float32": changing(lambda: np.float32(0), add_in_place, itself),
    "a number that was None": changing(lambda: None, first, itself),
    "np.float32 that was None": changing(lambda: None, first_float32, itself),
    "a deque that was None": changing(lambda: None, first_deque, total),
    "a list that was not there": changing(lambda: ..., later, total),
}


@pytest.mark.parametrize("name", KEPT)
def test_state_that_is_not_declared_is_an_error_with_its_name(name, tmp_path):
    with pytest.raises(UndeclaredState, match=f"kept of {KEPT[name].__name__} has changed"):
        learn(own_model(KEPT[name]), tmp_path, 100)
    assert Checkpoints(tmp_path).read().step == 40  # the last before training


@pytest.mark.parametrize("name", KEPT)
def test_state_that_is_declared_is_resumed_exactly(name, tmp_path):
    attributes = (*KEPT[name].state_attributes, "kept")
    declared = type("Declared", (KEPT[name],), {"state_attributes": attributes})
    whole, parts = resumes_exactly(lambda: own_model(declared), tmp_path)
    assert repr(parts.kept) == repr(whole.kept)
    assert type(parts.kept) is type(whole.kept)
    # before there is anything to keep
    learn(own_model(declared), tmp_path / "early", 20)
    learn(own_model(declared), tmp_path / "early", 120)
    assert same(tmp_path / "whole", tmp_path / "early", 120)


def test_declared_state_that_is_no_data_is_an_error_with_its_name(tmp_path):
    attributes = (*Keeping.state_attributes, "kept")
    cls = type("Odd", (Keeping,), {"state_attributes": attributes, "start": staticmethod(object)})
    with pytest.raises(ValueError, match="/attributes/kept: a value of type object cannot be saved"):
        learn(own_model(cls), tmp_path, 40)


@pytest.mark.parametrize("n_envs", [1, 2])
def test_ornstein_uhlenbeck_noise_with_a_vec_monitor_resumes_exactly(n_envs, tmp_path):
    def make():
        noise = OrnsteinUhlenbeckActionNoise(np.zeros(1), np.ones(1))
        venv = VecMonitor(DummyVecEnv([partial(seeded, i) for i in range(n_envs)]))
        return own_model(env=venv, action_noise=noise, learning_starts=20)

    resumes_exactly(make, tmp_path)


# --- schedules and controllers ---


class Counting:
    """A learning rate that depends on how often it was asked for"""

    def __init__(self):
        self.calls = 0

    def __call__(self, progress):
        self.calls += 1
        return 1e-3 / self.calls


def counting_function():
    counter = Counting()
    return lambda progress: counter(progress)


@pytest.mark.parametrize("make", [Counting, counting_function])
def test_a_schedule_with_state_is_an_error_with_its_name(make, tmp_path):
    with pytest.raises(UndeclaredState, match="learning_rate of ACC has changed"):
        learn(own_model(learning_rate=make()), tmp_path, 60)


def halving(progress):
    return 1e-3 * (0.5 + 0.5 * progress)


@pytest.mark.parametrize("schedule", [halving, lambda progress: 1e-3 * progress, partial(halving), 1e-3])
def test_a_schedule_without_state_is_fine(schedule, tmp_path):
    assert learn(own_model(learning_rate=schedule), tmp_path, 60).num_timesteps == 60


class Counts(Calibrating):
    """Turns beta by how many gaps it has seen"""

    def begin(self, settings):
        super().begin(settings)
        self.seen = 0

    def measured(self, evidence):
        super().measured(evidence)
        self.seen += 1
        self.beta = self.clipped(self.beta + 0.01 * self.seen)


class Declares(Counts):
    stored = (*Calibrating.stored, "seen")


class SavesItself(Counts):
    def state_dict(self):
        return {**super().state_dict(), "times": float(self.seen)}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.seen = int(state["times"])


@pytest.mark.parametrize("cls", [Declares, SavesItself])
def test_a_controller_of_ones_own_resumes_exactly(cls, tmp_path):
    _, parts = resumes_exactly(lambda: own_model(controller=cls()), tmp_path, 220, 177)
    assert parts.calibration.controller.seen == 3


def test_state_of_a_controller_that_is_not_declared_is_an_error_with_its_name(tmp_path):
    with pytest.raises(UndeclaredState, match=r"controller\.seen of ACC has changed .* the controller's stored"):
        learn(own_model(controller=Counts()), tmp_path, 120)
