"""Numbers in the docs are those that commands have written."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import mean

from acc_rl.store import records
from acc_rl.store.archive import unpacked

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": 1, "docs/early.md": 1, "docs/results.md": 1}
"""with the least number of their tables"""


def test_the_tables_of_results_are_what_the_records_say(tmp_path):
    copies = {page: Path(shutil.copy(ROOT / page, tmp_path)) for page in PAGES}
    command = [sys.executable, "examples/results.py", "--renew", *copies.values()]
    subprocess.run(command, check=True, cwd=ROOT)
    for page, tables in PAGES.items():
        text = (ROOT / page).read_text()
        assert copies[page].read_text() == text, f"renew it: python examples/results.py --renew {page}"
        assert text.count("<!-- python examples/results.py") >= tables


def test_the_returns_of_sb3s_sac_are_what_the_records_say():
    found = []
    for seed in (0, 1):
        rows = map(json.loads, (ROOT / "results" / f"sb3-sac_seed{seed}.jsonl").read_text().splitlines())
        found.append(mean(row["mean_return"] for row in rows if row["step"] > 45_000))
    assert (
        "reaches {:.0f} and {:.0f} (`python examples/peer_sac.py".format(*found)
        in (ROOT / "docs" / "early.md").read_text()
    )


def entropy_cost(
    alpha: float, left_out: int = 0, dimensions: int = 6, length: int = 1000, gamma: float = 0.99
) -> float:
    """What -dim A of entropy per step, weighted by alpha, takes from Q on average over the pairs of an episode"""
    steps = [gamma * (1 - gamma ** (length - t - 1)) / (1 - gamma) for t in range(length - left_out)]
    return alpha * dimensions * mean(steps)


def test_what_the_entropy_explains_is_what_the_records_say():
    last, kept = {}, {}
    with unpacked(ROOT / "results" / "early.tar.gz") as folder:
        for name in ("acc-n2", "sac", "tqc-d0_n_critics=2", "tqc-d5_n_critics=2"):
            rows = [list(records.read(folder / f"HalfCheetah-v5_{name}_seed{i}" / records.TRAINING)) for i in (0, 1)]
            last[name[:6]] = [each[-1] for each in rows]
            kept[name[:6]] = [mean(row["ent_coef"] for row in each if row["step"] > 95_000) for each in rows]
    gaps = "{:.0f} and {:.0f} (`acc-n2`), {:.0f} and {:.0f} (`tqc-d0`)".format(
        *(row["gap"] for name in ("acc-n2", "tqc-d0") for row in last[name])
    )
    costs = "{:.0f} and {:.0f}, {:.0f} and {:.0f}.".format(
        *(entropy_cost(row["ent_coef"]) for name in ("acc-n2", "tqc-d0") for row in last[name])
    )
    bias = " ".join((ROOT / "docs" / "bias.md").read_text().split())
    assert f"the gaps were {gaps}, of which the entropy explains {costs}" in bias
    told = (
        "{:.0f} and {:.0f} of ACC's 72 and 75, {:.0f} and {:.0f} of SAC's 150 and 163, {:.0f} and {:.0f} of the 71 "
        "and 85 with d = 0, and {:.0f} and {:.0f} of the 196 and 234 with d = 5"
    ).format(*(entropy_cost(alpha, left_out=100) for alphas in kept.values() for alpha in alphas))
    assert told in " ".join((ROOT / "docs" / "early.md").read_text().split())


def test_the_readmes_speeds_are_those_of_the_benchmarks():
    section = (ROOT / "README.md").read_text().split("## Speed")[1].split("\n## ")[0]
    told = re.findall(r"\d+\.\d+(?: \(\d+\.\d\dx\))?(?= \|)", section)
    measured = (ROOT / "docs" / "performance.md").read_text()
    assert len(told) == 29
    assert [each for each in told if each not in measured] == []
