"""A run that was stopped, killed or damaged goes on; if it can be, to the bit as if nothing had happened."""

import io
import json
import os
import random
import re
import shutil
import signal
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from kit import ALGORITHMS, Crash, at_step, crash, digests, killed_until_done, run, tiny
from rich.console import Console
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from acc_rl import ACC, ACCTD3, load_policy
from acc_rl.algos.calibrated import Calibrated
from acc_rl.runs import envs
from acc_rl.runs.callbacks import Diverged, EvaluationCallback
from acc_rl.runs.config import differences, finished, identity
from acc_rl.runs.interrupt import Stopped, StopRequest
from acc_rl.runs.preflight import TooLarge
from acc_rl.runs.provenance import record_start
from acc_rl.runs.resume import CheckpointCallback
from acc_rl.runs.train import RunExists, make_model
from acc_rl.store import files, records
from acc_rl.store.checkpoint import CheckpointError, Checkpoints, read_manifest
from acc_rl.store.checkpoint import _sealed as sealed

VARIANTS = {
    "acc": tiny(),
    "tqc n-step": tiny(algo="tqc", settings={"n_steps": 3}),
    "sac 2 envs": tiny(algo="sac", n_envs=2),
    "sac gSDE": tiny(algo="sac", settings={"use_sde": True, "sde_sample_freq": 4, "train_freq": 8}),
    "td3 hopper": tiny("Hopper-v5", "td3"),
    "acc-td3 2 envs": tiny(algo="acc-td3", n_envs=2, settings={"critic_updates": 2}),
    "acc-ddpg": tiny(algo="acc-ddpg"),
    "acc-sac soft 2 envs": tiny(algo="acc-sac", n_envs=2, bias={"returns": "soft", "tail": "bootstrap"}),
    "acc-dqn": tiny("CartPole-v1", "acc-dqn"),
    "acc-qrdqn": tiny("CartPole-v1", "acc-qrdqn"),
    "acc hopper": tiny("Hopper-v5"),
    "acc-x 2 envs": tiny(algo="acc-x", n_envs=2, bias={"start_step": 0}),
    "acc-x batchnorm": tiny(algo="acc-x", settings={"nets": "batchnorm", "n_steps": 1}),
    "sac simba": tiny(algo="sac", settings={"nets": "simba", "normalize_observations": True}),
    "acc Meta-World": tiny("metaworld/push-v3", eval_every=1000, bias={"start_step": 400}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_crashed_and_resumed_equals_uninterrupted(name, tmp_path, monkeypatch):
    spec = VARIANTS[name]
    whole = digests(run(spec, tmp_path / "whole"))
    for step in (60, 130, 437):  # before the first checkpoint, in warm-up, while learning
        with monkeypatch.context() as patch, pytest.raises(Crash):
            at_step(patch, step, crash)
            run(spec, tmp_path / "crashed")
    assert digests(run(spec, tmp_path / "crashed")) == whole


def test_crashed_while_the_first_checkpoint_is_written(tmp_path, monkeypatch):
    spec = tiny()
    whole = digests(run(spec, tmp_path / "whole"))
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(files, "commit_folder", lambda *_: crash())
        run(spec, tmp_path / "crashed")
    assert (tmp_path / "crashed" / spec.name / records.CHECKPOINTS).exists()
    assert digests(run(spec, tmp_path / "crashed")) == whole


def test_killed_by_signal_9_at_random_moments(tmp_path):
    rng = random.Random(0)
    for number, algo in enumerate(ALGORITHMS):
        spec = tiny("Hopper-v5" if number % 2 else "Pendulum-v1", algo, n_envs=1 + number % 3 // 2)
        start = time.monotonic()
        whole = digests(run(spec, tmp_path / "whole"))
        folder, kills = killed_until_done(spec, tmp_path / "killed", 1, time.monotonic() - start, rng)
        assert digests(folder) == whole, f"{spec.name} after {kills} kills"


# --- signals that ask for the end ---


def ask(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def test_asked_to_stop_no_step_is_lost(tmp_path, monkeypatch):
    spec = tiny()
    whole = digests(run(spec, tmp_path / "whole"))
    # training comes after every fourth step: a run ends there
    for step, number in ((60, signal.SIGTERM), (336, signal.SIGINT), (436, signal.SIGTERM)):
        with monkeypatch.context() as patch, pytest.raises(Stopped) as told:
            at_step(patch, step - 2, lambda number=number: ask(number))
            run(spec, tmp_path / "stopped")
        assert told.value.exit_code == 128 + number
        assert Checkpoints(tmp_path / "stopped" / spec.name / records.CHECKPOINTS).read().step == step
    assert digests(run(spec, tmp_path / "stopped")) == whole


def test_asked_to_stop_while_evaluating_or_saving(tmp_path, monkeypatch):
    spec = tiny()
    whole = digests(run(spec, tmp_path / "whole"))
    original_act, original_write = EvaluationCallback._act, Checkpoints.write
    acted = []

    def act(self, obs):
        if self.number == 2 and self.model.num_timesteps == 400:
            acted.append(True)
            if len(acted) == 3:
                ask()
        return original_act(self, obs)

    def write(self, step, *args):
        if step == 300:
            ask()
        return original_write(self, step, *args)

    for name, changed, step in (("_act", act, 400), ("write", write, 300)):
        cls = EvaluationCallback if name == "_act" else Checkpoints
        folder = tmp_path / name
        with monkeypatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(cls, name, changed)
            run(spec, folder)
        assert Checkpoints(folder / spec.name / records.CHECKPOINTS).read().step == step
        assert digests(run(spec, folder)) == whole


def test_asked_to_stop_in_the_last_evaluation(tmp_path, monkeypatch):
    spec, original, acted = tiny(), EvaluationCallback._act, []
    whole = run(spec, tmp_path / "whole")

    def act(self, obs):
        acted.append(self.model.num_timesteps)
        if acted.count(500) == 3:
            ask()
        return original(self, obs)

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(EvaluationCallback, "_act", act)
        run(spec, tmp_path / "stopped")
    stopped = run(spec, tmp_path / "stopped")
    assert digests(stopped) == digests(whole)
    for out in ("whole", "stopped"):
        run(tiny(steps=700), tmp_path / out)
    assert digests(stopped) == digests(whole)


def test_a_request_that_comes_twice_is_one_request(monkeypatch):
    with StopRequest() as stop:
        for _ in range(2):
            ask()
        StopRequest.ask()
        assert stop.signal == signal.SIGTERM
        ended = []
        monkeypatch.setattr("acc_rl.runs.interrupt.PATIENCE", -1.0)
        monkeypatch.setattr("acc_rl.runs.interrupt.os.kill", lambda *args: ended.append(args))
        signal.raise_signal(signal.SIGINT)
        assert ended == [(os.getpid(), signal.SIGINT)]
    with StopRequest() as stop:
        StopRequest.ask()
        with pytest.raises(Stopped):
            stop.raise_if_asked()


# --- the same command on an existing folder ---


def test_a_run_without_checkpoints_is_not_wiped_if_it_was_finished(tmp_path):
    folder = run(tiny(steps=200), tmp_path)
    shutil.rmtree(folder / records.CHECKPOINTS)
    before = sorted(folder.iterdir())
    assert run(tiny(steps=200), tmp_path) == folder
    with pytest.raises(RunExists, match="no checkpoint to resume from: use --restart"):
        run(tiny(steps=300), tmp_path)
    assert sorted(folder.iterdir()) == before
    # one that was cut off before its first checkpoint begins anew, but leaves what is not its own
    (folder / records.RESULT).unlink()
    (folder / "notes.txt").write_text("mine")
    run(tiny(steps=200), tmp_path)
    assert (folder / "notes.txt").read_text() == "mine"
    assert [row["step"] for row in records.read(folder / records.EVALUATIONS)] == [0, 200]


def test_a_crash_while_a_run_is_extended_does_not_finish_it(tmp_path, monkeypatch):
    folder = run(tiny(steps=200), tmp_path)
    for name in ("unlink", "write_json"):
        with monkeypatch.context() as patch, pytest.raises(Crash):
            patch.setattr(*((Path, name) if name == "unlink" else (records, name)), lambda *_, **__: crash())
            run(tiny(steps=400), tmp_path)
        assert not finished(folder, tiny(steps=400))
    assert records.read_json(run(tiny(steps=400), tmp_path) / records.RESULT)["step"] == 400


def test_an_extended_run_keeps_its_times_of_evaluation(tmp_path):
    for steps in (500, 1000):
        folder = run(tiny(steps=steps), tmp_path)
    rows = records.read(folder / records.EVALUATIONS)
    assert [row["step"] for row in rows] == [0, 200, 400, 500, 600, 800, 1000]
    assert [row["number"] for row in rows] == list(range(7))


def test_rounds_of_training_longer_than_the_way_to_a_checkpoint_are_refused(tmp_path):
    for spec in (tiny(settings={"train_freq": 101}), tiny(settings={"train_freq": 51}, n_envs=2)):
        with pytest.raises(ValueError, match=r"train_freq is \d+, .* can only be stopped and saved between rounds"):
            run(spec, tmp_path)


def test_a_log_that_cannot_be_written_does_not_end_training(tmp_path):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    folder = run(tiny(steps=100), tmp_path, console=Console(file=Full()))
    assert finished(folder, tiny(steps=100))


def test_what_is_on_disk_already_needs_no_more_room(tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        at_step(patch, 338, ask)
        run(tiny(), tmp_path)
    folder = tmp_path / tiny().name / records.CHECKPOINTS
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    monkeypatch.setattr("acc_rl.runs.preflight.shutil.disk_usage", lambda path: (10**12, 0, 10))
    monkeypatch.setattr("acc_rl.runs.preflight.CHECKPOINTS", "elsewhere")
    with pytest.raises(TooLarge) as told:
        run(tiny(), tmp_path)
    needed = float(re.search(r"need up to ([\d.]+) MB", str(told.value)).group(1)) * 1e6
    monkeypatch.setattr("acc_rl.runs.preflight.shutil.disk_usage", lambda path: (10**12, 0, int(1.1 * needed - size)))
    with pytest.raises(TooLarge):
        run(tiny(), tmp_path)
    monkeypatch.setattr("acc_rl.runs.preflight.CHECKPOINTS", records.CHECKPOINTS)
    run(tiny(), tmp_path)


def test_a_finished_run_is_left_alone_and_can_be_extended(tmp_path):
    folder = run(tiny(steps=200), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert run(tiny(steps=200), tmp_path) == folder
    assert {path: path.stat().st_mtime_ns for path in before} == before
    run(tiny(steps=300), tmp_path)
    assert [row["step"] for row in records.read(folder / records.EVALUATIONS)] == [0, 200, 300]
    assert records.read_json(folder / records.RESULT)["step"] == 300
    with pytest.raises(RunExists, match="steps can only grow, 200 is less"):
        run(tiny(steps=200), tmp_path)


def test_other_settings_are_refused(tmp_path):
    run(tiny(steps=100), tmp_path)
    with pytest.raises(RunExists, match=r"other settings \(eval_every\)"):
        run(tiny(steps=100, eval_every=50), tmp_path)


@pytest.mark.parametrize("name", [".", "replay", "step-000000000100"])
def test_linked_checkpoints_are_refused_and_what_they_lead_to_stays(name, tmp_path):
    folder = run(tiny(steps=100), tmp_path / "out")
    link = folder / records.CHECKPOINTS / name
    link.rename(tmp_path / "elsewhere")
    link.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "thesis.txt").write_text("years of work")
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match=rf"{link}: is a link, .* {tmp_path / 'elsewhere'} in its place"):
        run(tiny(steps=200), tmp_path / "out")
    assert contents(tmp_path) == before
    run(tiny(steps=100), tmp_path / "out", restart=True)
    assert (tmp_path / "elsewhere" / "thesis.txt").read_text() == "years of work"


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_checkpoints_that_become_a_link_do_not_end_training(tmp_path, monkeypatch):
    def link():
        checkpoints = tmp_path / "out" / tiny().name / records.CHECKPOINTS
        checkpoints.rename(tmp_path / "elsewhere")
        checkpoints.symlink_to(tmp_path / "elsewhere")

    at_step(monkeypatch, 150, link)
    with pytest.warns(UserWarning, match=r"no checkpoint could be written at step 2\d\d: .*checkpoints: is a link"):
        folder = run(tiny(steps=240), tmp_path / "out")
    assert records.read_json(folder / records.RESULT)["step"] == 240


def test_checkpoints_of_another_run_are_refused_with_nothing_touched(tmp_path):
    other, folder = run(tiny(steps=100, seed=1), tmp_path), run(tiny(steps=100), tmp_path)
    shutil.rmtree(folder / records.CHECKPOINTS)
    shutil.copytree(other / records.CHECKPOINTS, folder / records.CHECKPOINTS)
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match=r"step-000000000100: is a checkpoint of another run \(other seed\)"):
        run(tiny(steps=200), tmp_path)
    assert contents(tmp_path) == before


def test_steps_and_threads_are_no_part_of_the_identity(tmp_path):
    spec = tiny(steps=100)
    run(spec, tmp_path)
    content = records.json_like(spec.as_dict())
    assert differences(content, tiny(steps=900, threads=3)) == []
    assert differences(identity(content), spec) == []
    assert differences({**content, "seed": 1, "bias": {}}, spec) == ["seed", "bias"]
    assert differences({}, spec)[0] == "env"
    # settings that were added later are at their defaults in what was written before
    assert differences({key: value for key, value in content.items() if key != "value_error"}, spec) == []


def test_a_checkpoint_without_identity_is_read(tmp_path):
    folder = run(tiny(steps=100), tmp_path)
    path = folder / records.CHECKPOINTS / "step-000000000100"
    manifest = read_manifest(path)
    assert manifest.pop("run")["seed"] == 0
    (path / "manifest.json").write_bytes(sealed(manifest))
    run(tiny(steps=200), tmp_path)
    assert [row["step"] for row in records.read(folder / records.EVALUATIONS)] == [0, 100, 200]


def test_two_processes_do_not_train_in_one_folder(tmp_path, monkeypatch):
    spec, told = tiny(steps=200), []

    def second():
        with pytest.raises(RunExists, match="another process is training") as error:
            run(spec, tmp_path)
        told.append(error)

    at_step(monkeypatch, 50, second)
    run(spec, tmp_path)
    assert told


def test_a_damaged_checkpoint_is_named_and_the_run_is_still_the_same(tmp_path, monkeypatch):
    spec = tiny()
    whole = digests(run(spec, tmp_path / "whole"))
    with monkeypatch.context() as patch, pytest.raises(Crash):
        at_step(patch, 437, crash)
        run(spec, tmp_path / "damaged")
    path = tmp_path / "damaged" / spec.name / records.CHECKPOINTS / "step-000000000400" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=r"step-000000000400/state.safetensors: has \d+ bytes"):
        folder = run(spec, tmp_path / "damaged")
    assert digests(folder) == whole


def test_another_number_of_threads_is_told(tmp_path, monkeypatch):
    with pytest.raises(Crash), monkeypatch.context() as patch:
        at_step(patch, 150, crash)
        run(tiny(steps=200), tmp_path)
    try:
        with pytest.warns(UserWarning, match="not bit-identical: threads 1 -> 2"):
            run(tiny(steps=200, threads=2), tmp_path)
    finally:
        th.set_num_threads(1)


def test_every_start_is_recorded_and_the_first_stays_at_the_top(tmp_path, monkeypatch):
    path = tmp_path / tiny().name / records.PROVENANCE
    for number, step in enumerate((150, 250, None)):
        monkeypatch.setattr("sys.argv", ["/bin/acc", "train", f"/some/where/{number}", "--out=/some/runs"])
        with monkeypatch.context() as patch, nullcontext() if step is None else pytest.raises(Crash):
            at_step(patch, step or 10**9, crash)
            run(tiny(steps=300), tmp_path)
    content = records.read_json(path)
    assert [each["step"] for each in content["starts"]] == [0, 100, 200]
    assert [each["command"] for each in content["starts"]] == [["acc", "train", str(i), "--out=runs"] for i in range(3)]
    for key, value in content["starts"][0].items():
        assert key == "step" or content[key] == value
    assert content["run_id"] == tiny(steps=300).id
    for spoiled in ({**content, "starts": "x"}, {k: v for k, v in content.items() if k != "starts"}, None):
        path.write_text("{" if spoiled is None else json.dumps(spoiled))
        record_start(path, "id", 300, threads=1)
        assert records.read_json(path)["starts"][-1]["step"] == 300


def test_a_disk_that_cannot_be_written_does_not_end_training(tmp_path, monkeypatch):
    spec = tiny()
    whole = digests(run(spec, tmp_path / "whole"))
    original, broken = os.open, []

    def opened(path, flags, *args, **kwargs):
        if broken and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(28, "No space left on device", str(path))
        return original(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", opened)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        at_step(monkeypatch, 150, lambda: broken.append(True))
        original_store = Calibrated._store_transition

        def store(self, *args):
            if self.num_timesteps == 350:
                broken.clear()
                found = Checkpoints(tmp_path / "full" / spec.name / records.CHECKPOINTS).read()
                assert found.step == 100
            return original_store(self, *args)

        monkeypatch.setattr(Calibrated, "_store_transition", store)
        folder = run(spec, tmp_path / "full")
    text = " ".join(str(each.message) for each in told)
    assert "no checkpoint could be written at step 200: " in text
    assert "training.jsonl: No space left on device" in text
    assert digests(folder) == whole


def test_a_record_that_is_truncated_ends_training(tmp_path, monkeypatch):
    path = tmp_path / tiny().name / records.TRAINING
    at_step(monkeypatch, 250, lambda: os.truncate(path, 5))
    with pytest.raises(records.RecordError, match=r"training\.jsonl: has 5 bytes, but \d+ were written"):
        run(tiny(), tmp_path)
    assert b"\0" not in path.read_bytes()


def test_a_buffer_without_checkpoints_is_refused_before_training(tmp_path):
    model = ACC("MlpPolicy", "Pendulum-v1", replay_buffer_class=ReplayBuffer, buffer_size=100)
    with pytest.raises(ValueError, match="is a ReplayBuffer, which has no checkpoints: leave replay_buffer_class out"):
        model.learn(10, CheckpointCallback(tmp_path))


# --- faults of envs and critics ---


class Odd(gym.Env):
    """Where an episode starts does not follow from its seed, or a sensor fails."""

    observation_space = gym.spaces.Box(-10, 10, (2,))
    action_space = gym.spaces.Box(-1, 1, (1,))
    resets = 0

    def __init__(self, fault="none"):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        Odd.resets += 1
        self.t = 0
        self.start = Odd.resets / 1000 if self.fault == "start" else 0.0
        return np.full(2, self.start, np.float32), {}

    def step(self, action):
        self.t += 1
        obs, reward = np.array([self.start, np.sin(self.t)], np.float32), float(action[0])
        if self.t == 30 and self.fault == "observation":
            obs[1] = np.nan
        if self.t == 30 and self.fault == "reward":
            reward = np.inf
        return obs, reward, False, self.t == 50, {}


class Counters(Odd):
    observation_space = gym.spaces.MultiDiscrete([3, 3])

    def reset(self, *, seed=None, options=None):
        super().reset()
        return np.zeros(2, np.int64), {}

    def step(self, action):
        return np.zeros(2, np.int64), *super().step(action)[1:]


gym.register("Counters-v0", Counters)


def test_a_space_that_no_policy_file_can_hold_is_told_at_once(tmp_path):
    with pytest.raises(ValueError, match="must have Box, Discrete, or a Dict of these"):
        run(tiny("Counters-v0"), tmp_path)
    assert not list(tmp_path.iterdir())


class FromOne(Odd):
    observation_space = gym.spaces.Discrete(3, start=1)


gym.register("FromOne-v0", FromOne)


def test_numbers_that_do_not_begin_with_0_are_told_at_once(tmp_path):
    with pytest.raises(
        ValueError, match=r"FromOne-v0 has observations Discrete\(3, start=1\), but they must begin with 0"
    ):
        run(tiny("FromOne-v0"), tmp_path)


class Tiny(Odd):
    observation_space = gym.spaces.Box(0, 255, (7, 7, 3), np.uint8)


gym.register("Tiny-v0", Tiny)


def test_images_that_are_too_small_are_told_at_once(tmp_path):
    with pytest.raises(ValueError, match=r"Tiny-v0 has images of \(7, 7, 3\), but SB3's convolutions need 36 x 36"):
        run(tiny("Tiny-v0"), tmp_path)


class Grid(gym.Env):
    """Three dimensions, but no image"""

    observation_space = gym.spaces.Box(0, 1, (6, 6, 2), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros((6, 6, 2), np.float32), {}

    def step(self, action):
        return np.ones((6, 6, 2), np.float32), float(action[0]), False, False, {}


class Flags(Grid):
    observation_space = gym.spaces.Dict(
        {"flags": gym.spaces.Box(0, 1, (2,), np.bool_), "counts": gym.spaces.Box(0, np.inf, (2,), np.int64)}
    )

    def reset(self, *, seed=None, options=None):
        return {"flags": np.zeros(2, bool), "counts": np.zeros(2, np.int64)}, {}

    def step(self, action):
        return {"flags": np.ones(2, bool), "counts": np.ones(2, np.int64)}, float(action[0]), False, False, {}


gym.register("Grid-v0", Grid, max_episode_steps=20)
gym.register("Flags-v0", Flags, max_episode_steps=20)


@pytest.mark.parametrize("env_id", ["Grid-v0", "Flags-v0"])
def test_unusual_spaces_are_learned_and_their_policies_loaded(env_id, tmp_path):
    folder = run(tiny(env_id, steps=120, eval_every=120), tmp_path)
    policy, (observation, _) = load_policy(folder), gym.make(env_id).reset()
    assert policy.policy.observation_space == gym.make(env_id).observation_space
    assert policy(observation).shape == (1,)


for fault in ("start", "observation", "reward"):
    gym.register(f"Odd-{fault}-v0", Odd, max_episode_steps=1000, kwargs={"fault": fault})


def test_an_env_that_cannot_be_brought_back_begins_a_new_episode(tmp_path, monkeypatch):
    spec = tiny("Odd-start-v0", eval_every=1000)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        at_step(patch, 320, ask)  # 20 steps into an episode
        run(spec, tmp_path)
    models = []
    original = Calibrated._setup_learn

    def setup(self, *args, **kwargs):
        models.append(self)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Calibrated, "_setup_learn", setup)
    with pytest.warns(UserWarning, match="env 0 could not be brought back"):
        run(spec, tmp_path)
    buffer = models[0].replay_buffer
    row = (320 - 1) % buffer.buffer_size
    assert (buffer.dones[row, 0], buffer.timeouts[row, 0]) == (1, 1)
    lengths = [len(episode) for episode in models[0].calibration.episodes.episodes]
    assert 20 in lengths


@pytest.mark.parametrize("fault", ["observation", "reward"])
def test_what_is_no_number_stops_or_is_replaced(fault, tmp_path):
    spec = tiny(f"Odd-{fault}-v0", steps=200, eval_every=1000)
    with pytest.raises(ValueError, match=f"the environment returned an? {fault} that is NaN or infinite"):
        run(spec, tmp_path)
    with pytest.warns(UserWarning, match=f"returned an? {fault} that is NaN or infinite: it was replaced"):
        folder = run(spec, tmp_path, on_fault="warn")
    assert records.read_json(folder / records.RESULT)["step"] == 200


def spoiled(monkeypatch, step, value):
    """The target critics say ``value`` from ``step`` on"""
    models, original = [], Calibrated._setup_learn

    def setup(self, *args, **kwargs):
        models.append(self)
        return original(self, *args, **kwargs)

    def spoil():
        critic = models[-1].critic_target
        with th.no_grad():
            critic.ensemble.parts(critic.ensemble.theta)[-1].fill_(value)

    monkeypatch.setattr(Calibrated, "_setup_learn", setup)
    at_step(monkeypatch, step, spoil)


def test_a_critic_that_explodes_stops_the_run_and_the_checkpoint_before_is_kept(tmp_path, monkeypatch):
    spec = tiny()
    with monkeypatch.context() as patch:
        spoiled(patch, 250, 1e6)
        with pytest.raises(Diverged, match=r"the critic has diverged: its targets average .* allows no return beyond"):
            run(spec, tmp_path)
    assert Checkpoints(tmp_path / spec.name / records.CHECKPOINTS).read().step == 200
    with monkeypatch.context() as patch:
        spoiled(patch, 250, 1e6)
        with pytest.warns(UserWarning, match="the critic has diverged"):
            folder = run(spec, tmp_path, on_fault="warn")
    assert records.read_json(folder / records.RESULT)["step"] == 500


def test_weights_that_are_no_numbers_are_not_saved(tmp_path, monkeypatch):
    spec = tiny(steps=300)
    spoiled(monkeypatch, 98, np.nan)
    with pytest.raises(Diverged, match=r"critic_target\.\S+ is non-finite at step 100: .* is kept"):
        run(spec, tmp_path)
    assert not list((tmp_path / spec.name).glob("checkpoints/step-*"))


@pytest.mark.parametrize("what", ["memory", "disk"])
def test_too_little_room_is_told_before_the_run(what, tmp_path, monkeypatch):
    from acc_rl.runs import preflight

    if what == "memory":
        monkeypatch.setattr(preflight, "memory_available", lambda: 1000)
        expected = r"replay buffer of 300 transitions needs 0\.0 MB of memory, but 0\.0 MB are free"
    else:
        monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: (10**6, 0, 1000))
        expected = r"checkpoints need up to 0\.\d MB of disk \(300 transitions, 3 states\), but 0\.0 MB are free"
    with pytest.raises(ValueError, match=expected):
        run(tiny(), tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- with one's own model: normalised observations, noise with a memory ---


@pytest.mark.parametrize("cls", [ACC, ACCTD3])
def test_a_model_of_ones_own(cls, tmp_path):
    def model():
        venv = VecNormalize(DummyVecEnv([lambda: envs.SeededEpisodes(gym.make("Pendulum-v1"), 3, 0)]))
        noise = OrnsteinUhlenbeckActionNoise(np.zeros(1), np.ones(1))
        small = {"learning_starts": 50, "batch_size": 16, "buffer_size": 200, "train_freq": 4, "seed": 3}
        nets = {"net_arch": {"pi": [16], "qf": [16]}}
        bias = {"start_step": 200, "update_interval": 100}
        return cls("MlpPolicy", venv, action_noise=noise, policy_kwargs=nets, bias=bias, **small)

    def learn(folder, steps):
        each = model()
        saver = CheckpointCallback(folder, every=100)
        done = saver.resume(each)
        each.learn(steps - (done or 0), [saver.beginning, saver], reset_num_timesteps=done is None)
        return Checkpoints(folder).read()

    whole = learn(tmp_path / "whole", 500)
    learn(tmp_path / "parts", 250)
    parts = learn(tmp_path / "parts", 500)
    for name in ("state.json", "state.safetensors"):
        a, b = (tmp_path / each / "step-000000000500" / name for each in ("whole", "parts"))
        assert a.read_bytes() == b.read_bytes()
    assert whole.step == parts.step


def test_state_that_does_not_fit_is_one_line(tmp_path):
    folder = run(tiny(steps=100), tmp_path)
    with pytest.raises(records.RecordError, match="its checkpoint does not fit this run"):
        CheckpointCallback(folder / records.CHECKPOINTS).resume(make_model(tiny(settings={"qf": [8]})))
