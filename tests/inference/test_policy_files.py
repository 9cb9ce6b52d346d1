"""What becomes of a policy that was written: acting, films, ONNX, and files that are not what they should be."""

import json
import os
import stat
import warnings

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from kit import QUIET, tiny

from acc_rl.commands.main import main
from acc_rl.core.errors import AccError
from acc_rl.inference.export import export_onnx
from acc_rl.inference.policy import load_policy
from acc_rl.runs.resume import CheckpointCallback
from acc_rl.runs.train import make_model, policy_name, train
from acc_rl.store import records
from acc_rl.store.policy import acting_module, nets, save_policy


class Frames(gym.Env):
    """Two actions that are looked up by name, as in FrozenLake, and frames of odd sizes"""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space, action_space = gym.spaces.Discrete(3), gym.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 1, {0: 0.0, 1: 1.0}[action], False, False, {}

    def render(self):
        return np.full((65, 33, 3), 100, np.uint8)


gym.register("Frames-v0", Frames, max_episode_steps=5)


def write(folder, env, algo):
    spec = tiny(env, algo)
    model = make_model(spec)
    told = {"algo": algo, "policy": policy_name(model.observation_space), "settings": spec.as_dict()["settings"]}
    folder.mkdir()
    save_policy(folder, model, {**told, "nets": nets(model.policy_kwargs)})
    records.write_json(folder / records.SPEC, spec.as_dict())
    return folder


def test_one_discrete_action_can_be_a_key(tmp_path):
    policy = load_policy(write(tmp_path / "run", "Frames-v0", "acc-dqn"))
    assert policy(1) in {0, 1}
    assert policy(np.array([0, 1, 2])).shape == (3,)


def test_a_film_of_odd_frames(tmp_path, capsys):
    folder = write(tmp_path / "run", "Frames-v0", "acc-dqn")
    assert main(["play", str(folder), "--video", str(tmp_path / "film.mp4")]) == 0
    assert "5 steps" in capsys.readouterr().out
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "film.mp4"))
    assert frames == 5


@pytest.mark.parametrize("episodes", ["0", "-3"])
@pytest.mark.parametrize("command", ["eval", "play"])
def test_no_episodes(command, episodes, tmp_path, capsys):
    words = [command, str(write(tmp_path / "run", "Frames-v0", "acc-dqn")), "--episodes", episodes]
    assert main(words if command == "eval" else [*words, "--video", str(tmp_path / "film.mp4")]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"acc: error: episodes is {episodes}, but must be >= 1\n")
    assert not (tmp_path / "film.mp4").exists()


def test_the_weights_are_as_readable_as_the_rest(tmp_path):
    before = os.umask(0o022)
    try:
        folder = write(tmp_path / "run", "Pendulum-v1", "acc")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == dict.fromkeys(["policy.json", "policy.safetensors", "spec.json"], 0o644)


def image(*shape):
    bounds = {name: np.full(shape, value).tolist() for name, value in (("low", 0), ("high", 255))}
    return {"type": "Box", "shape": list(shape), "dtype": "uint8", **bounds}


@pytest.mark.parametrize(
    "change",
    [
        {"settings": []},
        {"settings": {"activation": "gelu"}},
        {"observation_space": {"type": "Dict", "spaces": {}}},
        {"observation_space": {"type": "Tuple"}},
        {"action_space": {"type": "Discrete", "n": -1, "start": 0}},
        {"action_space": None},
        {"nets": {"n_critics": 0}},
        {"nets": {"n_critics": 1e9}},
        {"nets": {"n_quantiles": 10**9}},
        {"nets": {"features_extractor_kwargs": {"features_dim": 10**9}}},
        {"settings": {"pi": [10**6, 10**6], "qf": [16]}},
        {"settings": {"pi": [1] * 10**5, "qf": [16]}},
        {"settings": {"pi": [-5], "qf": [16]}},
        {"observation_space": {"type": "Discrete", "n": 10**9, "start": 0}},
        {"observation_space": {"type": "Box", "shape": [10**9], "dtype": "float32", "low": "0", "high": "1"}},
        {"observation_space": {"type": "Dict", "spaces": {"a": image(1, 400, 400)}}, "policy": "MultiInputPolicy"},
        {"observation_space": {"type": "Box", "shape": [3], "dtype": "U999999999", "low": [0] * 3, "high": [1] * 3}},
        {"algo": "none"},
    ],
)
def test_a_policy_that_cannot_be_loaded(change, tmp_path):
    folder = write(tmp_path / "run", "Pendulum-v1", "acc")
    content = json.loads((folder / records.POLICY).read_text())
    (folder / records.POLICY).write_text(json.dumps({**content, **change}))
    with pytest.raises(records.RecordError, match="no policy that can be loaded"):
        load_policy(folder)


def test_nets_for_images_are_not_made_larger_than_the_weights(tmp_path):
    folder = write(tmp_path / "run", "Pendulum-v1", "acc")
    content = json.loads((folder / records.POLICY).read_text())
    change = {"observation_space": image(1, 400, 400), "policy": "CnnPolicy"}
    (folder / records.POLICY).write_text(json.dumps({**content, **change}))
    with pytest.raises(records.RecordError, match=r"at least \d+ weights, but there are 98"):
        load_policy(folder)


def test_critics_are_not_made_as_large_as_they_say(tmp_path):
    folder = write(tmp_path / "run", "Pendulum-v1", "acc")
    expected = load_policy(folder)(np.ones(3, np.float32))
    content = json.loads((folder / records.POLICY).read_text())
    content["nets"] |= {"n_critics": 10**9, "n_atoms": 10**9}
    content["settings"]["qf"] = [10**9, 10**9]
    (folder / records.POLICY).write_text(json.dumps(content))
    assert load_policy(folder)(np.ones(3, np.float32)) == expected


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "is no plain file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a link"),
        (lambda path: (path.touch(), os.truncate(path, 1 << 40)), "not at most"),
        (lambda path: path.write_bytes(b"nothing"), "header"),
    ],
)
def test_weights_are_a_plain_file(make, told, tmp_path):
    folder = write(tmp_path / "run", "Pendulum-v1", "acc")
    (folder / records.POLICY_WEIGHTS).unlink()
    make(folder / records.POLICY_WEIGHTS)
    with pytest.raises(records.RecordError, match=f"no policy that can be loaded: .*{told}"):
        load_policy(folder)


@pytest.mark.parametrize(
    ("env", "algo"),
    [
        ("Pendulum-v1", "acc"),
        ("Pendulum-v1", "td3"),
        ("CartPole-v1", "acc-dqn"),
        ("CartPole-v1", "acc-qrdqn"),
        ("Frames-v0", "acc-qrdqn"),
    ],
)
def test_a_policy_acts_as_it_did(env, algo, tmp_path):
    spec = tiny(env, algo)
    model = make_model(spec)
    (tmp_path / "run").mkdir()
    about = {"algo": algo, "policy": policy_name(model.observation_space), "settings": spec.as_dict()["settings"]}
    save_policy(tmp_path / "run", model, {**about, "nets": nets(model.policy_kwargs)})
    policy = load_policy(tmp_path / "run")
    observations = np.stack([model.observation_space.sample() for _ in range(20)])
    np.testing.assert_array_equal(policy(observations), model.predict(observations, deterministic=True)[0])


def test_export_to_a_folder(tmp_path, capsys):
    folder = write(tmp_path / "run", "Pendulum-v1", "acc")
    (tmp_path / "there").mkdir()
    assert main(["export", str(folder), str(tmp_path / "there")]) == 2
    assert "there is a folder: name the file to write" in capsys.readouterr().err
    assert main(["export", str(folder), str(tmp_path / "policy.pt")]) == 2
    assert "policy.pt, but must end in .onnx" in capsys.readouterr().err
    assert main(["export", str(folder), str(tmp_path / "policy.onnx")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.onnx", "run", "there"]


@pytest.mark.parametrize(
    ("env", "given", "camera"),
    [("HalfCheetah-v5", {}, 0), ("Hopper-v5", {}, -1), ("HalfCheetah-v5", {"camera_id": 3}, 3)],
)
def test_the_camera_follows_who_runs(env, given, camera):
    """Hopper's free camera follows by itself, and one that was asked for stays"""
    from acc_rl.inference.play import _follow

    made = gym.make(env, **given)
    _follow(made)
    assert made.unwrapped.mujoco_renderer.camera_id == camera


def test_a_video_is_whole_or_not_there(tmp_path, monkeypatch, capsys):
    folder = write(tmp_path / "run", "Frames-v0", "acc-dqn")
    frames = []

    def fail_at_the_third(frame):
        frames.append(frame)
        if len(frames) == 3:
            raise AccError("no more frames")
        return frame

    monkeypatch.setattr("acc_rl.inference.play._even", fail_at_the_third)
    assert main(["play", str(folder), "--video", str(tmp_path / "play.mp4")]) == 2
    assert "no more frames" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    "settings",
    [
        {"algo": "acc-x"},
        {"algo": "sac", "settings": {"nets": "simba", "normalize_observations": True}},
        {"algo": "td3", "settings": {"nets": "layernorm"}},
        {"algo": "acc-x", "settings": {"nets": "batchnorm"}},
        {"algo": "acc-compact"},
    ],
)
def test_a_policy_acts_as_its_run_and_as_its_onnx_file_do(settings, tmp_path):
    spec = tiny(steps=200, **settings)
    folder = train(spec, tmp_path, console=QUIET)
    policy = load_policy(folder)
    assert export_onnx(policy, tmp_path / "policy.onnx") < 1e-4
    model = make_model(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing resumes: the checkpoint is only read
        CheckpointCallback(folder / "checkpoints").resume(model)
    observations = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    np.testing.assert_allclose(policy(observations), model.predict(observations, deterministic=True)[0], atol=1e-6)
    if "normalize_observations" in settings.get("settings", {}) or settings["algo"] == "acc-x":
        assert acting_module(policy.policy).normalizer.count == 200
