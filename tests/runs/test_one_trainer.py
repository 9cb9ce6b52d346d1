"""One process trains in a run's folder, also where there is no fcntl."""

import subprocess
import sys

import pytest
from kit import run, tiny

from acc_rl.runs.callbacks import LogCallback
from acc_rl.runs.train import RunExists
from acc_rl.store import records
from acc_rl.store.lock import LOCK, LockLost, exclusive


def at_first_log(monkeypatch, do):
    original = LogCallback._on_step

    def step(self):
        if self.num_timesteps == 250:
            do()
        return original(self)

    monkeypatch.setattr(LogCallback, "_on_step", step)


def test_a_second_trainer_is_refused(tmp_path):
    folder = tmp_path / tiny().name
    folder.mkdir()
    with exclusive(folder), pytest.raises(RunExists, match="another process is training in"):
        run(tiny(), tmp_path)


def test_a_trainer_whose_lock_is_removed_stops(tmp_path, monkeypatch):
    folder = tmp_path / tiny().name
    at_first_log(monkeypatch, lambda: (folder / LOCK).unlink())
    with pytest.raises(LockLost, match=r"\.lock was removed or replaced"):
        run(tiny(), tmp_path)
    monkeypatch.undo()
    assert sorted(path.name for path in (folder / records.CHECKPOINTS).glob("step-*"))[-1] == "step-000000000200"
    assert run(tiny(), tmp_path) == folder  # and can be resumed


def test_a_trainer_whose_folder_is_removed_does_not_write_into_the_next_one(tmp_path, monkeypatch):
    folder = tmp_path / tiny().name

    def another_comes_in():
        folder.rename(tmp_path / "aside")
        folder.mkdir()
        entered.enter_context(exclusive(folder))

    from contextlib import ExitStack

    with ExitStack() as entered:
        at_first_log(monkeypatch, another_comes_in)
        with pytest.raises(LockLost):
            run(tiny(), tmp_path)
        assert [path.name for path in folder.iterdir()] == [LOCK]


WITHOUT_FCNTL = """
import sys, warnings
from pathlib import Path
sys.modules["fcntl"] = None
warnings.filterwarnings("error")
warnings.filterwarnings("ignore", message="only soft file lock is available")
warnings.filterwarnings("ignore", category=DeprecationWarning)
sys.path.insert(0, sys.argv[2])
from kit import run, tiny
import acc_rl
from acc_rl.store.lock import exclusive, is_locked
import acc_rl.study.executors, acc_rl.commands.study
out = Path(sys.argv[1])
folder = run(tiny(), out)
assert (folder / "result.json").exists()
with exclusive(folder) as first, exclusive(folder, wait=0.05) as second:
    assert (first, second) == (True, False)
    assert is_locked(folder)
assert not is_locked(folder)
"""


def test_training_where_there_is_no_fcntl(tmp_path):
    """As on Windows."""
    here = __file__.rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FCNTL, tmp_path, here], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
