import signal

import pytest
import synthetic
import torch as th
from hypothesis import settings
from tiny_studies import OPTIONS, Notes, small_study

from acc_rl.study.executors import Local, execute

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts jobs in the background; children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """The nets of the tests are small: a second thread only waits."""
    th.set_num_threads(1)


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """Two tasks, four algorithms, three seeds, with one run missing, one cut off, and one with gaps."""
    path = tmp_path_factory.mktemp("studies") / "small"
    synthetic.write_study(
        path, ["HalfCheetah-v5", "Hopper-v5"], ["acc", "acc-2q", "sac", "td3"], range(3), steps=40_000
    )
    missing, cut, gaps = (path / f"Hopper-v5_{name}" for name in ("sac_seed1", "td3_seed1", "acc_seed2"))
    for folder in (missing, cut):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    synthetic.write_run(path, synthetic.spec("Hopper-v5", "td3", 1, steps=40_000), until=20_000)
    lines = (gaps / "evaluations.jsonl").read_text().splitlines(keepends=True)
    (gaps / "evaluations.jsonl").write_text("".join(lines[:10] + lines[15:]))
    return path


@pytest.fixture(scope="session")
def clean(tmp_path_factory):
    """An undisturbed study"""
    study = small_study(tmp_path_factory.mktemp("clean"))
    notes = Notes()
    assert execute(study, Local(study, 2, OPTIONS), 2, notes) == []
    assert sorted(how for _, how in notes.lines) == ["finished", "finished", "started", "started"]
    return study
