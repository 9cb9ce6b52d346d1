"""The example that tunes with Optuna."""

import re
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_study_of_two_trials(tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna")
    monkeypatch.syspath_prepend(EXAMPLES)
    import tune

    words = ["tune.py", "Pendulum", "--trials", "2", "--steps", "60", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    tune.main()
    told = capsys.readouterr().out
    best = re.search(r"best of 2: (-[0-9.]+) with (\{.*\})", told)
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert len(folders) == 2
    name = r"Pendulum-v1_acc-x_learning_rate=.*_gamma=.*_pi=(\d+)x\1_qf=\1x\1_seed[01]$"
    assert all(re.match(name, each) for each in folders)
    assert set(re.findall(r"'(\w+)'", best[2])) == {"width", "learning_rate", "one_minus_gamma"}
