"""Runs the runs of a study that are not finished: here, or wherever an executor starts them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from acc_rl.runs.interrupt import PATIENCE, Stopped
from acc_rl.runs.spec import RunSpec
from acc_rl.store.lock import taken
from acc_rl.study.folder import LEASES, Study
from acc_rl.study.leases import Attempt, How, Watch, attempts, clock, last
from acc_rl.study.worker import Options, Worker

DEFAULT = Options()
LOOK = 1.0
"""seconds between two looks at what could be started"""


class Job(Protocol):
    """A run that has been started."""

    def poll(self) -> How | None:
        """How it ended, None before; to be called several times per second"""

    def stop(self) -> None:
        """Ask it to write a checkpoint and end"""

    def kill(self, reason: str) -> None: ...


class Executor(Protocol):
    """Where runs are done."""

    @property
    def workers(self) -> int:
        """Runs at the same time, at most"""

    def start(self, spec: RunSpec) -> Job | None:
        """None if another process has the run"""


class Show(Protocol):
    """Who is told what happens."""

    def started(self, spec: RunSpec) -> None: ...

    def ended(self, spec: RunSpec, how: How) -> None: ...

    def refresh(self) -> None: ...


class Local:
    """Processes of this machine."""

    def __init__(self, study: Study, workers: int, options: Options = DEFAULT) -> None:
        self.study, self._workers, self.options = study, workers, options
        self.watch = Watch(study.folder / LEASES)

    @property
    def workers(self) -> int:
        return self._workers

    def start(self, spec: RunSpec) -> Worker | None:
        if taken(self.study.folder / spec.name):  # by acc train
            return None
        lease = self.watch.take(spec.name)
        if lease is None:
            return None
        if self.study.finished(spec):  # since we last looked
            lease.end("idle")
            return None
        return Worker(self.study, spec, lease, self.options)


def cores() -> int:
    """That this process may use"""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Failures:
    """Counts attempts since this command began that failed without getting further, whoever made them."""

    study: Study
    retries: int

    def __post_init__(self) -> None:
        holders = {spec.name: last(self.study.leases(spec)) for spec in self.study.runs}
        # an attempt that others have under way counts too
        self.first = {name: 1 if holder is None else holder.number + holder.dead for name, holder in holders.items()}

    def given_up(self, spec: RunSpec) -> bool:
        ours = [each for each in attempts(self.study.leases(spec)) if each.number >= self.first[spec.name]]
        return in_vain(ours) > self.retries


def in_vain(tried: list[Attempt]) -> int:
    """Failed attempts since one got further"""
    count, furthest = 0, -1
    for attempt in tried:
        end = attempt.end or {}
        if end.get("how") == "failed":
            step = int(end.get("step", 0))
            count = 1 if step > furthest else count + 1
            furthest = max(furthest, step)
    return count


def execute(study: Study, executor: Executor, retries: int, show: Show) -> list[RunSpec]:
    """Until every run is finished or given up; those that were given up. Stopped once all workers have ended."""
    failures = Failures(study, retries)
    jobs: dict[str, tuple[RunSpec, Job]] = {}
    failed: dict[str, RunSpec] = {}
    todo = {spec.name: spec for spec in study.runs}
    looked = -LOOK
    with _sigterm_interrupts():
        try:
            while True:
                changed = _collect(jobs, show)
                full = len(jobs) >= executor.workers
                if changed or clock() - looked >= (10 * LOOK if full else LOOK):
                    looked = clock()
                    for name, spec in list(todo.items()):
                        if name in jobs:
                            continue
                        if study.finished(spec):
                            del todo[name]
                        elif failures.given_up(spec):
                            failed[name] = todo.pop(name)
                        elif len(jobs) < executor.workers and (job := executor.start(spec)):
                            jobs[name] = spec, job
                            show.started(spec)
                    if not todo:
                        return list(failed.values())
                show.refresh()
                time.sleep(0.1)
        except KeyboardInterrupt as interrupt:
            _stop(jobs, show)
            raise interrupt if isinstance(interrupt, Stopped) else Stopped(signal.SIGINT) from None
        except BaseException:
            _stop(jobs, show)
            raise


def _collect(jobs: dict[str, tuple[RunSpec, Job]], show: Show) -> bool:
    changed = False
    for name, (spec, job) in list(jobs.items()):
        how = job.poll()
        if how is not None:
            del jobs[name]
            show.ended(spec, how)
            changed = True
    return changed


def _stop(jobs: dict[str, tuple[RunSpec, Job]], show: Show) -> None:
    """Let all write their checkpoints; a later Ctrl-C does not wait for them."""
    begun = clock()
    while jobs:
        try:
            for _, job in jobs.values():
                job.stop()
            _collect(jobs, show)
            time.sleep(0.05)
        except KeyboardInterrupt:
            if clock() - begun > PATIENCE:
                for _, job in jobs.values():
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
