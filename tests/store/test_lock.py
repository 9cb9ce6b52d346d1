"""Who may be in a folder."""

import os
import subprocess
import sys
import threading

import pytest

from acc_rl.store import records
from acc_rl.store.lock import LOCK, LockLost, exclusive, is_locked

HOLDER = """
import sys
from pathlib import Path
from acc_rl.store.lock import exclusive
with exclusive(Path(sys.argv[1])) as free:
    print(free, flush=True)
    sys.stdin.read()
"""


def holder(folder):
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_one_at_a_time(tmp_path):
    assert not is_locked(tmp_path)
    with exclusive(tmp_path) as first:
        assert first
        assert is_locked(tmp_path)
        assert not is_locked(tmp_path, ".lock-2-of-3")
        with exclusive(tmp_path, wait=0.05) as second:
            assert not second
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    with exclusive(tmp_path) as again:
        assert again


def test_a_folder_without_a_lock_is_only_looked_at(tmp_path):
    assert not is_locked(tmp_path)
    assert not is_locked(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_death_frees_the_lock(tmp_path):
    with holder(tmp_path) as process:
        assert process.stdout.readline() == "True\n"
        assert is_locked(tmp_path)
        assert holder(tmp_path).communicate()[0] == "False\n"
        process.kill()
    assert not is_locked(tmp_path)
    with exclusive(tmp_path) as free:
        assert free


def test_the_lock_of_another_user_can_be_looked_at(tmp_path, monkeypatch):
    def refuse(lock, wait):
        raise PermissionError

    with exclusive(tmp_path), monkeypatch.context() as patch:
        patch.setattr("acc_rl.store.lock._acquired", refuse)
        assert is_locked(tmp_path)
    monkeypatch.setattr("acc_rl.store.lock._acquired", refuse)
    assert not is_locked(tmp_path)


def test_those_that_look_keep_nobody_out(tmp_path):
    over = threading.Event()

    def look():
        while not over.is_set():
            is_locked(tmp_path)

    (tmp_path / LOCK).touch()
    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    for _ in range(20):
        with exclusive(tmp_path) as free:
            assert free
    over.set()
    for looker in lookers:
        looker.join()


@pytest.mark.parametrize("what", ["lock", "folder", "both replaced"])
def test_nothing_is_written_once_the_lock_is_gone(what, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with exclusive(folder):
        records.write_json(folder / "a.json", {})
        rows = records.Rows(folder / "rows.jsonl")
        rows.append({"step": 1})
        if what == "lock":
            (folder / LOCK).unlink()
        else:
            os.rename(folder, tmp_path / "aside")
        if what == "both replaced":
            folder.mkdir()
            (folder / LOCK).touch()
        for write in (lambda: records.write_json(folder / "b.json", {}), lambda: rows.append({"step": 2})):
            with pytest.raises(LockLost, match="was removed or replaced") as lost:
                write()
            assert str(folder / LOCK) in str(lost.value)
        assert not (folder / "b.json").exists()
    records.write_json(tmp_path / "c.json", {})  # elsewhere, and once we are out of it
