"""Runs the runs of a study that are not finished: here, or wherever an executor starts them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

from acc_rl.runs.interrupt import PATIENCE, Stopped
from acc_rl.runs.spec import RunSpec
from acc_rl.store.lock import LockLost, is_locked
from acc_rl.study.attempts import AttemptLog, End, How, Identity, failed_attempts
from acc_rl.study.folder import Study
from acc_rl.study.worker import Options, Worker

DEFAULT = Options()
LOOK = 1.0
"""seconds between two looks at what could be started"""


class Job(Protocol):
    """A run that has been started."""

    @property
    def identity(self) -> Identity: ...

    def poll(self) -> End | None:
        """How it ended, None before; to be called several times per second"""

    def stop(self) -> None:
        """Ask it to write a checkpoint and end"""

    def kill(self, reason: str) -> None: ...


class Executor(Protocol):
    """Where runs are done."""

    @property
    def workers(self) -> int:
        """Runs at the same time, at most"""

    def start(self, spec: RunSpec) -> Job: ...


class Show(Protocol):
    """Reports what happens."""

    def started(self, spec: RunSpec) -> None: ...

    def ended(self, spec: RunSpec, how: How) -> None: ...

    def refresh(self) -> None: ...


class Local:
    """Processes of this machine."""

    def __init__(self, study: Study, workers: int, options: Options = DEFAULT) -> None:
        self.study, self.workers, self.options = study, workers, options

    def start(self, spec: RunSpec) -> Worker:
        return Worker(self.study, spec, self.options)


def cores() -> int:
    """That this process may use"""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def execute(study: Study, executor: Executor, retries: int, show: Show) -> list[RunSpec]:
    """Until every run is finished or given up; those that were given up. Stopped once all workers have ended."""
    jobs = _Jobs(study, show)
    failed: list[RunSpec] = []
    todo = {spec.name: spec for spec in study.runs}
    looked = -LOOK
    with _sigterm_interrupts():
        try:
            while True:
                changed = jobs.collect()
                full = len(jobs.started) >= executor.workers
                if changed or time.monotonic() - looked >= (10 * LOOK if full else LOOK):
                    looked = time.monotonic()
                    for name, spec in list(todo.items()):
                        if name in jobs.started:
                            continue
                        if study.finished(spec):
                            del todo[name]
                        elif failed_attempts(jobs.log.ends[name]) > retries:
                            failed.append(todo.pop(name))
                        elif len(jobs.started) < executor.workers:
                            jobs.start(executor, spec)
                    if not todo:
                        return failed
                show.refresh()
                time.sleep(0.1)
        except KeyboardInterrupt as interrupt:
            jobs.stop()
            raise interrupt if isinstance(interrupt, Stopped) else Stopped(signal.SIGINT) from None
        except BaseException:
            jobs.stop()
            raise


class _Jobs:
    """The runs under way, and the record of attempts."""

    def __init__(self, study: Study, show: Show) -> None:
        self.study, self.show, self.log = study, show, AttemptLog(study)
        self.started: dict[str, tuple[RunSpec, Job]] = {}

    def start(self, executor: Executor, spec: RunSpec) -> None:
        """Unless another process trains there: acc train, or a worker whose supervisor is gone"""
        if is_locked(self.study.folder / spec.name):
            return
        try:
            job = executor.start(spec)
        except OSError as error:  # a full disk, say: the others go on, and this one is tried again
            warnings.warn(f"{spec.name} cannot be started yet: {error}", stacklevel=2)
            return
        self.started[spec.name] = spec, job
        self.log.started(spec.name, job.identity)
        self.show.started(spec)

    def collect(self) -> bool:
        """Whether one has ended"""
        before = len(self.started)
        for name, (spec, job) in list(self.started.items()):
            end = job.poll()
            if end is not None:
                del self.started[name]
                self.log.ended(name, job.identity, end)
                self.show.ended(spec, end.how)
        return len(self.started) < before

    def stop(self) -> None:
        """Let all write their checkpoints; a later Ctrl-C does not wait for them."""
        begun = time.monotonic()
        while self.started:
            try:
                for _, job in self.started.values():
                    job.stop()
                with contextlib.suppress(LockLost):  # the reason to stop
                    self.collect()
                time.sleep(0.05)
            except KeyboardInterrupt:
                if time.monotonic() - begun > PATIENCE:
                    for _, job in self.started.values():
                        job.kill("interrupted")


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Stopped(number)

    if threading.current_thread() is not threading.main_thread():  # where Python allows no handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
