"""The harness that runs SB3's tests with our classes, and the figures that it has written."""

import re
from pathlib import Path

import drop_in

PAGE = Path(__file__).parents[1] / "docs" / "from_sb3.md"
TESTS = """
import pytest
from stable_baselines3 import DQN, PPO, SAC, TD3

@pytest.mark.parametrize("cls", [PPO, SAC, TD3])
def test_name(cls):
    assert cls.__name__ == "ACCSAC" or cls is PPO

def test_named_in_the_code():
    assert DQN.__module__.startswith("acc_rl.")

@pytest.mark.parametrize("cls", [SAC])
def test_skipped(cls):
    assert DQN is not cls
    pytest.skip()

def test_of_something_else():
    assert False
"""


def test_classes_are_substituted_and_counted(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    results = drop_in.run(tmp_path, "stable_baselines3", "calibrated", "", tmp_path)
    found = {test.rpartition("::")[2]: (each["classes"], each["outcome"]) for test, each in results.items()}
    assert found == {
        "test_name[ACCSAC]": (["SAC"], "passed"),
        "test_name[ACCTD3]": (["TD3"], "failed"),
        "test_named_in_the_code": (["DQN"], "passed"),
        "test_skipped[ACCSAC]": (["SAC"], "skipped"),
    }
    assert drop_in.passed(results, "SAC") == (1, 1)
    assert drop_in.passed(results) == (2, 3)


def test_some_tests_alone(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    results = drop_in.run(tmp_path, "stable_baselines3", "plain", "named", tmp_path)
    assert [(test.rpartition("::")[2], each["outcome"]) for test, each in results.items()] == [
        ("test_named_in_the_code", "passed")
    ]


def test_at_least_95_of_100_tests_pass_with_each_class():
    rows = re.findall(r"^\| `(\w+)` \| (.*of \d+.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == set(drop_in.SETS["theirs"])
    for name, cells in rows:
        for good, total in re.findall(r"(\d+) of (\d+)", cells):
            assert int(good) >= 0.95 * int(total), (name, cells)
