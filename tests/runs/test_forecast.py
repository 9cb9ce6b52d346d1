"""How long a run will take, the time that it is given, and its threads."""

import time

import pytest
import torch as th
from kit import QUIET, digests, run, tiny

from acc_rl.commands.parsing import seconds
from acc_rl.core.errors import AccError
from acc_rl.runs import speed, threads
from acc_rl.runs.interrupt import StopRequest, TimeUp
from acc_rl.runs.spec import RunSpec
from acc_rl.runs.train import make_model, train
from acc_rl.store import records
from acc_rl.store.checkpoint import Checkpoints, read_manifest


@pytest.fixture
def hasty(monkeypatch):
    """A forecast for every run, from as little as possible"""
    monkeypatch.setattr(speed, "ENOUGH", 0.01)
    monkeypatch.setattr("acc_rl.runs.train.FEW", 1)


def test_a_measured_run_is_the_same_run(tmp_path, hasty, capsys):
    whole = digests(run(tiny(), tmp_path / "whole"))
    assert digests(train(tiny(), tmp_path / "told", checkpoint_every=100, estimate=True)) == whole
    told = capsys.readouterr().out
    assert "500 steps at about" in told
    assert "of memory for the replay buffer" in told


def test_of_a_resumed_run_the_rest_is_told(tmp_path, hasty, capsys):
    run(tiny(), tmp_path)
    train(tiny(steps=800), tmp_path, estimate=True)
    assert ": 300 steps at about" in capsys.readouterr().out


def test_the_forecast_counts_training_and_evaluation(tmp_path):
    spec = RunSpec("Hopper", eval_every=1000, eval_episodes=10)
    assert speed.evaluation_seconds(spec, speed.Cost(0.002, 500)) == pytest.approx(10 * 500 * 0.002 / 1000)
    timer = speed._Timer()
    timer.marks = [(0.0, 0), (1.0, 40), (3.0, 50)]
    assert timer.seconds_per_step == 0.2
    timer.marks = [(0.0, 0), (5.0, 4)]  # a simulator so slow that training never came
    assert timer.seconds_per_step == 1.25


def test_slow_simulators_are_not_waited_for(monkeypatch, tmp_path):
    monkeypatch.setattr(speed, "MOST", 0.1)
    original, steps = speed.envs.Guarded.step, []

    def slow(self, action):
        steps.append(time.sleep(0.04))
        return original(self, action)

    monkeypatch.setattr(speed.envs.Guarded, "step", slow)
    assert speed.training_seconds(tiny(), tmp_path) >= 0.04
    assert len(steps) < 8


def test_whoever_starts_a_day_of_training_hears_of_faster_algorithms():
    first, hint = speed.forecast(RunSpec("Hopper"), 1_000_000, 0.08)
    assert first.endswith("1,000,000 steps at about 12.5 per second take about 22 hours")
    assert "--algo acc-x" in hint
    assert "--algo acc-compact" in hint
    for quiet in (
        RunSpec("Hopper", algo="acc-x"),
        RunSpec("Hopper", algo="acc-compact"),
        RunSpec("Hopper", settings={"qf": (64,)}),
    ):
        assert len(speed.forecast(quiet, 1_000_000, 0.08)) == 1
    assert len(speed.forecast(RunSpec("Hopper"), 10_000, 0.08)) == 1


@pytest.mark.parametrize(
    ("given", "told"), [(40, "40 seconds"), (600, "10 minutes"), (5400, "1.5 hours"), (200_000, "2.3 days")]
)
def test_durations_in_words(given, told):
    assert speed.duration(given) == told


# --- the time that a run is given ---


@pytest.mark.parametrize(
    ("text", "expected"), [("2h", 7200), ("90m", 5400), ("45s", 45), ("1d", 86400), ("1h30m", 5400), ("0.5h", 1800)]
)
def test_durations_on_the_command_line(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "2", "h", "2x", "-1h", "0s", "1h 30m", "nanh"])
def test_what_is_no_duration(text):
    with pytest.raises(AccError, match=f"time is {text!r}, but must be"):
        seconds(text)


def test_a_run_whose_time_is_up_is_saved_and_resumed(tmp_path, monkeypatch, capsys):
    whole = digests(run(tiny(), tmp_path / "whole"))
    calls = []

    def passed(self):
        calls.append(1)
        return self.deadline is not None and len(calls) > 225

    with monkeypatch.context() as patch, pytest.raises(TimeUp) as told:
        patch.setattr(StopRequest, "asked", property(passed))
        train(tiny(), tmp_path / "parts", seconds=3600)
    assert told.value.exit_code == 0
    assert "its time is up: stopped at step" in capsys.readouterr().out
    step = Checkpoints(tmp_path / "parts" / tiny().name / records.CHECKPOINTS).read().step
    assert 0 < step < 500
    assert digests(run(tiny(), tmp_path / "parts")) == whole


def test_a_deadline_is_as_good_as_a_signal():
    assert not StopRequest(time.monotonic() + 100).asked
    request = StopRequest(time.monotonic())
    assert request.asked
    with pytest.raises(TimeUp):
        request.raise_if_asked()


# --- threads ---


def test_small_nets_get_one_thread_and_large_ones_all(tmp_path, monkeypatch):
    monkeypatch.setattr(th, "get_num_threads", lambda: 7)
    small, large = make_model(tiny(threads=0)), make_model(RunSpec("Hopper", settings={"buffer_size": 10}))
    assert threads.n_weights(large) > threads.THREADED > threads.n_weights(small)
    assert threads.threads_of(tiny(threads=0), tmp_path, small) == 1
    assert threads.threads_of(RunSpec("Hopper"), tmp_path, large) == 7
    assert threads.threads_of(tiny(threads=3), tmp_path, small) == 3


def test_a_run_keeps_its_threads_when_it_resumes(tmp_path, monkeypatch):
    now = [1]  # a second thread would only wait here
    monkeypatch.setattr(th, "get_num_threads", lambda: now[0])
    monkeypatch.setattr(th, "set_num_threads", lambda number: now.__setitem__(0, number))
    folder = run(tiny(threads=2), tmp_path)
    (*_, last) = sorted((folder / records.CHECKPOINTS).glob("step-*"))
    assert read_manifest(last)["threads"] == 2
    spec = tiny(threads=0, steps=600)
    assert threads.threads_of(spec, folder, make_model(spec)) == 2
    train(spec, tmp_path, console=QUIET)  # a warning would say that it is not bit-identical
    assert records.read_json(folder / records.PROVENANCE)["starts"][-1]["threads"] == 2
    assert now == [1]
