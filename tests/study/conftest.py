import pytest
from tiny_studies import OPTIONS, Notes, small_study

from acc_rl.study.executors import Local, execute


@pytest.fixture(scope="session")
def clean(tmp_path_factory):
    """An undisturbed study"""
    study = small_study(tmp_path_factory.mktemp("clean"))
    notes = Notes()
    assert execute(study, Local(study, 2, OPTIONS), 2, notes) == []
    assert sorted(how for _, how in notes.lines) == ["finished", "finished", "started", "started"]
    return study
