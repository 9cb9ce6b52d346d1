"""The runs of a study as tasks of a Ray cluster whose nodes share the study's folder.

A task supervises the same worker process that a local study starts, so that results are the same bit for bit. If a
node is lost, its runs go on from their last checkpoint on another one.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from acc_rl.runs.spec import RunSpec, from_dict
from acc_rl.study.folder import LEASES, Study
from acc_rl.study.leases import How, Stale, Watch, clock, last
from acc_rl.study.worker import Options, Worker

COUNT = 5.0
"""seconds between two looks at how many cores the cluster has"""


def connect(address: str) -> None:
    """To the cluster at HOST:PORT, to the one that this machine belongs to (auto), or to a new one here (local)."""
    try:
        import ray
    except ImportError as error:
        raise ValueError(f"--ray needs Ray: pip install 'acc_rl[ray]' ({error})") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == "local":
        # nobody else shall reach it
        options |= {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
        options |= {"_temp_dir": tempfile.mkdtemp(prefix="acc_ray_")}
    else:
        # Ray would try a wrong address for a quarter of an hour
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
        _reach(address)
    try:
        ray.init(address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"no Ray cluster at {address}: {' '.join(str(error).split())}") from None


def _reach(address: str) -> None:
    """Whether somebody listens there: Ray itself takes most of a minute to find out"""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise ValueError(f"no Ray cluster at {address}: {error.strerror or error}") from None


class OnRay:
    """``workers`` None: as many runs as the cluster has cores for, also when nodes come and go."""

    def __init__(self, study: Study, workers: int | None, options: Options) -> None:
        import ray

        # a node's current folder is its own
        self.study = Study(study.folder.resolve(), study.name, study.source, study.scale, study.runs)
        self.options = options
        self.watch = Watch(self.study.folder / LEASES)
        # retried by us: an attempt that goes on must begin with the lease
        self.task = ray.remote(max_retries=0, scheduling_strategy="SPREAD")(supervise)
        self._workers, self._counted = workers, -COUNT
        self._fixed = workers is not None

    @property
    def workers(self) -> int:
        import ray

        if not self._fixed and clock() - self._counted > COUNT:
            self._counted = clock()
            threads = max(1, *(spec.threads for spec in self.study.runs))
            self._workers = max(1, int(ray.cluster_resources().get("CPU", 0)) // threads)
        assert self._workers is not None
        return self._workers

    def start(self, spec: RunSpec) -> RayJob | None:
        holder = last(self.study.leases(spec))
        if not self.watch.free(spec.name, holder):
            return None
        stale = None if holder is None else holder.stale
        where = (str(self.study.folder), spec.as_dict(), stale, self.options, os.environ.get("PYTHONPATH"))
        return RayJob(self, spec, self.task.options(num_cpus=max(1, spec.threads)).remote(*where))


def supervise(
    folder: str, content: dict[str, Any], stale: Stale | None, options: Options, python_path: str | None
) -> How:
    """On a node: one attempt at a run; ``stale`` is the holder that the driver has watched long enough."""
    if python_path is not None:
        os.environ["PYTHONPATH"] = python_path
    spec = from_dict(content)
    study = Study(Path(folder), "", "", 1.0, (spec,))
    lease = Watch(study.folder / LEASES).take(spec.name, stale)
    if lease is None:
        return "idle"
    if study.finished(spec):
        lease.end("idle")
        return "idle"
    worker = Worker(study, spec, lease, options)
    while True:
        try:
            how = worker.poll()
            if how is not None:
                return how
            time.sleep(0.1)
        except KeyboardInterrupt:  # the driver's cancel
            worker.stop()


class RayJob:
    def __init__(self, executor: OnRay, spec: RunSpec, task: Any) -> None:
        self.executor, self.spec, self.task = executor, spec, task
        self.stopping = False

    def poll(self) -> How | None:
        import ray
        from ray.exceptions import OutOfMemoryError, RayError, RayTaskError, TaskCancelledError

        ready, _ = ray.wait([self.task], timeout=0)
        if not ready:
            return None
        try:
            how: How = ray.get(self.task)
            return how
        except TaskCancelledError:
            # cancelled tasks are reported at once; the worker may still be writing its checkpoint
            holder = last(self.executor.study.leases(self.spec))
            return "stopped" if holder is None or not holder.running else None
        except (RayTaskError, OutOfMemoryError) as error:
            self._record(error)
            return "failed"
        except RayError:  # the node is gone
            return "lost"

    def _record(self, error: Exception) -> None:
        """An error of the node, not of the run: it counts as an attempt nevertheless"""
        lease = self.executor.watch.take(self.spec.name)
        if lease is not None:
            lease.end("failed", step=0, error=str(error).splitlines()[-12:])

    def stop(self) -> None:
        import ray

        if not self.stopping:
            self.stopping = True
            ray.cancel(self.task)

    def kill(self, reason: str) -> None:
        import ray

        ray.cancel(self.task, force=True)
