"""Numbers in the docs are those that commands have written."""

import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[1]


def test_the_table_of_results_is_what_the_records_say():
    command = [sys.executable, ROOT / "examples" / "results.py", ROOT / "results" / "early.tar.gz"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert len(table.splitlines()) > 3
    assert table in (ROOT / "docs" / "results.md").read_text()
    section = (ROOT / "README.md").read_text().split("## Results")[1]
    for task, name in product(("HalfCheetah-v5", "Hopper-v5"), ("acc-n2", "sac")):
        (told,) = re.findall(rf"^\| {task} \| `{name}` (.*)$", section, flags=re.MULTILINE)
        of_it = " ".join(line for line in table.splitlines() if line.startswith(f"| {task} | {name} |"))
        numbers = re.findall(r"-?\d+", told)
        assert len(numbers) == 8
        assert [each for each in numbers if f" {each} " not in of_it] == []


def test_the_returns_of_sb3s_sac_are_what_the_records_say():
    found = []
    for seed in (0, 1):
        rows = map(json.loads, (ROOT / "results" / f"sb3-sac_seed{seed}.jsonl").read_text().splitlines())
        found.append(mean(row["mean_return"] for row in rows if row["step"] > 45_000))
    assert (
        "reaches {:.0f} and {:.0f} (`python examples/peer_sac.py".format(*found)
        in (ROOT / "docs" / "results.md").read_text()
    )


def test_the_readmes_speeds_are_those_of_the_benchmarks():
    section = (ROOT / "README.md").read_text().split("## Speed")[1].split("\n## ")[0]
    told = re.findall(r"\d+\.\d+(?: \(\d\.\d\dx\))?(?= \|)", section)
    measured = (ROOT / "docs" / "performance.md").read_text()
    assert len(told) == 23
    assert [each for each in told if each not in measured] == []
