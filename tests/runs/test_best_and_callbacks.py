"""The best policy is kept, a run ends when it is good enough, and callbacks of one's own run beside ours."""

import json

import numpy as np
import pytest
import torch as th
from kit import QUIET, Crash, at_step, crash, digests, run, tiny
from safetensors.torch import load_file
from stable_baselines3.common.callbacks import BaseCallback

from acc_rl.core.errors import AccError
from acc_rl.inference.policy import load_policy
from acc_rl.runs import envs
from acc_rl.runs.callbacks import EvaluationCallback
from acc_rl.runs.config import finished
from acc_rl.runs.evaluation import evaluate, evaluation_seeds
from acc_rl.runs.train import train
from acc_rl.store import records

HERE = __name__


def told(monkeypatch, returns):
    """Evaluations have these returns, one after the other; what is measured otherwise stays"""
    original = EvaluationCallback.evaluate

    def changed(self):
        from acc_rl.runs import callbacks

        with pytest.MonkeyPatch.context() as patch:
            row = {"mean_return": returns[self.number], "std_return": 0.0, "returns": [], "lengths": []}
            patch.setattr(callbacks, "summary", lambda episodes: row)
            original(self)

    monkeypatch.setattr(EvaluationCallback, "evaluate", changed)


def test_the_best_policy_is_kept_beside_the_last(tmp_path, monkeypatch):
    told(monkeypatch, [1.0, 5.0, 5.0, 2.0])  # at 0, 200, 400 and 500 steps
    seen = {}
    original = EvaluationCallback.evaluate

    def noted(self):
        original(self)
        weights = self.model.policy.actor.state_dict()
        seen[self.model.num_timesteps] = {name: each.clone() for name, each in weights.items()}

    monkeypatch.setattr(EvaluationCallback, "evaluate", noted)
    folder = run(tiny(), tmp_path)
    best = load_file(folder / "best" / "policy.safetensors")
    assert all(th.equal(best[name], each) for name, each in seen[200].items())  # the first of equals
    last = load_file(folder / "policy.safetensors")
    assert all(th.equal(last[name], each) for name, each in seen[500].items())
    assert not all(th.equal(last[name], best[name]) for name in last)
    about = records.read_json(folder / "best" / "policy.json")
    assert (about["step"], about["mean_return"]) == (200, 5.0)
    assert records.read_json(folder / records.RESULT)["best"] == {"step": 200, "mean_return": 5.0}
    load_policy(folder / "best")(np.zeros(3, np.float32))


def test_the_best_policy_survives_a_crash_and_comes_back_with_the_checkpoint(tmp_path, monkeypatch):
    told(monkeypatch, [1.0, 7.0, 3.0, 2.0])
    spec = tiny(normalize=True)
    whole = run(spec, tmp_path / "whole")
    for step in (130, 437):
        with monkeypatch.context() as patch, pytest.raises(Crash):
            at_step(patch, step, crash)
            run(spec, tmp_path / "crashed")
    # what a lost future has left there is not this run's
    (tmp_path / "crashed" / spec.name / "best" / "policy.safetensors").write_bytes(b"other")
    crashed = run(spec, tmp_path / "crashed")
    assert digests(crashed) == digests(whole)
    for name in ("policy.safetensors", "policy.json"):
        assert (crashed / "best" / name).read_bytes() == (whole / "best" / name).read_bytes()


def test_the_evaluation_of_the_best_policy_can_be_repeated(tmp_path):
    spec = tiny(eval_episodes=3)
    folder = run(spec, tmp_path)
    rows = records.read(folder / records.EVALUATIONS)
    best = max(rows, key=lambda row: row["mean_return"])
    made = [envs.make(spec) for _ in range(3)]
    again = evaluate(load_policy(folder / "best"), made, evaluation_seeds(spec.seed, best["number"], 3))
    assert [each["return"] for each in again] == best["returns"]


def test_a_link_in_place_of_the_best_policy_is_not_followed(tmp_path):
    spec = tiny()
    (tmp_path / "elsewhere").mkdir()
    folder = run(spec, tmp_path / "runs", checkpoint_every=1000)
    for path in (folder / "best").iterdir():
        path.unlink()
    (folder / "best").rmdir()
    (folder / "best").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AccError, match="best is a link"):
        run(tiny(steps=600), tmp_path / "runs")
    assert list((tmp_path / "elsewhere").iterdir()) == []


# --- good enough ---


def test_a_run_ends_at_a_return_and_continues_to_a_higher_one(tmp_path, monkeypatch, capsys):
    told(monkeypatch, [1.0, 5.0, 6.0, 9.0])
    whole = digests(run(tiny(), tmp_path / "whole"))
    out = tmp_path / "parts"
    folder = train(tiny(stop_at=5.0), out, checkpoint_every=100)
    assert "stopped at step 200 of 500: an evaluation has reached stop_at=5" in capsys.readouterr().out
    result = records.read_json(folder / records.RESULT)
    assert (result["step"], result["evaluation"]["mean_return"]) == (200, 5.0)
    (checkpoint,) = {path.name for path in (folder / "checkpoints").glob("step-*")} - {"step-000000000100"}
    assert checkpoint == "step-000000000200"
    train(tiny(stop_at=4.0), out)
    assert "stop_at=4" in capsys.readouterr().out  # nothing more to do
    run(tiny(stop_at=5.5), out)
    assert records.read_json(folder / records.RESULT)["step"] == 400
    assert digests(run(tiny(), out)) == whole


# --- callbacks ---


class Stateful(BaseCallback):
    """Counts steps, over all starts of the run"""

    count = 0

    def _on_step(self):
        self.count += 1
        return True

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state, model):
        self.count = state["count"]

    def _on_training_end(self):
        (self.logger_folder() / "count.json").write_text(json.dumps(self.count))

    def logger_folder(self):
        from pathlib import Path

        return Path(self.logger.dir)


class Plain(BaseCallback):
    seen = ()

    def _on_rollout_start(self):
        Plain.seen = (*Plain.seen, self.num_timesteps)

    def _on_step(self):
        return self.num_timesteps < 450


class NeedsMore(BaseCallback):
    def __init__(self, project):
        super().__init__()


def test_a_callback_with_a_state_resumes_with_the_run(tmp_path, monkeypatch):
    spec = tiny(callback=[f"{HERE}:Stateful"])
    with monkeypatch.context() as patch, pytest.raises(Crash):
        at_step(patch, 437, crash)
        run(spec, tmp_path)
    folder = run(spec, tmp_path)
    assert json.loads((folder / "count.json").read_text()) == 500
    assert spec.id != tiny().id


@pytest.mark.filterwarnings("ignore:this run cannot be resumed exactly because .* callback Plain")
def test_a_callback_may_end_the_run(tmp_path, capsys):
    spec = tiny(callback=[f"{HERE}:Plain", f"{HERE}:Stateful"])
    folder = train(spec, tmp_path)
    assert Plain.seen[:3] == (0, 4, 8)
    assert "stopped at step 450 of 500 by a callback" in capsys.readouterr().out
    assert finished(folder, spec)
    assert train(spec, tmp_path) == folder
    assert "a callback ended it at step 450, more --steps continue it" in capsys.readouterr().out
    assert records.read_json(folder / records.RESULT)["step"] == 450


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch:Thing", "callback is 'nosuch:Thing', but nosuch cannot be imported"),
        ("json:Nothing", "has no class Nothing that is a BaseCallback"),
        (f"{HERE}:NeedsMore", "NeedsMore', but cannot be made without arguments"),
        ("Thing", r"callback is \('Thing',\), but must be classes as module:Class"),
    ],
)
def test_callbacks_that_cannot_be_are_refused_before_training(name, message, tmp_path):
    with pytest.raises(AccError, match=message):
        train(tiny(callback=[name]), tmp_path / "runs", console=QUIET)
    assert not (tmp_path / "runs").exists()
