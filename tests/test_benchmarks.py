"""What the benchmarks write into the docs, from rows that were not measured."""

import importlib.util
import json
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "benchmarks" / "learning.py"


@pytest.fixture(scope="module")
def learning():
    spec = importlib.util.spec_from_file_location("learning", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(name, seed, returns, minutes=3.0):
    facts = {"date": "2026-01-01", "cpu": "a CPU", "minutes": minutes, "name": name, "seed": seed}
    return {**facts, "steps": [1, 500, 1000 + seed], "seconds": [0.0, 60.0, 180.0], "returns": returns}


def test_the_table_by_hand(learning):
    rows = [row("acc-x", 0, [0.0, 100.0, 500.0]), row("acc-x", 1, [0.0, 300.0, 700.0])]
    header, _, line = learning.table(rows, 3.0).splitlines()
    assert "return after 1 min | return after 2 min | return after 3 min" in header
    assert line == "| acc-x | 2 | 1000 | 200 | 400 | 600 |"  # 1000.5 rounds to even; linear between evaluations


def test_a_section_replaces_the_old_one_and_leaves_the_others(learning, tmp_path):
    page, path = tmp_path / "performance.md", tmp_path / "rows.jsonl"
    page.write_text("# Performance\n\n## Starting\n\nas before\n")
    rows = [row("acc-x", 0, [0.0, 1.0, 2.0]), row("SAC (SB3)", 0, [0.0, 1.0, 3.0]), row("acc-n2", 0, [0.0] * 3, 9.0)]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    for _ in range(2):
        learning.write_section(page, path, 3.0)
        page.write_text(
            page.read_text() + "\n## Last\n\nas before\n" if "## Last" not in page.read_text() else page.read_text()
        )
    text = page.read_text()
    assert text.count("## Learning against time") == 1
    assert text.count("as before") == 2
    assert "| SAC (SB3) | 1 |" in text
    assert "acc-n2" not in text  # of another budget
    assert (tmp_path / "learning.png").stat().st_size > 1000


def test_runs_that_are_there_are_not_made_again(learning, tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row("acc-x", 0, [0.0] * 3)) + "\n")
    started = []

    class Done:
        returncode, stderr = 0, ""

        def __init__(self, words):
            name, seed, _ = words[words.index("--contestant") + 1 :]
            started.append((name, int(seed)))
            self.stdout = json.dumps(row(name, int(seed), [0.0] * 3)) + "\n"

    monkeypatch.setattr(learning.subprocess, "run", lambda words, **_: Done(words))
    wanted = {"minutes": 3.0, "seeds": 2, "only": "acc-x", "sbx": None, "at_once": 2}
    learning.run_missing(path, learning.argparse.Namespace(**wanted))
    assert started == [("acc-x", 1)]
    assert [each["seed"] for each in learning.read(path, 3.0)] == [0, 1]
