"""Arguments and wrappers of tasks, time limits, VecNormalize, and envs in processes of their own."""

import io
import json
import multiprocessing
import os
import signal

import gymnasium as gym
import numpy as np
import pytest
from kit import Crash, at_step, crash, digests, run, tiny
from rich.console import Console
from stable_baselines3.common.vec_env import VecNormalize

from acc_rl.core.errors import AccError
from acc_rl.inference.export import export_onnx
from acc_rl.inference.policy import load_policy
from acc_rl.runs import envs
from acc_rl.runs.callbacks import EvaluationCallback
from acc_rl.runs.evaluation import evaluate_task
from acc_rl.runs.interrupt import Stopped
from acc_rl.runs.spec import RunSpec, from_dict
from acc_rl.runs.train import make_model
from acc_rl.store import records
from acc_rl.study.grid import grid_from_dict


class Paid(gym.Wrapper):
    """One more reward per step"""

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, reward + 1, *rest


class Counting(gym.Wrapper):
    """Its rewards depend on how many episodes there were: no function of seed and actions"""

    resets = 0

    def reset(self, **kwargs):
        self.resets += 1
        return self.env.reset(**kwargs)

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, reward + self.resets, *rest


class Broken(gym.Wrapper):
    def __init__(self, env, size):
        super().__init__(env)


PAID = f"{__name__}:Paid"


def played(env, steps=3):
    observation, _ = env.reset(seed=0)
    return [observation, *(env.step(np.zeros(1, np.float32)) for _ in range(steps))]


def test_arguments_and_wrappers_reach_the_task():
    spec = RunSpec("Pendulum-v1", env_kwargs={"g": 0.0}, wrapper=(PAID, PAID), time_limit=3)
    env, plain = envs.make(spec), gym.make("Pendulum-v1", g=0.0)
    for ours, theirs in zip(played(env)[1:], played(plain)[1:], strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1] == theirs[1] + 2
    assert ours[3]  # truncated at the third step
    assert not theirs[3]


def test_training_evaluation_and_later_evaluation_have_the_same_task(tmp_path):
    spec = tiny(env_kwargs={"g": 0.0}, wrapper=[PAID], time_limit=20, steps=200)
    folder = run(spec, tmp_path)
    assert folder.name.startswith("Pendulum-v1_acc_")
    rows = records.read(folder / records.EVALUATIONS)
    assert all(row["lengths"] == [20] for row in rows)
    assert records.read(folder / records.TRAINING)[-1]["episode_length"] == 20
    row = evaluate_task(load_policy(folder), spec, 2, 0)
    assert row["lengths"] == [20, 20]
    plain = evaluate_task(load_policy(folder), RunSpec("Pendulum-v1", env_kwargs={"g": 0.0}, time_limit=20), 2, 0)
    np.testing.assert_allclose(np.array(row["returns"]) - plain["returns"], 20)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"wrapper": ["nosuch:Thing"]}, "wrapper is 'nosuch:Thing', but nosuch cannot be imported"),
        ({"wrapper": [f"{__name__}:Nothing"]}, "has no class Nothing that is a Wrapper"),
        ({"wrapper": ["json:JSONDecoder"]}, "has no class JSONDecoder that is a Wrapper"),
        ({"wrapper": ["Thing"]}, r"wrapper is \('Thing',\), but must be classes as module:Class"),
        ({"wrapper": [f"{__name__}:Broken"]}, "Broken cannot be put around Pendulum-v1: TypeError"),
        ({"env_kwargs": {"gravity": 1}}, "Pendulum-v1 cannot be made: TypeError.*gravity.*--env-kwargs"),
        ({"env_kwargs": {"render_mode": "human"}}, "env_kwargs is .*, but must be"),
        ({"env_kwargs": {"g": float("nan")}}, "env_kwargs is .*nan"),
        ({"env_kwargs": 3}, "env_kwargs is 3, but must be a table"),
        ({"time_limit": 0}, "time_limit is 0, but must be"),
        ({"vec": "threads"}, "vec is 'threads', but must be 'dummy' or 'subproc'"),
        ({"env": "FrozenLake-v1", "algo": "acc-dqn", "normalize": True}, "normalize is True, but FrozenLake-v1 has"),
    ],
)
def test_mistakes_are_named_before_anything_is_written(content, message, tmp_path):
    content = {"env": "Pendulum-v1", "steps": 300, **content}
    with pytest.raises(AccError, match=message):
        run(from_dict(content), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_wrapper_with_state_over_episodes(tmp_path, monkeypatch):
    told = Console(record=True, file=io.StringIO(), width=300)
    spec = tiny(wrapper=[f"{__name__}:Counting"])
    with monkeypatch.context() as patch, pytest.raises(Crash):
        at_step(patch, 450, crash)
        run(spec, tmp_path, console=told, checkpoint_every=20)
    assert told.export_text().count("resumed exactly if it leaves nothing from one episode to the next") == 1
    with pytest.warns(UserWarning, match="env 0 could not be brought back"):
        run(spec, tmp_path)


# --- VecNormalize ---


def test_normalized_runs_resume_exactly(tmp_path, monkeypatch):
    spec = tiny(normalize=True, n_envs=2, wrapper=[PAID], time_limit=37)
    whole = digests(run(spec, tmp_path / "whole"))
    for step in (130, 437):
        with monkeypatch.context() as patch, pytest.raises(Crash):
            at_step(patch, step, crash)
            run(spec, tmp_path / "crashed")
    assert digests(run(spec, tmp_path / "crashed")) == whole


def test_the_saved_policy_has_the_statistics(tmp_path, monkeypatch):
    models = []
    original = EvaluationCallback.close
    monkeypatch.setattr(EvaluationCallback, "close", lambda self: (models.append(self.model), original(self)))
    spec = tiny("Hopper-v5", normalize=True, steps=400)
    folder = run(spec, tmp_path)
    model = models[-1]
    normalizer = model.get_vec_normalize_env()
    assert isinstance(normalizer, VecNormalize)
    assert normalizer.obs_rms.count > 400
    observations = np.random.default_rng(0).normal(size=(50, 11)) * 3
    expected, _ = model.predict(normalizer.normalize_obs(observations), deterministic=True)
    policy = load_policy(folder)
    np.testing.assert_array_equal(policy(observations), expected)
    assert np.abs(model.predict(observations.astype(np.float32), deterministic=True)[0] - expected).max() > 1e-3
    # the last evaluation of the run is that of the files, on its seeds
    row = records.read(folder / records.EVALUATIONS)[-1]
    env = envs.make(spec)
    seeds = envs.episode_seed(spec.seed, envs.EVALUATION, row["number"], 0)
    observation, total, ended = env.reset(seed=seeds)[0], 0.0, False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        total, ended = total + reward, terminated or truncated
    assert total == row["returns"][0]
    assert export_onnx(policy, tmp_path / "policy.onnx") < 1e-4


def test_statistics_that_do_not_fit_are_refused(tmp_path):
    folder = run(tiny(normalize=True, steps=120), tmp_path)
    content = json.loads((folder / records.POLICY).read_text())
    for name, value in (("mean", [0.0]), ("var", [-1.0, 1.0, 1.0]), ("var", ["inf", 1.0, 1.0])):
        changed = json.loads(json.dumps(content))
        changed["normalizer"]["statistics"][""][name] = value
        (folder / records.POLICY).write_text(json.dumps(changed))
        with pytest.raises(AccError, match="statistics of observations"):
            load_policy(folder)


def test_only_the_numbers_of_dictionaries_are_normalized():
    class Mixed(gym.Env):
        observation_space = gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (2,)), "b": gym.spaces.Discrete(3)})
        action_space = gym.spaces.Box(-1, 1, (1,))

        def reset(self, *, seed=None, options=None):
            return {"a": np.ones(2, np.float32), "b": 1}, {}

    gym.register("Mixed-v0", Mixed, max_episode_steps=9, disable_env_checker=True)
    model = make_model(tiny("Mixed-v0", normalize=True))
    assert list(model.get_vec_normalize_env().obs_rms) == ["a"]


# --- processes ---


def test_envs_in_processes_give_the_same_run_and_survive_signals_to_the_group(tmp_path, monkeypatch):
    content = {"n_envs": 2, "normalize": True, "env_kwargs": {"g": 9.0}}
    whole = digests(run(tiny(**content), tmp_path / "whole"))
    spec = tiny(**content, vec="subproc")
    assert spec.name == tiny(**content).name
    pids = []

    def interrupt():
        pids.extend(each.pid for each in models[-1].env.unwrapped.processes)
        for pid in (*pids, os.getpid()):  # as a terminal does
            os.kill(pid, signal.SIGINT)

    models = []
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("acc_rl.runs.train.make_model", lambda *args: models.append(make_model(*args)) or models[-1])
        at_step(patch, 336, interrupt)
        run(spec, tmp_path / "parts")
    assert len(pids) == 2
    assert digests(run(tiny(**content), tmp_path / "parts")) == whole  # either kind continues the other


class Dies(gym.Wrapper):
    """In a process of its own, at its tenth step"""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 10 and multiprocessing.parent_process() is not None:
            os._exit(1)
        return self.env.step(action)


def test_a_process_that_dies_is_an_error_of_one_line(tmp_path):
    spec = tiny(vec="subproc", wrapper=[f"{__name__}:Dies"])
    with pytest.raises(envs.EnvError, match="Pendulum-v1: the process of an env has died"):
        run(spec, tmp_path)


# --- the same in files ---


def test_studies_have_them_too():
    content = {
        "tasks": ["Pendulum"],
        "steps": 100,
        "seeds": 1,
        "time_limit": 50,
        "env_kwargs": {"g": 9},
        "variants": ["acc", {"algo": "acc", "normalize": True}, {"algo": "acc", "wrapper": [PAID]}],
    }
    plain, normalized, wrapped = grid_from_dict(content, "mine").runs()
    assert plain.name == "Pendulum-v1_acc_env.g=9_time_limit=50_seed0"
    assert (normalized.normalize, normalized.time_limit) == (True, 50)
    assert wrapped.wrapper == (PAID,)
    assert len({plain.id, normalized.id, wrapped.id}) == 3


def test_old_specs_are_the_same_runs():
    old = {"env": "Hopper-v5", "algo": "acc", "steps": 1_000_000, "settings": {"gamma": 0.9}, "bias": {"lr": None}}
    spec = from_dict(old)
    assert spec.id == RunSpec("Hopper", settings={"gamma": 0.9}).id == "de9fa521"
    assert from_dict(json.loads(json.dumps(spec.as_dict()))) == spec
