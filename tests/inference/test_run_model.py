"""A run's folder as an SB3 model."""

import json
import shutil

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from kit import run, tiny

import acc_rl
from acc_rl.algos.estimates import ModelEstimator
from acc_rl.commands.diagnose import Diagnose
from acc_rl.commands.main import main
from acc_rl.core.errors import AccError
from acc_rl.runs.envs import make
from acc_rl.runs.evaluation import AFTERWARDS, evaluation_seeds
from acc_rl.store import records
from acc_rl.store.checkpoint import Checkpoints

OBSERVATIONS = np.random.default_rng(0).uniform(-1, 1, (8, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tiny(), tmp_path_factory.mktemp("runs"))


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def actions(model):
    return model.predict(OBSERVATIONS, deterministic=True)[0]


def test_from_the_newest_checkpoint(finished):
    before = contents(finished)
    model = acc_rl.load_model(finished)
    assert type(model) is acc_rl.ACC
    assert model.num_timesteps == 500
    assert model.replay_buffer.full
    state = Checkpoints(finished / records.CHECKPOINTS).read().state
    assert model.calibration.clock == 500
    for name, weights in model.policy.state_dict().items():
        assert th.equal(weights, state["parameters"]["policy"][name]), name
    np.testing.assert_array_equal(actions(model), acc_rl.load_policy(finished)(OBSERVATIONS))
    model.learn(40, reset_num_timesteps=False)
    assert model.num_timesteps == 540
    assert model.calibration.clock == 540
    assert contents(finished) == before


def test_from_the_final_policy_where_checkpoints_are_gone(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / finished.name)
    shutil.rmtree(folder / records.CHECKPOINTS)
    with pytest.warns(UserWarning, match="has no checkpoint: .* its critics are new"):
        model = acc_rl.load_model(folder)
    np.testing.assert_array_equal(actions(model), acc_rl.load_policy(folder)(OBSERVATIONS))
    assert (model.num_timesteps, model.replay_buffer.size()) == (0, 0)
    with pytest.raises(AccError, match="has no checkpoint, and a run keeps its critics there alone"):
        Diagnose(folder).run()


def test_pictures_beside_the_runs_are_not_evaluated(finished, tmp_path, capsys):
    (tmp_path / "run.diagnosis.png").write_text("a picture")
    found = [str(finished), str(finished), str(tmp_path / "run.diagnosis.png")]
    assert main(["eval", *found, "--episodes", "1", "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == found[:2]
    for files in (found[2:], found[2:] * 2):
        assert main(["eval", *files]) == 2


def test_a_diagnosis_plays_the_task_as_the_run_has_it(tmp_path, capsys, monkeypatch):
    seen = []
    act = ModelEstimator.act
    monkeypatch.setattr(ModelEstimator, "act", lambda self, obs: (seen.append(obs), act(self, obs))[1])
    folder = run(tiny(time_limit=20, normalize=True), tmp_path)
    seen.clear()
    Diagnose(folder, episodes=2).run()
    assert "40 pairs of 2 episodes" in capsys.readouterr().out
    normalizer = acc_rl.load_model(folder).get_vec_normalize_env()
    first = [make("Pendulum-v1").reset(seed=seed)[0] for seed in evaluation_seeds(0, AFTERWARDS, 2)]
    np.testing.assert_array_equal(seen[0], normalizer.normalize_obs(np.stack(first)))
    Diagnose(folder, episodes=2, horizon=10).run()
    assert "20 pairs of 2 episodes" in capsys.readouterr().out


def test_a_diagnosis_cuts_episodes_where_the_run_does(tmp_path, capsys):
    folder = run(tiny(horizon=30), tmp_path)
    Diagnose(folder, episodes=2).run()
    assert "60 pairs of 2 episodes" in capsys.readouterr().out


def test_diagnose_a_run(finished, tmp_path, capsys):
    Diagnose(finished, episodes=2, plot=tmp_path / "plot.png").run()
    assert "(ACC, 400 pairs of 2 episodes on Pendulum-v1)" in capsys.readouterr().out
    assert (tmp_path / "plot.png").stat().st_size > 1000
    for wrong in ({"env": "Hopper-v5"}, {"algo": "sac"}):
        with pytest.raises(AccError, match="is a run of acc on Pendulum-v1: leave --algo and --env out"):
            Diagnose(finished, **wrong).run()


def test_what_is_no_run(tmp_path):
    with pytest.raises(AccError, match=r"spec\.json"):
        acc_rl.load_model(tmp_path)
    with pytest.raises(AccError, match="use --env"):
        Diagnose(tmp_path / "model.zip").run()


class Photos(gym.Env):
    """Images with their channels last"""

    observation_space = gym.spaces.Box(0, 255, (36, 36, 3), np.uint8)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros((36, 36, 3), np.uint8), {}

    def step(self, action):
        return np.full((36, 36, 3), 9, np.uint8), 1.0, False, False, {}


gym.register("Photos-v0", Photos, max_episode_steps=5)


def test_a_run_on_images_is_diagnosed(tmp_path, capsys):
    settings = {"learning_starts": 20, "buffer_size": 100, "batch_size": 4, "pi": (8,), "qf": (8,)}
    spec = tiny("Photos-v0", "sac", steps=30, eval_every=30, settings=settings, bias={})
    Diagnose(run(spec, tmp_path), episodes=2).run()
    assert "10 pairs of 2 episodes" in capsys.readouterr().out
