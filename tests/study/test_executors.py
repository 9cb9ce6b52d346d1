"""Real workers: killed, hanging, failing, interrupted. What comes out equals an undisturbed study."""

import errno
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from tiny_studies import OPTIONS, Notes, alive, command, digests, hows, small_study, tried, write_file

from acc_rl.commands.main import main
from acc_rl.runs.interrupt import Stopped
from acc_rl.store import records
from acc_rl.store.lock import LOCK, LockLost, exclusive, is_locked
from acc_rl.study.attempts import AttemptLog, End, failed_attempts, read_attempts
from acc_rl.study.executors import Local, execute
from acc_rl.study.folder import Part, last_step, supervised
from acc_rl.study.status import study_status
from acc_rl.study.worker import LEASH

ENV = """
import gymnasium as gym, numpy as np, os, time
from pathlib import Path

HERE = Path(__file__).parent

class Toy(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, what):
        self.what = what

    def reset(self, *, seed=None, options=None):
        self.rng, self.t = np.random.default_rng(seed), 0
        return self.rng.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action):
        self.t += 1
        if self.what == "hang" and self.t == 60 and not (HERE / "hung").exists():
            (HERE / "hung").write_text("")
            time.sleep(3600)
        if self.what == "fail" and self.t == 60:
            raise RuntimeError("the robot fell over")
        return self.rng.uniform(-1, 1, 1).astype(np.float32), float(-action[0] ** 2), False, self.t == 100, {}

for what in ("hang", "fail"):
    gym.register(f"{what}-v0", entry_point=Toy, max_episode_steps=1000, kwargs={"what": what})
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (tmp_path / "toy_tasks.py").write_text(ENV)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


def of(study, part):
    return {name: digest for name, digest in digests(study.folder).items() if part in name}


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_finished_runs_are_not_run_again(clean):
    before = digests(clean.folder)
    assert len(before) == 6
    notes = Notes()
    assert execute(clean, Local(clean, 2, OPTIONS), 2, notes) == []
    assert notes.lines == []
    assert digests(clean.folder) == before
    status = study_status(clean)[0]
    assert (status.state, status.step, status.steps, status.attempts) == ("finished", 400, 400, 1)
    assert status.score == records.read(clean.folder / clean.runs[0].name / "evaluations.jsonl")[-1]["mean_return"]
    assert 0 <= status.dropped <= 5


def test_another_run_in_its_folder_does_not_count(clean, tmp_path):
    study = small_study(tmp_path, variants=["acc"])
    folder = study.folder / study.runs[0].name
    shutil.copytree(clean.folder / folder.name, folder)
    assert study.finished(study.runs[0])
    result = records.read_json(folder / records.RESULT)
    records.write_json(folder / records.RESULT, {**result, "step": 50})
    assert not study.finished(study.runs[0])
    records.write_json(folder / records.RESULT, result)
    records.write_json(folder / records.SPEC, {**records.read_json(folder / records.SPEC), "eval_every": 7})
    assert not study.finished(study.runs[0])
    assert execute(study, Local(study, 1, OPTIONS), 0, Notes()) == [study.runs[0]]
    assert "with other settings (eval_every)" in tried(study)[-1].end.error[-1]


def test_a_run_that_acc_train_works_on_is_left_to_it(clean, tmp_path):
    study = small_study(tmp_path, variants=["acc"])
    folder = study.folder / study.runs[0].name
    folder.mkdir()
    looks = []

    def look():
        looks.append(study_status(study)[0].state)
        if len(looks) == 3:
            other.__exit__(None, None, None)

    other = exclusive(folder)
    other.__enter__()
    notes = Notes(look)
    assert execute(study, Local(study, 1, OPTIONS), 0, notes) == []
    assert looks[:2] == ["running", "running"]
    assert notes.lines == [(study.runs[0].name, "started"), (study.runs[0].name, "finished")]
    assert digests(study.folder) == of(clean, "_acc_")


def test_files_in_the_current_folder_are_no_modules(tmp_path, monkeypatch):
    (tmp_path / "select.py").write_text("raise SystemExit('taken in')")
    monkeypatch.chdir(tmp_path)
    study = small_study(tmp_path, variants=["acc"])
    assert execute(study, Local(study, 1, OPTIONS), 0, Notes()) == []


def test_a_killed_worker_is_replaced(clean, tmp_path):
    study = small_study(tmp_path, variants=["acc"])
    spec = study.runs[0]

    def kill_once():
        attempts = tried(study)
        if len(attempts) == 1 and alive(attempts[0]) and last_step(study.folder / spec.name) >= 100:
            os.kill(attempts[0].worker["pid"], signal.SIGKILL)

    assert execute(study, Local(study, 2, OPTIONS), 2, Notes(kill_once)) == []
    assert hows(study) == ["failed", "finished"]
    assert tried(study)[0].end.error[-1] == "ended by SIGKILL"
    assert tried(study)[0].end.step >= 100
    assert digests(study.folder) == of(clean, "_acc_")


def test_when_the_parent_is_killed_its_workers_stop_and_the_study_can_go_on(clean, tmp_path):
    study = small_study(tmp_path, variants=["acc"])
    parent = command(write_file(tmp_path / "small.toml"), "--out", tmp_path, "--checkpoint-every", 150)
    wait_for(lambda: last_step(study.folder / study.runs[0].name) >= 100)
    (attempt,) = tried(study)
    os.kill(attempt.worker["pid"], signal.SIGSTOP)  # however fast it is, it does not finish before it looks
    assert alive(attempt)
    assert is_locked(study.folder)
    parent.kill()
    parent.communicate()
    assert not is_locked(study.folder)  # at once
    time.sleep(LEASH)
    os.kill(attempt.worker["pid"], signal.SIGCONT)
    wait_for(lambda: not alive(attempt))
    assert not is_locked(study.folder / study.runs[0].name)
    assert study_status(study)[0].state == "cut off"
    assert execute(study, Local(study, 1, OPTIONS), 2, Notes()) == []
    assert hows(study) == ["lost", "finished"]
    assert digests(study.folder) == of(clean, "_acc_")


def test_signals_stop_all_workers_and_the_same_command_goes_on(clean, tmp_path):
    study = small_study(tmp_path, variants=["acc"])
    folder = study.folder / study.runs[0].name
    parent = command(write_file(tmp_path / "small.toml"), "--out", tmp_path, "--checkpoint-every", 150)
    wait_for(lambda: last_step(folder) >= 100)
    parent.send_signal(signal.SIGINT)
    out, err = parent.communicate(timeout=120)
    assert parent.returncode == 130, err
    assert "Stopped; the same command resumes it" in out
    assert err == ""
    assert hows(study) == ["stopped"]
    assert not alive(tried(study)[0])

    def terminate():
        if "resuming from step" in study.log(study.runs[0]).read_text():
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped, match="stopped by SIGTERM"):
        execute(study, Local(study, 1, OPTIONS), 2, Notes(terminate))
    assert hows(study) == ["stopped", "stopped"]
    assert execute(study, Local(study, 1, OPTIONS), 2, Notes()) == []
    assert study.log(study.runs[0]).read_text().count("resuming from step") == 2
    assert digests(study.folder) == of(clean, "_acc_")


def test_a_hanging_env_is_ended_and_tried_again(toy):
    study = small_study(toy, tasks=["toy_tasks:hang-v0"], variants=["td3"])
    jobs = []

    class Watched(Local):
        def start(self, spec):
            jobs.append(super().start(spec))
            return jobs[-1]

    def impatient():
        if (toy / "hung").exists() and len(jobs) == 1:
            jobs[0].timeout = 0.5

    assert execute(study, Watched(study, 1, OPTIONS), 2, Notes(impatient)) == []
    assert hows(study) == ["failed", "finished"]
    assert tried(study)[0].end.error[-1] == "no progress for 0.5 s: ended"


def test_a_failing_run_is_retried_then_told_and_stops_nothing_else(toy, capsys):
    file = write_file(toy / "a.toml", "toy_tasks:fail-v0", ["td3"])
    assert main(["study", str(file), "--out", str(toy), "--retries", "1"]) == 2
    out, err = capsys.readouterr()
    study = small_study(toy, tasks=["toy_tasks:fail-v0"], variants=["td3"])
    name = study.runs[0].name
    assert err == f"acc: error: 1 runs failed ({name}): see acc study failed {study.folder}\n"
    assert out.count(f"{name}: failed at step 0 of") == 2
    assert hows(study) == ["failed", "failed"]
    assert main(["study", "failed", str(study.folder)]) == 0
    told = capsys.readouterr().out
    assert "RuntimeError: the robot fell over" in told
    assert "2 attempts" in told
    assert str(study.log(study.runs[0])) in told


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("", "ended with exit code 0 and no result, nothing was logged"),
        ("print('done')", "ended with exit code 0 and no result"),
        ("import sys; sys.exit(3)", "ended with exit code 3 and no result, nothing was logged"),  # on a full disk, say
        ("import sys; sys.exit('it broke')", "it broke"),
        ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL"),
    ],
)
def test_a_failure_is_explained(code, last, tmp_path, monkeypatch):
    monkeypatch.setattr("acc_rl.study.worker.MAIN", code)
    study = small_study(tmp_path, variants=["acc"])
    worker = Local(study, 1, OPTIONS).start(study.runs[0])
    wait_for(lambda: worker.process.poll() is not None)
    end = worker.poll()
    assert (end.how, end.step, end.error[-1]) == ("failed", 0, last)


def test_only_failures_in_a_row_without_progress_count():
    def counted(*ends):
        return failed_attempts([End(*end) for end in ends])

    assert counted() == 0
    assert counted(("failed", 0), ("failed", 0), ("failed", 0)) == 3
    assert counted(("failed", 0), ("failed", 100), ("failed", 200)) == 1
    assert counted(("failed", 200), ("failed", 100), ("stopped", 300), ("lost", 0)) == 2


def test_a_row_that_a_crash_has_torn_is_written_again(tmp_path):
    study = small_study(tmp_path, variants=["acc"])
    log = AttemptLog(study)
    log.started(study.runs[0].name, {"host": "a", "pid": 5, "start_time": 7.5})
    with log.rows.path.open("a") as file:
        file.write('{"run": "half')
    log = AttemptLog(study)
    log.started(study.runs[0].name, {"host": "a", "pid": 6, "start_time": 8.5})
    log.ended(study.runs[0].name, {"host": "a", "pid": 6, "start_time": 8.5}, End("failed", 20, ("it broke",)))
    first, second = tried(study)
    assert (first.worker, first.end) == ({"host": "a", "pid": 5, "start_time": 7.5}, End("lost", 0))
    assert (second.worker["pid"], second.end) == (6, End("failed", 20, ("it broke",)))


def test_a_full_disk_stops_no_run(clean, tmp_path, monkeypatch):
    """The rows of attempts and the log of one run cannot be written."""
    study = small_study(tmp_path)
    open_, flush, refused = Path.open, records.Rows.flush, []

    def full(path):
        refused.append(path)
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def open_or_fail(path, *args, **kwargs):
        if path == study.log(study.runs[0]) and refused.count(path) < 2:
            full(path)
        return open_(path, *args, **kwargs)

    def flush_or_fail(rows, sync=False):
        return full(rows.path) if rows.path.name == "attempts.jsonl" else flush(rows, sync)

    monkeypatch.setattr(Path, "open", open_or_fail)
    monkeypatch.setattr(records.Rows, "flush", flush_or_fail)
    with pytest.warns(UserWarning, match="No space left") as warned:
        assert execute(study, Local(study, 2, OPTIONS), 0, Notes()) == []
    messages = {str(each.message) for each in warned}
    for path in (study.folder / "attempts.jsonl", study.log(study.runs[0])):
        assert any(str(path) in each for each in messages)
    assert digests(study.folder) == digests(clean.folder)


def test_one_supervisor_per_study(tmp_path, capsys):
    study = small_study(tmp_path, variants=["acc"], seeds=3)
    words = ["study", str(write_file(tmp_path / "small.toml", seeds=3)), "--out", str(tmp_path)]
    for mine, other, message in (
        ((), (), "it holds .lock)"),
        (("--part", "1/1"), (3, 16), "it holds .lock-3-of-16)"),
        (("--part", "2/3"), (), "it holds .lock)"),
        (("--part", "3/16"), (3, 16), "it holds .lock-3-of-16)"),
        (("--part", "3/8"), (3, 16), "it holds .lock-3-of-16)"),
    ):
        with supervised(study.folder, Part(*other)):
            assert main([*words, *mine]) == 2
        err = capsys.readouterr().err
        assert f"another acc study is at work in {study.folder}" in err
        assert message in err
        assert err.count("\n") == 1
    assert tried(study) == []
    with supervised(study.folder, Part(3, 16)), supervised(study.folder, Part(4, 16)):
        pass


def test_a_supervisor_whose_lock_is_removed_ends_with_its_workers(tmp_path):
    study = small_study(tmp_path, variants=["acc"])

    def remove():
        if last_step(study.folder / study.runs[0].name) >= 100:
            (study.folder / LOCK).unlink(missing_ok=True)

    notes = Notes(remove)
    with supervised(study.folder), pytest.raises(LockLost, match="was removed or replaced"):
        execute(study, Local(study, 1, OPTIONS), 0, notes)
    assert not is_locked(study.folder / study.runs[0].name)


def torture(tmp_path, clean_folder, parts, seeds, kills, seed=0):
    """The parts of a study at the same time, some supervisors and workers killed at random moments"""
    rng = random.Random(seed)
    variants = ["acc", "td3"]
    study = small_study(tmp_path, variants=variants, seeds=seeds)
    file = write_file(tmp_path / "small.toml", variants=variants, seeds=seeds)

    def start(number):
        part = ("--part", f"{number}/{parts}", "--workers", 1)
        return command(file, "--out", tmp_path, "--checkpoint-every", 150, "--retries", 100, *part)

    parents = [start(number + 1) for number in range(parts)]
    while any(parent.poll() is None for parent in parents):
        time.sleep(rng.uniform(0.5, 3))
        at_work = [parent for parent in parents if parent.poll() is None]
        running = [attempts[-1] for attempts in read_attempts(study.folder).values()]
        workers = [each.worker["pid"] for each in running if alive(each)]
        if kills and at_work and workers:
            kills -= 1
            if rng.random() < 0.3:
                victim = rng.choice(at_work)
                victim.kill()
                victim.communicate()
                number = parents.index(victim)
                parents[number] = start(number + 1)
            else:
                os.kill(rng.choice(workers), signal.SIGKILL)
    for parent in parents:
        _, err = parent.communicate()
        assert parent.returncode == 0, err
    assert kills == 0
    for spec in study.runs:
        assert study.finished(spec)
        assert hows(study, spec).count("finished") <= 1  # 0 if it was killed after its last write
        assert "finished" not in hows(study, spec)[:-1]
    assert digests(study.folder) == digests(clean_folder)


def test_parts_at_the_same_time_and_random_kills(clean, tmp_path):
    torture(tmp_path, clean.folder, parts=2, seeds=1, kills=3)


@pytest.mark.slow
def test_eight_parts_and_many_random_kills(tmp_path):
    clean = small_study(tmp_path / "clean", seeds=6)
    assert execute(clean, Local(clean, 2, OPTIONS), 2, Notes()) == []
    torture(tmp_path, clean.folder, parts=8, seeds=6, kills=40)
