"""Who may be in a run's folder."""

import fcntl
import threading

from acc_rl.store.lock import LOCK, alone, taken


def test_one_at_a_time(tmp_path):
    assert not taken(tmp_path)
    with alone(tmp_path) as first:
        assert first
        assert taken(tmp_path)
        with alone(tmp_path) as second:
            assert not second
    assert not taken(tmp_path)


def test_somebody_who_only_looks_keeps_nobody_out(tmp_path):
    (tmp_path / LOCK).touch()
    with (tmp_path / LOCK).open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not taken(tmp_path)
        leaves = threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN))
        leaves.start()
        with alone(tmp_path) as free:
            assert free
        leaves.join()
