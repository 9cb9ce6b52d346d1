"""Who holds a run: races, stale holders, suspended ones."""

import json
import multiprocessing as mp
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from acc_rl.study import leases
from acc_rl.study.leases import Process, Watch, attempts, last
from acc_rl.study.worker import EXIT_LOST, STAMP, Leash


@pytest.fixture
def time_flies(monkeypatch):
    """Our own clock, which the test moves"""

    class Time:
        now = 1000.0

    monkeypatch.setattr(leases, "clock", lambda: Time.now)
    return Time


def elsewhere(folder, number):
    """The attempt of a machine that we know nothing of"""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:06}.lease"
    path.write_text(json.dumps({"host": "far away", "pid": 1, "born": 5}) + "\n")
    return path


def test_one_holder_at_a_time(tmp_path):
    one, two = Watch(tmp_path), Watch(tmp_path)
    lease = one.take("run")
    assert lease.beat()
    assert two.take("run") is None
    assert one.take("run") is None
    lease.end("stopped", step=5)
    lease.end("failed", step=6)  # what was said first stays
    after = two.take("run")
    assert after.path.name == "000002.lease"
    first, second = attempts(tmp_path / "run")
    assert (first.end, second.end) == ({"how": "stopped", "step": 5}, None)
    assert second.running
    assert not first.running


def test_a_silent_holder_elsewhere_is_followed_after_20_seconds(tmp_path, time_flies):
    path = elsewhere(tmp_path / "run", 1)
    watch = Watch(tmp_path)
    assert watch.take("run") is None
    time_flies.now += 15
    os.utime(path, ns=(5, 5))  # a sign of life, whatever the clock of that machine says
    assert watch.take("run") is None
    time_flies.now += 19
    assert watch.take("run") is None
    time_flies.now += 2
    assert watch.take("run").path.name == "000002.lease"
    assert attempts(tmp_path / "run")[0].end == {"how": "lost"}


def test_what_another_watch_has_seen(tmp_path):
    elsewhere(tmp_path / "run", 1)
    holder = last(tmp_path / "run")
    assert Watch(tmp_path).take("run", (holder.path.name, (holder.sign[0], holder.sign[1] - 1))) is None
    assert Watch(tmp_path).take("run", holder.stale) is not None


def test_a_dead_holder_here_is_followed_at_once(tmp_path):
    code = "import sys, pathlib; from acc_rl.study import leases; leases.Watch(pathlib.Path(sys.argv[1])).take('run')"
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert last(tmp_path / "run").dead
    assert Watch(tmp_path).take("run").path.name == "000002.lease"


def test_half_written_files(tmp_path, time_flies):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "000001.lease").write_text('{"host": "far')
    (tmp_path / "run" / "000001.end").write_text('{"how": ')
    watch = Watch(tmp_path)
    assert watch.take("run") is None
    time_flies.now += 21
    assert watch.take("run") is not None


def test_the_holder_notices_that_it_was_silent_or_followed(tmp_path, time_flies):
    lease = Watch(tmp_path).take("run")
    time_flies.now += 13
    assert lease.beat()
    time_flies.now += 15
    assert not lease.beat()
    other = Watch(tmp_path).take("other")
    elsewhere(tmp_path / "other", 2)
    assert not other.beat()


SLEEPER = """
import sys, time
from pathlib import Path
from acc_rl.study.leases import Lease
Lease(Path(sys.argv[1])).join()
print("joined", flush=True)
time.sleep(600)
"""


def test_a_suspended_worker_is_ended_before_its_run_goes_on(tmp_path):
    path = elsewhere(tmp_path / "run", 1)
    worker = subprocess.Popen([sys.executable, "-c", SLEEPER, path], stdout=subprocess.PIPE)
    assert worker.stdout.readline() == b"joined\n"
    worker.send_signal(signal.SIGSTOP)
    holder = last(tmp_path / "run")
    assert not holder.dead
    assert Watch(tmp_path).take("run", holder.stale) is not None
    assert worker.wait(10) == -signal.SIGKILL
    worker.stdout.close()


def test_who_began_an_attempt_is_never_ended(tmp_path):
    """It may be at work on other runs."""
    sleeper = subprocess.Popen([sys.executable, "-c", SLEEPER, tmp_path / "x"], stdout=subprocess.PIPE)
    sleeper.stdout.readline()
    begun = Process(leases.host(), sleeper.pid, leases.born(sleeper.pid))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "000001.lease").write_text(json.dumps(vars(begun)) + "\n")
    holder = last(tmp_path / "run")
    assert Watch(tmp_path).take("run", holder.stale) is not None
    assert begun.alive
    sleeper.kill()
    sleeper.wait()
    sleeper.stdout.close()
    assert not begun.alive


def test_another_process_with_the_same_id_is_another():
    this = Process.this()
    assert this.alive
    assert not Process(this.host, this.pid, this.born + 1).alive
    assert not Process(this.host, 2**22 + 1, 5).alive


def _racer(folder, ready, go, won, over):
    watch = Watch(Path(folder))
    holder = last(Path(folder) / "run")
    stale = holder.stale
    ready.release()
    go.wait()
    taken = [watch.take("run", stale) for _ in range(50)]
    won.put(len([lease for lease in taken if lease is not None]))
    over.wait()  # the lease of a process that is gone would be free again


@pytest.mark.parametrize("round_", range(5))
def test_only_one_of_many_takes_a_stale_run_over(tmp_path, round_):
    elsewhere(tmp_path / "run", 1)
    context = mp.get_context("fork")
    ready, go, won, over = context.Semaphore(0), context.Event(), context.Queue(), context.Event()
    racers = [context.Process(target=_racer, args=(tmp_path, ready, go, won, over)) for _ in range(8)]
    for racer in racers:
        racer.start()
    for _ in racers:
        ready.acquire()
    go.set()
    wins = [won.get(timeout=60) for _ in racers]
    over.set()
    for racer in racers:
        racer.join()
    assert sum(wins) == 1
    assert len(attempts(tmp_path / "run")) == 2


LEASH = """
import os, sys, time, threading
from acc_rl.study import worker
worker.LOST = 0.3
leash = worker.Leash(sys.stdin.fileno(), lambda: os.write(1, b"alone\\n"))
threading.Thread(target=leash.watch, daemon=True).start()
for _ in range(int(sys.argv[1])):
    leash.require()
    os.write(1, b"written\\n")
    time.sleep(0.05)
"""


def leashed(loops):
    return subprocess.Popen([sys.executable, "-c", LEASH, str(loops)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_worker_without_word_of_its_supervisor_does_not_write():
    with leashed(100_000) as process:
        assert process.stdout.readline() == b"written\n"
        process.stdin.write(STAMP.pack(leases.clock()))
        process.stdin.flush()
        assert process.wait(30) == EXIT_LOST


def test_a_worker_whose_supervisor_is_gone_is_told():
    with leashed(3) as process:
        process.stdin.close()
        process.wait(30)
        assert b"alone\n" in process.stdout.read()


def test_stamps_that_arrived_late_count_from_when_they_were_sent(monkeypatch):
    read, write = os.pipe()
    leash = Leash(read, lambda: None)
    sent = leases.clock() + 5
    os.write(write, STAMP.pack(sent - 1) + STAMP.pack(sent))
    leash.require()
    assert leash.heard == sent
    os.close(write)
    os.close(read)


def test_a_lease_shows_life_when_it_is_due(tmp_path, time_flies):
    lease = Watch(tmp_path).take("run")
    os.utime(lease.path, ns=(5, 5))
    assert lease.beat()
    assert last(tmp_path / "run").sign[1] == 5
    time_flies.now += leases.BEAT
    assert lease.beat()
    assert last(tmp_path / "run").sign[1] > 5
