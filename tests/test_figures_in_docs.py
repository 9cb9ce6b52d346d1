"""Numbers in the docs are those that commands have written."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_table_of_results_is_what_the_records_say():
    command = [sys.executable, ROOT / "examples" / "results.py", ROOT / "results" / "early.tar.gz"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert len(table.splitlines()) > 3
    assert table in (ROOT / "docs" / "results.md").read_text()


def test_the_readmes_speeds_are_those_of_the_benchmarks():
    section = (ROOT / "README.md").read_text().split("## Speed")[1].split("\n## ")[0]
    told = re.findall(r"\d+\.\d+(?: \(\d\.\d\dx\))?(?= \|)", section)
    measured = (ROOT / "docs" / "performance.md").read_text()
    assert len(told) == 23
    assert [each for each in told if each not in measured] == []
