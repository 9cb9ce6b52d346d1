"""A real cluster of two nodes on the loopback device; one is lost while it works."""

import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path

import pytest
from tiny_studies import OPTIONS, Notes, alive, command, digests, hows, small_study, tried, write_file

from acc_rl.runs.interrupt import Stopped
from acc_rl.store.lock import is_locked
from acc_rl.study.executors import Local, execute
from acc_rl.study.folder import last_step
from acc_rl.study.on_ray import OnRay, connected

ray = pytest.importorskip("ray")
# what Ray warns of is Ray's
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def cluster(monkeypatch):
    from ray.cluster_utils import Cluster

    temporary = tempfile.mkdtemp(prefix="ray")  # short: it holds the names of sockets
    (Path(temporary) / "ray").mkdir()
    monkeypatch.setenv("RAY_TMPDIR", temporary)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # Ray takes 127.0.0.1 for the address that others know this machine by
    here = {"num_cpus": 1, "node_ip_address": "127.0.0.2", "temp_dir": f"{temporary}/ray", "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=here)
    made.second = made.add_node(**here)
    with connected(made.address):
        yield made
    made.shutdown()
    shutil.rmtree(temporary, ignore_errors=True)


def test_interrupted_and_a_node_lost_it_equals_a_local_study(cluster, tmp_path):
    # long enough that both runs are at work when the node is lost
    clean, study = (small_study(tmp_path / name, steps=2000, eval_every=1000) for name in ("clean", "ray"))
    assert execute(clean, Local(clean, 2, OPTIONS), 0, Notes()) == []

    def steps():
        return min(last_step(study.folder / spec.name) for spec in study.runs)

    def interrupt():
        if steps() >= 100:
            raise KeyboardInterrupt

    with pytest.raises(Stopped):
        execute(study, OnRay(study, None, OPTIONS), 2, Notes(interrupt))
    assert [hows(study, spec) for spec in study.runs] == [["stopped"], ["stopped"]]
    assert not any(is_locked(study.folder / spec.name) for spec in study.runs)

    def lose_a_node():
        if cluster.worker_nodes and steps() >= 600:
            cluster.remove_node(cluster.second, allow_graceful=False)

    notes = Notes(lose_a_node)
    assert execute(study, OnRay(study, None, OPTIONS), 2, notes) == []
    assert not cluster.worker_nodes
    assert "lost" in [how for _, how in notes.lines]
    assert sorted(len(tried(study, spec)) for spec in study.runs) == [2, 3]
    assert [hows(study, spec)[-1] for spec in study.runs] == ["finished", "finished"]
    assert digests(study.folder) == digests(clean.folder)


def test_a_local_cluster_leaves_nothing_behind(tmp_path):
    file = write_file(tmp_path / "small.toml")
    with tempfile.TemporaryDirectory(prefix="ray") as temporary:  # short: it holds the names of sockets
        here = {**os.environ, "TMPDIR": temporary}
        run = command(file, "--out", tmp_path, "--ray", "local", "--workers", 1, env=here)
        out, err = run.communicate(timeout=300)
        assert run.returncode == 0, err
        assert "1 finished" in out
        assert [path.name for path in Path(temporary).iterdir() if "ray" in path.name] == []  # torch leaves a cache
    study = small_study(tmp_path, variants=["acc"])
    (attempt,) = tried(study)
    assert (attempt.end.how, attempt.end.step) == ("finished", 400)
    assert attempt.worker["host"] == socket.gethostname()
    assert not alive(attempt)


def test_missing_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"--ray needs Ray: pip install 'acc_rl\[ray\]'"):
        connected("auto").__enter__()


def test_nobody_there():
    with pytest.raises(ValueError, match=r"no Ray cluster at 127\.0\.0\.1:1: Connection refused"):
        connected("127.0.0.1:1").__enter__()
