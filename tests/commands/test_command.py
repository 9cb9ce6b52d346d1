"""The real command, as a user types it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file
from stable_baselines3 import SAC

from acc_rl.commands.main import main
from acc_rl.inference.policy import load_policy
from acc_rl.store import records

ACC = [sys.executable, "-m", "acc_rl.commands.main"]
SMALL = """
    --pi 16 --qf 16 --n-critics 2 --n-atoms 7 --batch-size 16 --buffer-size 5000 --learning-starts 100 --train-freq 5
    --threads 1 --bias.start-step 300 --bias.update-interval 200 --eval-every 500 --eval-episodes 3 --log-every 250
""".split()  # noqa: SIM905


def run(*words, cwd=None):
    return subprocess.run([*ACC, *map(str, words)], capture_output=True, text=True, cwd=cwd, timeout=300)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    result = run("train", "Pendulum-v1", "--steps", "2.2e3", "--seed", 4, *SMALL, "--out", out)
    assert result.returncode == 0, result.stderr
    (folder,) = out.iterdir()
    return folder, result


def test_help_is_quick_and_needs_no_torch():
    code = "import sys; from acc_rl.commands.main import main; main(['--help']); "
    code += "print({'torch', 'gymnasium'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "acc COMMAND" in result.stdout
    assert result.stdout.splitlines()[-1] == "set()"
    helped = run("train", "--help")
    assert helped.returncode == 0
    assert "acc train Hopper" in helped.stdout
    assert "--critic-updates" in helped.stdout


def test_every_file_is_there_and_says_what_it_should(trained):
    folder, result = trained
    spec = records.read_json(folder / "spec.json")
    assert (spec["env"], spec["steps"], spec["seed"]) == ("Pendulum-v1", 2200, 4)
    assert spec["resolved"]["gamma"] == 0.99
    assert spec["resolved"]["bias"]["start_step"] == 300
    assert spec["resolved"]["n_critics"] == 2
    provenance = records.read_json(folder / "provenance.json")
    assert {"acc_rl", "torch", "gymnasium", "mujoco"} <= set(provenance["versions"])
    assert provenance["threads"] == 1
    assert "train" in provenance["command"]
    evaluations = records.read(folder / "evaluations.jsonl")
    assert [row["step"] for row in evaluations] == [0, 500, 1000, 1500, 2000, 2200]
    assert all(len(row["returns"]) == 3 for row in evaluations)
    assert all(row["mean_return"] == pytest.approx(np.mean(row["returns"])) for row in evaluations)
    training = records.read(folder / "training.jsonl")
    assert [row["step"] for row in training] == [*range(250, 2001, 250), 2200]
    assert {"critic_loss", "actor_loss", "ent_coef", "beta", "dropped_per_net", "gap"} <= set(training[-1])
    (value_error,) = records.read(folder / "value_error.jsonl")
    assert value_error["pairs"] == 1000  # eleven episodes of 200 steps, less the last 100 of each
    assert list((folder / "tensorboard").glob("events*"))
    assert "evaluation" in result.stdout
    assert "value error" in result.stdout


def test_the_policy_acts_without_sb3s_pickles(trained):
    folder, _ = trained
    policy = load_policy(folder)
    one = policy(np.array([1.0, 0.0, 0.5], dtype=np.float32))
    assert one.shape == (1,)
    assert abs(one[0]) <= 2.0
    many = policy(np.zeros((5, 3), dtype=np.float32))
    assert many.shape == (5, 1)
    description = json.loads((folder / "policy.json").read_text())
    assert description["algo"] == "acc"


def test_eval(trained):
    folder, _ = trained
    result = run("eval", folder, "--episodes", 4)
    assert result.returncode == 0, result.stderr
    assert "over 4 episodes" in result.stdout
    assert run("eval", folder, "--episodes", 4).stdout == result.stdout


def test_export_and_play(trained, tmp_path):
    folder, _ = trained
    result = run("export", folder, tmp_path / "policy.onnx")
    assert result.returncode == 0, result.stderr
    assert "equal to torch on 1000 observations" in result.stdout
    observations = (100 * np.random.default_rng(0).normal(size=(7, 3))).astype(np.float32)
    (actions,) = onnxruntime.InferenceSession(tmp_path / "policy.onnx").run(None, {"observation": observations})
    np.testing.assert_allclose(actions, load_policy(folder)(observations), atol=1e-5)
    assert np.abs(actions).max() > 1  # env actions, not those in [-1, 1]
    result = run("play", folder, "--video", tmp_path / "play.mp4")
    assert result.returncode == 0, result.stderr
    assert "200 steps" in result.stdout
    assert (tmp_path / "play.mp4").stat().st_size > 10_000


def test_eval_of_several_runs_and_of_the_best_policy(trained, tmp_path, capsys):
    folder, _ = trained
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    weights = load_file(other / "best" / "policy.safetensors")
    save_file({name: 0 * each for name, each in weights.items()}, other / "best" / "policy.safetensors")
    words = ["eval", str(folder), str(other), "--episodes", "3"]
    assert main([*words, "--json"]) == 0
    last, same = json.loads(capsys.readouterr().out)
    assert last["returns"] == same["returns"]
    assert (last["run"], last["algo"], last["env"]) == (str(folder), "acc", "Pendulum-v1")
    assert len(last["returns"]) == 3
    assert main([*words, "--json", "--best"]) == 0
    best, without_weights = json.loads(capsys.readouterr().out)
    assert without_weights["returns"] not in (best["returns"], last["returns"])
    assert main([*words, "--json", "--stochastic"]) == 0
    drawn = json.loads(capsys.readouterr().out)
    assert drawn[0]["returns"] != last["returns"]
    assert main([*words, "--json", "--stochastic"]) == 0
    assert json.loads(capsys.readouterr().out) == drawn
    assert main([*words, "--best"]) == 0
    table = capsys.readouterr().out
    assert f"{best['mean_return']:.1f}" in table
    assert f"{without_weights['mean_return']:.1f}" in table


def test_gif(trained, tmp_path, capsys):
    assert main(["play", str(trained[0]), "--gif", str(tmp_path / "a.gif"), "--best"]) == 0
    assert "video:" in capsys.readouterr().out
    with Image.open(tmp_path / "a.gif") as image:
        assert image.format == "GIF"
        assert image.n_frames > 50
        assert image.info["duration"] >= 30
    assert main(["play", str(trained[0]), "--gif", str(tmp_path / "a.mp4")]) == 2
    assert "gif is" in capsys.readouterr().err


@pytest.mark.parametrize("algo", ["acc-dqn", "acc-qrdqn"])
def test_discrete_actions(algo, tmp_path):
    result = run(
        "train", "CartPole-v1", "--algo", algo, "--qf", 16, "--steps", 300, "--eval-episodes", 2, "--out", tmp_path
    )
    assert result.returncode == 0, result.stderr
    (folder,) = tmp_path.iterdir()
    result = run("export", folder, tmp_path / "policy.onnx")
    assert result.returncode == 0, result.stderr
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    (actions,) = onnxruntime.InferenceSession(tmp_path / "policy.onnx").run(None, {"observation": observations})
    np.testing.assert_array_equal(actions, load_policy(folder)(observations))


def test_play_without_a_screen_says_what_to_do(trained, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    result = run("play", trained[0])
    assert result.returncode == 2
    assert "--video" in result.stderr


def test_diagnose(tmp_path):
    SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, policy_kwargs={"net_arch": [8]}).save(tmp_path / "model.zip")
    result = run("diagnose", tmp_path / "model.zip", "--env", "Pendulum-v1", "--episodes", 3)
    assert result.returncode == 0, result.stderr
    assert "The critic overestimates by" in result.stdout  # an untrained critic says 0, returns are negative
    assert (tmp_path / "model.diagnosis.png").stat().st_size > 10_000


def test_two_runs_of_the_same_spec_are_the_same(trained, tmp_path):
    folder, _ = trained
    result = run("train", "Pendulum-v1", "--steps", 2200, "--seed", 4, *SMALL, "--out", tmp_path, "--eval-every", 250)
    assert result.returncode == 0, result.stderr
    (other,) = tmp_path.iterdir()
    weights = [(each / "policy.safetensors").read_bytes() for each in (folder, other)]
    assert weights[0] == weights[1]  # twice as many evaluations did not disturb training
    assert records.read(folder / "value_error.jsonl") == records.read(other / "value_error.jsonl")


def test_config_file_and_flags(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('env = "Pendulum-v1"\nsteps = 300\nseed = 5\n[settings]\nqf = [8]\npi = [8]\n[bias]\nlr = 0.2\n')
    result = run("train", "--config", config, "--seed", 6, "--out", tmp_path / "runs", "--eval-episodes", 1)
    assert result.returncode == 0, result.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    spec = records.read_json(folder / "spec.json")
    assert (spec["steps"], spec["seed"], spec["settings"]["qf"], spec["bias"]["lr"]) == (300, 6, [8], 0.2)


def test_ctrl_c_ends_cleanly_with_everything_written(tmp_path):
    command = [*ACC, "train", "Pendulum-v1", "--steps", "1000000", *SMALL, "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("*/training.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    (folder,) = tmp_path.iterdir()
    (checkpoint,) = (folder / "checkpoints").glob("step-*")
    assert f"stopped at step {int(checkpoint.name[5:])} of 1000000; the same command resumes it" in out
    load_policy(folder)(np.zeros(3, dtype=np.float32))


WRONG = {
    "misspelled env": (["train", "Hoper-v5"], "Hoper"),
    "misspelled algorithm": (["train", "Pendulum-v1", "--algo", "ac-td3"], "did you mean acc-td3?"),
    "misspelled flag": (["train", "Pendulum-v1", "--critic-update", "4"], "--critic-updates"),
    "misspelled command": (["trian", "Pendulum-v1"], "did you mean train?"),
    "negative steps": (["train", "Pendulum-v1", "--steps", "-5"], "steps is -5"),
    "half a step": (["train", "Pendulum-v1", "--steps", "0.5"], "0.5"),
    "setting of another algorithm": (
        ["train", "Pendulum-v1", "--algo", "sac", "--dropped-per-net", "2"],
        "sac has no setting",
    ),
    "discrete actions": (["train", "CartPole-v1"], "needs a Box action space"),
    "no config file": (["train", "--config", "none.toml"], "none.toml: No such file"),
    "no run": (["eval", "nowhere"], "nowhere/spec.json: No such file"),
}


@pytest.mark.parametrize(("words", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_clear_message(words, message, tmp_path):
    result = run(*words, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


BROKEN = """
import gymnasium as gym, numpy as np

class Broken(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, what):
        self.what, self.t = what, 0

    def reset(self, *, seed=None, options=None):
        if self.what == "reset":
            raise RuntimeError("the robot is not switched on")
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), np.nan if self.t == 300 else 1.0, self.t % 50 == 0, False, {}

for what in ("reset", "reward"):
    gym.register(f"Broken-{what}-v0", entry_point=Broken, max_episode_steps=1000, kwargs={"what": what})
"""


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("reset", "Broken-reset-v0: its reset failed: RuntimeError: the robot is not switched on"),
        ("reward", "reward of env 0 is nan at step 300: the environment returned it"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_an_env_that_fails(what, message, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = run("train", f"broken:Broken-{what}-v0", *SMALL, "--steps", 1000, "--out", tmp_path / "runs")
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    if what == "reset":
        assert not (tmp_path / "runs").exists()
    else:  # what was learned before is still readable
        (folder,) = (tmp_path / "runs").iterdir()
        assert [row["step"] for row in records.read(folder / "training.jsonl")] == [250]


def test_an_existing_run_is_not_overwritten(trained):
    folder, _ = trained
    before = (folder / "evaluations.jsonl").read_bytes()
    same = run("train", "Pendulum-v1", "--steps", "2.2e3", "--seed", 4, *SMALL, "--out", folder.parent)
    other = run("train", "Pendulum-v1", "--steps", "99", "--seed", 4, *SMALL, "--out", folder.parent)
    anew = run("train", "Pendulum-v1", "--steps", "99", "--seed", 4, *SMALL, "--out", folder.parent, "--restart")
    assert (same.returncode, other.returncode, anew.returncode) == (0, 2, 2)
    assert "all 2200 steps are done" in same.stdout
    assert "steps can only grow, 99 is less" in other.stderr
    assert "Pass --yes" in anew.stderr
    assert (folder / "evaluations.jsonl").read_bytes() == before


def test_unwritable_folder(tmp_path):
    # where not even root may write
    out = "/proc/runs" if os.geteuid() == 0 else tmp_path / "runs"
    tmp_path.chmod(0o500)
    result = run("train", "Pendulum-v1", *SMALL, "--out", out)
    assert result.returncode == 2
    assert result.stderr.startswith("acc: error: [Errno ")
    assert str(out) in result.stderr


def test_missing_box2d(tmp_path, monkeypatch):
    (tmp_path / "Box2D.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = run("train", "LunarLander-v3", "--algo", "acc-dqn", "--out", tmp_path / "runs")
    assert result.returncode == 2
    assert "gymnasium[box2d]" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_corrupt_spec(trained, tmp_path):
    folder = tmp_path / trained[0].name
    shutil.copytree(trained[0], folder)
    (folder / "spec.json").write_text('{"env": "Pend')
    for words in (
        ["eval", folder],
        ["train", "Pendulum-v1", "--steps", "2.2e3", "--seed", 4, *SMALL, "--out", tmp_path],
    ):
        result = run(*words)
        assert result.returncode == 2
        assert "spec.json" in result.stderr
        assert result.stderr.count("\n") == 1


def test_config_with_wrong_types(tmp_path):
    (tmp_path / "run.toml").write_text('env = "Pendulum-v1"\n[settings]\nbatch_size = "many"\n')
    result = run("train", "--config", tmp_path / "run.toml")
    assert result.returncode == 2
    assert "settings.batch_size is 'many', but must be an integer" in result.stderr


def test_out_that_is_a_file(tmp_path):
    (tmp_path / "runs").write_text("")
    result = run("train", "Pendulum-v1", *SMALL, "--out", tmp_path / "runs")
    assert result.returncode == 2
    assert "Not a directory" in result.stderr or "File exists" in result.stderr
    assert Path(tmp_path / "runs").read_text() == ""
