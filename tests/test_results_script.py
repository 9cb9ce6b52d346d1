"""examples/results.py: what it says of final returns, on runs one can do on paper."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from acc_rl.report.load import Run

FILE = Path(__file__).parents[1] / "examples" / "results.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("results", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(label, seed, level, bias=0.0, success=np.nan, commit="a" * 40, day="2026-01-01", finished=True):
    """A run whose evaluations and gap are the same at all steps"""
    step = np.array([50.0, 100.0])
    columns = {name: np.full(2, np.nan) for name in ("dropped_per_net", "gap", "gap_soft")}
    start = {"git_commit": commit, "cpu": "A CPU", "started": f"{day}T00:00:00+0000"}
    return Run(
        name=f"Hopper-v5_{label}_seed{seed}",
        task="Hopper-v5",
        algo=label,
        seed=seed,
        steps=100,
        spec={},
        provenance={"starts": [start]},
        finished=finished,
        evaluations={"step": step, "mean_return": np.full(2, float(level)), "success": np.full(2, success)},
        training={"step": step, "beta": np.full(2, 0.25), "gap_full": np.full(2, -bias), **columns},
        value_error={},
        clock={},
        label=label,
    )


def rows(capsys):
    return [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]


def test_differences_have_welchs_interval_and_the_share_of_pairs(script, capsys):
    script.against([run("ours", 0, 2), run("ours", 1, 4), run("other", 0, 0), run("other", 1, 2)], "ours")
    # variances 2 and 2, standard error sqrt(2/2 + 2/2), two degrees of freedom: 2 +- 4.303 * 1.414; a tie is half a win
    assert rows(capsys) == [["Hopper-v5", "other", "+2", "-4 to +8", "2, 2", "88 % of pairs"]]


def test_one_run_has_no_interval_and_unfinished_ones_do_not_count(script, capsys):
    script.against([run("ours", 0, 2), run("other", 0, 3), run("other", 1, 90, finished=False)], "ours")
    assert rows(capsys) == [["Hopper-v5", "other", "-1", "-", "1, 1", "0 % of pairs"]]


def test_ranks_tell_the_size_of_the_bias_from_its_sign(script, capsys):
    script.ranks([run("x", i, level, bias) for i, (level, bias) in enumerate([(4, -1), (3, 2), (2, 3), (1, 4)])])
    ((task, runs, size, _, sign, _),) = rows(capsys)
    assert (task, runs, size, sign) == ("Hopper-v5", "4", "-1.00", "-1.00")
    script.ranks([run("x", i, level, bias) for i, (level, bias) in enumerate([(4, -4), (3, 2), (2, 3), (1, 5)])])
    ((_, _, size, _, sign, _),) = rows(capsys)
    assert (size, sign) == ("-0.40", "-1.00")


def test_the_table_of_results_has_bias_knob_and_success_where_there_is_one(script, capsys):
    script.at_the_end([run("x", 0, 7, bias=3)], {"Hopper-v5_x_seed0": 50.0})
    assert rows(capsys) == [["Hopper-v5", "x", "7", "7", "+3", "50", "0.25"]]
    script.at_the_end([run("x", 0, 7, success=0.5)], {"Hopper-v5_x_seed0": 50.0})
    assert rows(capsys)[0][2:5] == ["7", "7", "50%"]


def test_what_made_the_runs_is_listed_in_order_of_time(script, capsys):
    runs = [
        run("x", 0, 1, commit="b" * 40, day="2026-01-02"),
        run("x", 1, 1),
        run("y", 0, 1),
        run("y", 1, 1, finished=False),
    ]
    script.made(runs)
    assert rows(capsys) == [["aaaaaaa", "A CPU", "2", "2026-01-01"], ["bbbbbbb", "A CPU", "1", "2026-01-02"]]


def test_a_part_of_the_runs_comes_in_the_order_asked_for(script, capsys):
    runs = [run("x", 0, 1), run("y", 0, 2), run("z", 0, 3)]
    assert [each.label for each in script.selected(runs, ["Hopper"], ["z", "x"])] == ["z", "x"]
    assert script.selected(runs, ["Ant"], None) == []
    with pytest.raises(SystemExit, match="no runs of q: there are x, y, z"):
        script.selected(runs, None, ["x", "q"])
