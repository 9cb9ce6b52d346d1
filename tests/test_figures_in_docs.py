"""Numbers in the docs are those that commands have written."""

import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[1]
RETURN, DISCOUNTED_RETURN, BIAS = 5, 7, 8  # columns of the table of results


def test_the_table_of_results_is_what_the_records_say():
    command = [sys.executable, ROOT / "examples" / "results.py", ROOT / "results" / "early.tar.gz"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert table in (ROOT / "docs" / "results.md").read_text()
    _, _, at_50k, at_100k = table.split("After ")
    readme = (ROOT / "README.md").read_text()
    for task, name in product(("HalfCheetah-v5", "Hopper-v5"), ("acc-n2", "sac", "tqc-d0", "tqc-d5")):
        halfway, end = (columns(at, task, name) for at in (at_50k, at_100k))
        told = "{}, {} | {}, {} | {}, {} of {}, {}".format(
            *halfway[RETURN], *end[RETURN], *end[BIAS], *end[DISCOUNTED_RETURN]
        )
        assert f"| {task} | `{name}` | {told} |" in readme


def columns(table: str, task: str, name: str) -> list[tuple[str, ...]]:
    """The columns of a table of results, for one task and algorithm: one number per seed."""
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()]
    return list(zip(*(row for row in rows if row[1:3] == [task, name]), strict=True))


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
