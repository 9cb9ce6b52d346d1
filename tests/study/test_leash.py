"""A worker does not outlive its supervisor, even if its env hangs."""

import os
import signal
import subprocess
import sys

import psutil

from acc_rl.study.worker import EXIT_ORPHANED

WORKER = """
import sys, threading, time
from acc_rl.runs.interrupt import StopRequest
from acc_rl.study import worker
worker.GRACE = float(sys.argv[2])
with StopRequest() as stop:
    threading.Thread(target=worker.leash, args=(int(sys.argv[1]),), daemon=True).start()
    print("at work", flush=True)
    while sys.argv[3] == "hangs" or stop.signal is None:
        time.sleep(0.05)
    stop.raise_if_asked()
"""


def worker(supervisor, grace, how):
    words = [sys.executable, "-c", WORKER, str(supervisor), str(grace), how]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_is_asked_to_stop_and_ended_if_it_hangs():
    """The process that started it is not its supervisor: that one was gone before it looked."""
    gone = 2**22 + 1
    out, err = worker(gone, 60, "listens").communicate(timeout=50)
    assert (out, "Stopped: stopped by SIGTERM" in err) == ("at work\n", True)
    with worker(gone, 0.2, "hangs") as process:
        assert process.wait(timeout=60) == EXIT_ORPHANED


def test_it_works_while_its_supervisor_lives():
    with worker(os.getpid(), 0, "hangs") as process:
        assert process.stdout.readline() == "at work\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=60) == -signal.SIGKILL


SUPERVISOR = """
import os, subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid()), "0", "hangs"], stdout=subprocess.PIPE)
worker.stdout.readline()
print(worker.pid, flush=True)
os._exit(0)
"""


def test_a_supervisor_that_nobody_has_reaped_is_gone():
    """A zombie has an id too."""
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR, WORKER], stdout=subprocess.PIPE) as supervisor:
        pid = int(supervisor.stdout.readline())
        if psutil.pid_exists(pid):
            psutil.Process(pid).wait(timeout=60)
        assert psutil.Process(supervisor.pid).status() == psutil.STATUS_ZOMBIE
