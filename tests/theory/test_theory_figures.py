"""The command ``acc theorem`` and what it draws."""

import csv
import io

import numpy as np
import pytest
from rich.console import Console

from acc_rl.commands.main import main
from acc_rl.theory import figures as theory
from acc_rl.theory.tabular import ALGORITHMS, Walk
from acc_rl.theory.theorem import CASES, biases

ROWS = list(biases((1, 4), 500, np.random.default_rng(0)))
KNOWN = Walk(
    steps=np.array([10, 20]),
    optimum=1.0,
    estimate=np.array([[[3.0, 5.0], [2.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.5]]]),
    achieved=np.full((3, 2, 2), 0.5),
    beta=np.full((3, 2, 2), 0.25),
)


def printed(table):
    console = Console(width=200, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


def test_table_shows_exact_and_simulated():
    text = printed(theory.theorem_table(ROWS))
    line = next(line for line in text.splitlines() if "rare gain [-0.5, 0.5]" in line)
    assert line.split("│")[2].strip() == "-0.2500"
    assert "-0.0000" not in text
    assert text.count("simulated") == len(CASES)
    largest = max(abs(row.simulated - row.exact) / row.error for row in ROWS)
    assert f"{largest:.1f} standard errors" in text


def test_table_of_the_walk_by_hand():
    lines = [line for line in printed(theory.tabular_table(KNOWN)).splitlines() if "│" in line]
    best, followed = lines[2], lines[6]  # half of the time
    assert "+3.00 ± 1.00" in best  # 3 and 5 less 1: mean 3, standard deviation sqrt(2) of 2
    assert "-1.00 ± 0.00" in best
    assert "+3.50 ± 1.00" in followed
    assert "+0.25 ± 0.25" in lines[3]
    assert "+0.75 ± 0.25" in lines[7]


def test_every_number_is_drawn():
    chart = theory.theorem_chart(ROWS).to_dict()
    points = [point for group in chart["datasets"].values() for point in group]
    assert [(p["case"], p["exact"], p["simulated"]) for p in points] == [
        (row.case.name, row.exact, row.simulated) for row in ROWS
    ]
    above, below = chart["vconcat"]
    assert [len(above["hconcat"]), len(below["hconcat"])] == [2, 3]
    named = {panel["layer"][1]["data"]["name"] for part in (above, below) for panel in part["hconcat"]}
    assert named == set(chart["datasets"])


def test_curves_by_hand():
    first = theory.walk_rows(KNOWN)[0]
    assert (first["algorithm"], first["step"]) == ("Q-learning", 10)
    assert (first["bias_to_best"], first["bias_to_best_error"]) == pytest.approx((3.0, 1.0))
    assert (first["bias_to_followed"], first["value_of_followed"], first["beta"]) == pytest.approx((3.5, 0.5, 0.25))
    chart = theory.tabular_chart(KNOWN).to_dict()
    assert len(chart["datasets"]["walk"]) == len(ALGORITHMS) * 2


def test_the_command(tmp_path, capsys):
    words = ["theorem", "--returns", "1", "3", "--repeats", "1e3", "--walks", "2", "--steps", "100"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "fair coin [-0.5, 0.5]" in out
    assert "double Q-learning" in out
    assert str(tmp_path / "theorem.png") in out
    # one line per algorithm in each of the four panels
    assert (tmp_path / "tabular.svg").read_text().count('aria-roledescription="line mark"') == 4 * len(ALGORITHMS)
    starts = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}
    for name in ("theorem", "tabular"):
        for suffix, start in starts.items():
            assert (tmp_path / f"{name}.{suffix}").read_bytes().startswith(start)
    with (tmp_path / "theorem.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["returns"], row["n"]) for row in rows] == [(case.returns.name, n) for case in CASES for n in "13"]
    with (tmp_path / "tabular.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 300
    assert rows[0].keys() == {"algorithm", "step"} | {
        f"{name}{end}"
        for name in ("bias_to_best", "bias_to_followed", "value_of_followed", "beta")
        for end in ("", "_error")
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--returns", "1", "0"], "returns is 0, but must be whole numbers from 1 to 1000"),
        (["--repeats", "1"], "repeats is 1, but must be >= 2"),
        (["--walks", "1"], "walks is 1, but must be >= 2"),
        (["--steps", "99"], "steps is 99, but must be >= 100"),
        (["--seed", "-1"], "seed is -1, but must be >= 0"),
    ],
)
def test_mistakes_are_told_in_one_line(words, message, tmp_path, capsys):
    assert main(["theorem", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"acc: error: {message}" in error
    assert len(error.strip().splitlines()) == 1


def test_a_file_in_the_way_is_told_in_one_line(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert main(["theorem", "--out", str(tmp_path / "out")]) == 2
    assert "File exists" in capsys.readouterr().err
