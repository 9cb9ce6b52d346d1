"""The runs of a study as tasks of a Ray cluster whose nodes share the study's folder.

A task supervises the same worker process that a local study starts, so that results are the same bit for bit. If a
node is lost, its runs resume from their last checkpoint on another one.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from acc_rl.core.errors import AccError, needs
from acc_rl.runs.spec import RunSpec, from_dict
from acc_rl.store.lock import is_locked
from acc_rl.study.attempts import End, How, Identity
from acc_rl.study.folder import Study, last_step
from acc_rl.study.worker import Options, Worker

COUNT = 5.0
"""seconds between two looks at how many cores the cluster has"""


@contextmanager
def connected(address: str) -> Iterator[None]:
    """To the cluster at HOST:PORT, to the one that this machine belongs to (auto), or to a new one here (local)."""
    with needs("ray", "--ray needs Ray"):
        import ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    temporary = tempfile.mkdtemp(prefix="acc_ray_") if address == "local" else None
    if temporary is not None:
        # nobody else shall reach it
        options |= {"_node_ip_address": "127.0.0.1", "include_dashboard": False, "_temp_dir": temporary}
    else:
        # Ray would try a wrong address for a quarter of an hour
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
        _reach(address)
    try:
        try:
            ray.init(address, **options)
        except (OSError, RuntimeError, ValueError) as error:
            raise AccError(f"no Ray cluster at {address}: {' '.join(str(error).split())}") from None
        yield
    finally:
        ray.shutdown()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _reach(address: str) -> None:
    """Whether somebody listens there: Ray itself takes most of a minute to find out"""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise AccError(f"no Ray cluster at {address}: {error.strerror or error}") from None


class OnRay:
    """``workers`` None: as many runs as the cluster has cores for, also when nodes come and go."""

    def __init__(self, study: Study, workers: int | None, options: Options) -> None:
        import ray

        # a node's current folder is its own
        self.study = replace(study, folder=study.folder.resolve())
        self.options = options
        # retried by us: an attempt counts, and starts once nobody is in the run's folder
        self.task = ray.remote(max_retries=0, scheduling_strategy="SPREAD")(supervise)
        self._workers, self._counted = workers, -COUNT
        self._fixed = workers is not None

    @property
    def workers(self) -> int:
        import ray

        if not self._fixed and time.monotonic() - self._counted > COUNT:
            self._counted = time.monotonic()
            threads = max([1, *(spec.threads for spec in self.study.runs)])
            self._workers = max(1, int(ray.cluster_resources().get("CPU", 0)) // threads)
        assert self._workers is not None
        return self._workers

    def start(self, spec: RunSpec) -> RayJob:
        where = (str(self.study.folder), spec.as_dict(), self.options, os.environ.get("PYTHONPATH"))
        task = self.task.options(num_cpus=max(1, spec.threads)).remote(*where)
        return RayJob(self.study.folder / spec.name, task)


def supervise(folder: str, content: dict[str, Any], options: Options, python_path: str | None) -> tuple[Identity, End]:
    """On a node: one attempt at a run"""
    if python_path is not None:
        os.environ["PYTHONPATH"] = python_path
    spec = from_dict(content)
    worker = Worker(Study(Path(folder), "", "", 1.0, (spec,)), spec, options)
    while True:
        try:
            end = worker.poll()
            if end is not None:
                return worker.identity, end
            time.sleep(0.1)
        except KeyboardInterrupt:  # the driver's cancel
            worker.stop()


class RayJob:
    def __init__(self, folder: Path, task: Any) -> None:
        self.folder, self.task = folder, task
        self.stopping = False
        self.identity: Identity = {}
        """known when it has ended"""

    def poll(self) -> End | None:
        import ray
        from ray.exceptions import OutOfMemoryError, RayError, RayTaskError, TaskCancelledError

        ready, _ = ray.wait([self.task], timeout=0)
        if not ready:
            return None
        try:
            done: tuple[Identity, End] = ray.get(self.task)
            self.identity = done[0]
            return done[1]
        except TaskCancelledError:
            # cancelled tasks are reported at once; the worker may still be writing its checkpoint
            return None if is_locked(self.folder) else self._end("stopped")
        except (RayTaskError, OutOfMemoryError) as error:  # of the node, not of the run: an attempt nevertheless
            return self._end("failed", *str(error).splitlines()[-12:])
        except RayError:  # the node is gone
            return self._end("lost")

    def _end(self, how: How, *error: str) -> End:
        return End(how, last_step(self.folder), error)

    def stop(self) -> None:
        import ray

        if not self.stopping:
            self.stopping = True
            ray.cancel(self.task)

    def kill(self, reason: str) -> None:
        import ray

        ray.cancel(self.task, force=True)
