"""One attempt at a run, in a process of its own.

The worker trains, and holds the lock of the run's folder until it ends. The supervisor (this machine's study, or a Ray
task) watches it; when the supervisor is gone, the worker stops as on SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from acc_rl.runs.interrupt import Stopped, StopRequest
from acc_rl.runs.spec import RunSpec, from_dict
from acc_rl.store import records
from acc_rl.study.attempts import End, How
from acc_rl.study.folder import Study, last_step

TAIL = 12
"""lines of a log that explain an error"""
LEASH = 0.5
"""seconds between two looks of a worker at its supervisor"""
GRACE = 60.0
"""seconds that a worker without a supervisor has for its last checkpoint: its env may hang"""
EXIT_ORPHANED = 76
# without the current folder, whose files are nobody's modules
MAIN = f"import sys; sys.path[:] = filter(None, sys.path); from {__name__} import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True)
class Options:
    """How runs are done, which does not change what comes out."""

    timeout: float = 600.0
    """seconds without progress after which a run is ended"""
    checkpoint_every: int = 10_000
    """env steps between two checkpoints"""


class Worker:
    """The supervisor's side."""

    def __init__(self, study: Study, spec: RunSpec, options: Options) -> None:
        self.study, self.spec, self.timeout = study, spec, options.timeout
        self.log = study.log(spec)
        self.stopping = False
        self.reason: str | None = None
        with self.log.open("ab") as log:
            self.start = log.tell()
            threads = str(max(1, spec.threads))
            about = [json.dumps(spec.as_dict()), str(options.checkpoint_every), str(os.getpid())]
            self.process = subprocess.Popen(
                [sys.executable, "-c", MAIN, study.folder, *about],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
                start_new_session=True,  # Ctrl-C is the supervisor's
            )
        pid = self.process.pid
        self.identity = {"host": socket.gethostname(), "pid": pid, "start_time": psutil.Process(pid).create_time()}
        self.seen: tuple[Any, ...] = ()
        self.moved = time.monotonic()

    def poll(self) -> End | None:
        """End what hangs; how the attempt ended, once it has"""
        code = self.process.poll()
        if code is not None:
            return self._end(code)
        seen = _activity(self.study.folder / self.spec.name, self.log)
        if seen != self.seen:
            self.seen, self.moved = seen, time.monotonic()
        elif time.monotonic() - self.moved > self.timeout:
            self.kill(f"no progress for {self.timeout:g} s: ended")
        return None

    def stop(self) -> None:
        """Let it write a checkpoint and end"""
        if not self.stopping:
            self.stopping = True
            self.process.terminate()

    def kill(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            self.process.kill()

    def _end(self, code: int) -> End:
        how: How = "failed"
        if code == 0 and self.study.finished(self.spec):
            how = "finished"
        elif self.reason is None and code in (130, 143, -signal.SIGINT, -signal.SIGTERM):
            how = "stopped"
        error = []
        if how == "failed":
            error = tail(self.log, self.start)
            if code < 0:
                error.append(self.reason or f"ended by {signal.Signals(-code).name}")
            elif code == 0 or not error:
                error.append(f"ended with exit code {code} and no result" + ("" if error else ", nothing was logged"))
        return End(how, last_step(self.study.folder / self.spec.name), tuple(error))


def tail(log: Path, start: int = 0) -> list[str]:
    """The last lines of what was logged from ``start``"""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - 200 * TAIL))
            return file.read().decode(errors="replace").splitlines()[-TAIL:]
    except OSError as error:
        return [f"{log}: {error.strerror}"]


def _activity(folder: Path, log: Path) -> tuple[Any, ...]:
    """Changes whenever the run gets further"""
    paths = [log, *(folder / name for name in (records.TRAINING, records.EVALUATIONS, records.VALUE_ERROR))]
    return tuple(_stamp(path) for path in [*paths, folder / records.CHECKPOINTS])


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return (0, 0)
    return (stat.st_size, stat.st_mtime_ns)


def leash(supervisor: int) -> None:
    """End this process when its supervisor is gone: with a checkpoint if it can, without one if it hangs"""
    # psutil knows a process by its id and start time: a later one with the same id is another
    parent = psutil.Process().parent()
    while parent is not None and parent.pid == supervisor and _is_alive(parent):
        time.sleep(LEASH)
    StopRequest.ask()
    time.sleep(GRACE)
    os._exit(EXIT_ORPHANED)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def work(folder: Path, content: Mapping[str, Any], checkpoint_every: int) -> int:
    """Train; the exit code"""
    from rich.console import Console

    from acc_rl.runs.train import train

    try:
        train(from_dict(content), folder, checkpoint_every=checkpoint_every, console=Console(width=200))
    except Stopped as stopped:
        return stopped.exit_code
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main(arguments: Sequence[str]) -> int:
    folder, content, every, supervisor = arguments
    threading.Thread(target=leash, args=(int(supervisor),), daemon=True).start()
    return work(Path(folder), json.loads(content), int(every))
