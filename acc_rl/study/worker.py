"""One attempt at a run, in a process of its own.

The supervisor (this machine's study, or a Ray task) holds the lease and shows signs of life; the worker trains. The
worker hears of each sign through a pipe. Without one for ``LOST`` seconds it may not write any more, and when the pipe
closes, because the supervisor is gone, it stops as on SIGTERM.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acc_rl.runs.interrupt import Stopped, StopRequest
from acc_rl.runs.spec import RunSpec, from_dict
from acc_rl.store import files, records
from acc_rl.study.folder import Study
from acc_rl.study.leases import BEAT, LOST, How, Lease, clock
from acc_rl.study.status import last_step

TAIL = 12
"""lines of a log that tell an error"""
STAMP = struct.Struct("d")
EXIT_LOST = 76
# without the current folder, whose files are nobody's modules
MAIN = f"import sys; sys.path[:] = filter(None, sys.path); from {__name__} import main; sys.exit(main(sys.argv[1:]))"
TAKEN = "another process has taken the run over"


@dataclass(frozen=True)
class Options:
    """How runs are done, which does not change what comes out."""

    timeout: float = 600.0
    """seconds without progress after which a run is ended"""
    checkpoint_every: int = 10_000
    """env steps between two checkpoints"""


class Worker:
    """The supervisor's side."""

    def __init__(self, study: Study, spec: RunSpec, lease: Lease, options: Options) -> None:
        self.study, self.spec, self.lease, self.timeout = study, spec, lease, options.timeout
        self.log = study.log(spec)
        self.stopping = False
        self.reason: str | None = None
        with self.log.open("ab") as log:
            self.start = log.tell()
            threads, every = str(max(1, spec.threads)), str(options.checkpoint_every)
            self.process = subprocess.Popen(
                [sys.executable, "-c", MAIN, study.folder, lease.path, json.dumps(spec.as_dict()), every],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
                start_new_session=True,  # Ctrl-C is the supervisor's
            )
        assert self.process.stdin is not None
        self.pipe = self.process.stdin
        os.set_blocking(self.pipe.fileno(), False)
        self.seen: tuple[Any, ...] = ()
        self.moved = clock()
        # in a thread, because whoever polls may have to wait for a slow disk
        self.over = threading.Event()
        self.heart = threading.Thread(target=self._show_life, daemon=True)
        self.heart.start()

    def poll(self) -> How | None:
        """End what hangs; how the attempt ended, once it has"""
        code = self.process.poll()
        if code is not None:
            return self._ended(code)
        seen = _activity(self.study.folder / self.spec.name, self.log)
        if seen != self.seen:
            self.seen, self.moved = seen, clock()
        elif clock() - self.moved > self.timeout:
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

    def _show_life(self) -> None:
        while self.lease.beat():
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(self.pipe.fileno(), STAMP.pack(self.lease.beaten))
            if self.over.wait(BEAT / 3):
                return
        self.kill(TAKEN)

    def _ended(self, code: int) -> How:
        self.over.set()
        self.heart.join()
        self.pipe.close()
        how: How = "failed"
        if code == 0 and self.study.finished(self.spec):
            how = "finished"
        elif self.reason is None and code in (130, 143, -signal.SIGINT, -signal.SIGTERM):
            how = "stopped"
        elif code == EXIT_LOST or self.reason == TAKEN:
            how = "lost"
        error = []
        if how == "failed":
            error = tail(self.log, self.start)
            if code < 0:
                error.append(self.reason or f"ended by {signal.Signals(-code).name}")
            elif code == 0:
                error.append("ended without a result")
        self.lease.end(how, step=last_step(self.study.folder / self.spec.name), error=error)
        return how


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


class Leash:
    """The worker's side of the pipe."""

    def __init__(self, pipe: int, on_end: Callable[[], object]) -> None:
        self.pipe, self.on_end = pipe, on_end
        self.heard = clock()
        self._lock = threading.Lock()
        os.set_blocking(pipe, False)

    def watch(self) -> None:
        """Until the supervisor is gone"""
        import select

        while True:
            select.select([self.pipe], [], [])
            if not self._drain():
                self.on_end()
                return

    def require(self) -> None:
        """End this process at once, with nothing cleaned up or written, if the run may be another's by now"""
        self._drain()
        if clock() - self.heard > LOST:
            print(f"no sign of life from the supervisor for {LOST:g} s: not writing any more", flush=True)
            os._exit(EXIT_LOST)

    def _drain(self) -> bool:
        with self._lock:
            try:
                while stamps := os.read(self.pipe, 4096):
                    self.heard = max(self.heard, STAMP.unpack(stamps[-STAMP.size :])[0])
            except BlockingIOError:
                return True
        return False


def work(folder: Path, lease: Lease, content: Mapping[str, Any], checkpoint_every: int) -> int:
    """Train; the exit code"""
    lease.join()
    if lease.next.exists():  # taken over before we had said that we are here
        return EXIT_LOST
    leash = Leash(sys.stdin.fileno(), StopRequest.ask)
    threading.Thread(target=leash.watch, daemon=True).start()
    files.before_write(leash.require)
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
    folder, lease, content, every = arguments
    return work(Path(folder), Lease(Path(lease)), json.loads(content), int(every))
