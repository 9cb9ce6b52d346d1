"""Each observation stored once, and yet the samples are SB3's."""

import tracemalloc

import numpy as np
import psutil
import pytest
import torch as th
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from small import ShortPendulum
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from acc_rl import SAC
from acc_rl.algos.buffers import SharedNStepReplayBuffer, SharedReplayBuffer

BOX = spaces.Box(-np.inf, np.inf, (3,), np.float64)
ACTION = spaces.Box(-1, 1, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (1, 4, 4), np.uint8)
DICT = spaces.Dict({"a": BOX, "image": IMAGE})


def draw(space, rng, n):
    if isinstance(space, spaces.Dict):
        return {key: draw(part, rng, n) for key, part in space.spaces.items()}
    if space.dtype == np.uint8:
        return rng.integers(0, 255, (n, *space.shape), dtype=np.uint8)
    # few values, so that by chance an episode also starts where the last one ended
    return rng.integers(0, 2, (n, *space.shape)).astype(space.dtype) + 1 / 3


def life(space, rng, n_envs, steps):
    """Transitions of envs that end, are cut and are sometimes reset from outside."""
    obs = draw(space, rng, n_envs)
    for _ in range(steps):
        next_obs, done = draw(space, rng, n_envs), rng.random(n_envs) < 0.3
        cut = done & (rng.random(n_envs) < 0.5)
        infos = [{"TimeLimit.truncated": bool(each)} for each in cut]
        yield obs, next_obs, rng.normal(size=(n_envs, 2)).astype(np.float32), rng.normal(size=n_envs), done, infos
        first = draw(space, rng, n_envs)
        fresh = done | (rng.random() < 0.1)
        obs = choose(fresh, first, next_obs)


def choose(which, yes, no):
    if isinstance(yes, dict):
        return {key: choose(which, yes[key], no[key]) for key in yes}
    return np.where(which.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)


def copied(obs):
    return {key: value.copy() for key, value in obs.items()} if isinstance(obs, dict) else obs.copy()


def fill(buffers, space, seed, n_envs, steps):
    for obs, next_obs, action, reward, done, infos in life(space, np.random.default_rng(seed), n_envs, steps):
        for buffer in buffers:
            buffer.add(copied(obs), copied(next_obs), action, reward, done, infos)


def same_samples(ours, theirs, n=64, env=None):
    for seed in range(2):
        np.random.seed(seed)  # noqa: NPY002
        a = ours.sample(n, env=env)
        np.random.seed(seed)  # noqa: NPY002
        b = theirs.sample(n, env=env)
        for name, x, y in zip(a._fields, a, b, strict=True):
            for x_part, y_part in zip(parts(x), parts(y), strict=True):
                assert x_part.dtype != th.float64
                assert th.equal(x_part, y_part.to(x_part.dtype)), name


def parts(value):
    if isinstance(value, dict):
        return list(value.values())
    return [] if value is None else [value]


CASES = {
    "box": (BOX, SharedReplayBuffer, ReplayBuffer, {}),
    "image": (IMAGE, SharedReplayBuffer, ReplayBuffer, {}),
    "dict": (DICT, SharedReplayBuffer, DictReplayBuffer, {}),
    "n steps": (BOX, SharedNStepReplayBuffer, NStepReplayBuffer, {"n_steps": 3, "gamma": 0.9}),
}


@pytest.mark.parametrize("case", CASES)
@given(
    seed=st.integers(0, 2**31),
    size=st.integers(1, 12),
    n_envs=st.integers(1, 3),
    steps=st.integers(1, 40),
    cut=st.integers(0, 40),
)
@settings(max_examples=60, deadline=None)
def test_samples_are_sb3s(case, seed, size, n_envs, steps, cut):
    space, shared, plain, arguments = CASES[case]
    ours, theirs = (cls(size * n_envs, space, ACTION, "cpu", n_envs, **arguments) for cls in (shared, plain))
    fill([ours, theirs], space, seed, n_envs, steps)
    same_samples(ours, theirs)

    # and through the disk: two segments, then life goes on
    saved = [(ours.oldest, ours.added)]
    if ours.oldest < cut < ours.added:
        saved = [(ours.oldest, cut), (cut, ours.added)]
    segments = [(first, ours.transitions(first, last)) for first, last in saved]
    back = shared(size * n_envs, space, ACTION, "cpu", n_envs, **arguments)
    back.load(ours.added, ours.first, segments, ours.newest())
    same_samples(back, theirs)
    fill([back, theirs], space, seed + 1, n_envs, steps)
    same_samples(back, theirs)


def test_segments_written_as_life_goes_on_give_the_buffer_back():
    ours, theirs = (cls(20, BOX, ACTION, "cpu", 2) for cls in (SharedReplayBuffer, ReplayBuffer))
    segments, written = [], 0
    for seed in range(5):
        fill([ours, theirs], BOX, seed, 2, 4)
        segments.append((written, ours.transitions(written, ours.added)))
        written = ours.added
    back = SharedReplayBuffer(20, BOX, ACTION, "cpu", 2)
    back.load(ours.added, 0, segments, ours.newest())
    same_samples(back, theirs)


def test_next_observations_read_like_an_array():
    ours, theirs = (cls(10, BOX, ACTION, "cpu", 2) for cls in (SharedReplayBuffer, ReplayBuffer))
    fill([ours, theirs], BOX, 0, 2, 17)
    assert np.array_equal(np.asarray(ours.next_observations), theirs.next_observations.astype(np.float32))


INDICES = {
    "row": 0,
    "last": -1,
    "rows": slice(2, 5),
    "places": np.array([3, 1]),
    "one": (3, 1),
    "env": (slice(None), 0),
    "pairs": (np.array([1, 4]), np.array([0, 1])),
    "rows of one env": (np.array([1, 4, 2]), np.array([1])),
    "windows": (np.array([[1, 2], [3, 4]]), np.array([[0], [1]])),
    "negative": (np.array([-1, 2]), np.array([0, -1])),
    "none": (np.zeros(0, int), np.zeros(0, int)),
    "all": ...,
    "number": (2, 1, 0),
    "mask": np.arange(10).reshape(5, 2) % 3 == 0,
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_next_observations_are_indexed_like_an_array(index):
    ours, theirs = (cls(10, BOX, ACTION, "cpu", 2) for cls in (SharedReplayBuffer, ReplayBuffer))
    fill([ours, theirs], BOX, 0, 2, 17)
    expected, found = theirs.next_observations.astype(np.float32)[index], ours.next_observations[index]
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)
    assert ours.next_observations.shape == theirs.next_observations.shape
    assert len(ours.next_observations) == 5


@pytest.mark.parametrize("index", [([5], [0]), ([0], [2]), ([-6], [0])])
def test_next_observations_outside_are_refused(index):
    buffer = SharedReplayBuffer(10, BOX, ACTION, "cpu", 2)
    with pytest.raises(IndexError):
        buffer.next_observations[tuple(map(np.array, index))]


def test_a_minibatch_of_n_step_returns_takes_no_memory_of_the_buffers_size():
    buffer = SharedNStepReplayBuffer(200_000, BOX, ACTION, "cpu", 1, n_steps=3)
    fill([buffer], BOX, 0, 1, 17)
    buffer.sample(8)
    tracemalloc.start()
    buffer.sample(8)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000  # bytes; one number per transition would be 1.6 million


def test_next_observations_of_dictionaries_are_dictionaries():
    ours, theirs = SharedReplayBuffer(10, DICT, ACTION, "cpu", 2), DictReplayBuffer(10, DICT, ACTION, "cpu", 2)
    fill([ours, theirs], DICT, 0, 2, 17)
    assert ours.next_observations.keys() == theirs.next_observations.keys()
    for key, expected in theirs.next_observations.items():
        assert np.array_equal(np.asarray(ours.next_observations[key]), expected.astype(ours.observations[key].dtype))


def test_extending_by_the_arrays_of_another_buffer():
    """As SB3's users do: one transition per row, its flag as an array"""
    one, other = (SharedReplayBuffer(8, BOX, ACTION, "cpu") for _ in range(2))
    fill([one], BOX, 0, 1, 8)
    infos = [[{"TimeLimit.truncated": truncated}] for truncated in one.timeouts]
    other.extend(one.observations, np.asarray(one.next_observations), one.actions, one.rewards, one.dones, infos)
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        assert np.array_equal(np.asarray(getattr(one, name)), np.asarray(getattr(other, name))), name


def test_a_buffer_that_memory_cannot_hold_is_a_warning(monkeypatch):
    needed = SharedReplayBuffer(10, BOX, ACTION, "cpu").nbytes
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=needed))
    SharedReplayBuffer(10, BOX, ACTION, "cpu")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=needed - 1))
    with pytest.warns(UserWarning, match="use a smaller buffer_size"):
        SharedReplayBuffer(10, BOX, ACTION, "cpu")


def test_a_suffix_alone_becomes_a_smaller_buffer():
    ours = SharedReplayBuffer(10, BOX, ACTION, "cpu")
    fill([ours], BOX, 0, 1, 17)
    back = SharedReplayBuffer(10, BOX, ACTION, "cpu")
    back.load(17, 12, [(12, ours.transitions(12, 17))], ours.newest())
    assert (back.size(), back.oldest) == (5, 12)
    assert np.array_equal(back.actions[:5], ours.actions[[2, 3, 4, 5, 6]])


def test_with_normalised_observations_and_rewards():
    import gymnasium as gym

    venv = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))
    venv.reset()
    for _ in range(30):
        venv.step(np.array([[0.5]]))
    ours, theirs = (
        cls(50, venv.observation_space, venv.action_space, "cpu") for cls in (SharedReplayBuffer, ReplayBuffer)
    )
    action = np.zeros((1, 1), np.float32)
    for _ in range(20):
        obs, next_obs = np.random.default_rng(0).normal(size=(2, 1, 3)).astype(np.float32)
        for buffer in (ours, theirs):
            buffer.add(obs, next_obs, action, np.array([1.0]), np.array([False]), [{}])
    same_samples(ours, theirs, env=venv)


def test_a_million_transitions_of_humanoid_take_less_than_1_6_gb():
    humanoid = spaces.Box(-np.inf, np.inf, (348,), np.float64)
    ours = SharedReplayBuffer(10_000, humanoid, spaces.Box(-0.4, 0.4, (17,), np.float32), "cpu")
    obs, infos = np.zeros((1, 348)), [{}]
    for i in range(10_000):  # as early in training: an episode ends after 22 steps
        done = np.array([i % 22 == 21])
        ours.add(obs + i, obs + (i + 1 if not done else -i), np.zeros((1, 17)), np.zeros(1), done, infos)
    assert ours.nbytes * 100 <= 1.6e9


def test_it_is_what_the_algorithms_use(tmp_path):
    model = SAC("MlpPolicy", "Pendulum-v1", buffer_size=100)
    assert type(model.replay_buffer) is SharedReplayBuffer
    model = SAC("MlpPolicy", "Pendulum-v1", buffer_size=100, n_steps=3)
    for each in (model, SAC.load(saved(model, tmp_path), env=model.env)):
        assert type(each.replay_buffer) is SharedNStepReplayBuffer
        assert each.replay_buffer.n_steps == 3
    model = SAC("MlpPolicy", "Pendulum-v1", buffer_size=100, replay_buffer_class=ReplayBuffer)
    assert type(model.replay_buffer) is ReplayBuffer


def test_returns_of_several_steps_end_where_the_envs_are_reset():
    model = SAC("MlpPolicy", make_vec_env(ShortPendulum, n_envs=2), buffer_size=200, n_steps=3, learning_starts=1000)
    for _ in range(3):
        model.learn(14)  # 7 steps of episodes of 20
    buffer = model.replay_buffer
    assert np.flatnonzero(buffer.dones[:21, 0]).tolist() == [6, 13]
    batch = buffer._get_samples(np.array([4, 5, 6]))
    np.testing.assert_allclose(batch.discounts.flatten(), 0.99 ** np.array([3, 2, 1]), rtol=1e-6)
    assert not batch.dones.any()


@pytest.mark.parametrize(
    ("buffer", "kwargs", "steps"),
    [(None, {}, 3), (ReplayBuffer, {}, 1), (NStepReplayBuffer, {}, 3), (NStepReplayBuffer, {"n_steps": 5}, 5)],
)
@pytest.mark.filterwarnings("ignore:.*is ignored because a custom:UserWarning")
def test_what_is_measured_has_the_steps_of_the_buffer(buffer, kwargs, steps):
    given = {"replay_buffer_class": buffer, "replay_buffer_kwargs": kwargs}
    model = SAC("MlpPolicy", "Pendulum-v1", buffer_size=100, n_steps=3, **given)
    assert model.calibration.episodes.n_steps == steps
    assert getattr(model.replay_buffer, "n_steps", 1) == steps


def saved(model, folder):
    model.save(folder / "model")
    return folder / "model"
