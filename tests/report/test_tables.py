import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import synthetic
from sources import source_of

from acc_rl.commands.main import main
from acc_rl.report import cells, export, figures, finals, tables
from acc_rl.report.load import load
from acc_rl.report.published import published
from acc_rl.report.statistics import REPLICATES
from acc_rl.store.archive import unpacked

ROOT = Path(__file__).parents[2]


def test_what_is_missing_is_told(study):
    source = source_of(study)
    figures.figures(source)
    told = " ".join(tables.missing(source))
    assert "1 planned run without a folder yet: Hopper-v5 sac seed 1." in told
    assert "1 run not finished: Hopper-v5_td3_seed1 (step 20,000 of 40,000)." in told
    assert "1 run with missing evaluations, which count where they have some: Hopper-v5_acc_seed2 (5 of 41)." in told
    assert "No figure of TD3 against ACC-TD3: the study does not have both." in told
    assert "No figure of fewer critics: no algorithm ran with several numbers of critics." in told


def test_a_sparse_run_is_told(tmp_path):
    for seed in range(2):
        run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", seed, steps=10_000))
    lines = (run / "evaluations.jsonl").read_text().splitlines(keepends=True)
    (run / "evaluations.jsonl").write_text("".join(lines[::5]))
    assert "Hopper-v5_acc_seed1 (8 of 11)" in " ".join(tables.missing(source_of(tmp_path)))


def test_whole_numbers_are_whole(tmp_path):
    study = synthetic.write_study(tmp_path / "s", ["Hopper-v5"], ["acc"], [7], steps=500, every=100)
    loaded = load(study)
    assert [cell.text for cell in tables.runs_table(loaded).rows[0].cells][2] == "7"
    assert tables.grid_table(loaded).rows[0].cells[1].text == "500"
    table = finals.final_table(source_of(study))
    assert table.rows[0].cells[table.titles.index("env steps")].text == "500"


def test_algorithms_with_the_same_setting_share_a_row(tmp_path):
    for algo, gamma in (("acc", 0.9), ("sac", 0.9), ("td3", 0.8)):
        synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", algo, 0, steps=2000, gamma=gamma, batch_size=64))
    rows = [[cell.text for cell in row.cells] for row in tables.settings_table(load(tmp_path)).rows]
    assert rows == [
        ["acc, sac", "gamma = 0.9", "all tasks"],
        ["all algorithms", "batch_size = 64", "all tasks"],
        ["td3", "gamma = 0.8", "all tasks"],
    ]


def test_the_final_table(study):
    table = finals.final_table(source_of(study))
    rows = {(row.cells[0].text, row.cells[1].text): [cell.text for cell in row.cells] for row in table.rows}
    column = table.titles.index
    assert rows["Hopper-v5", "td3"][column("runs")] == "2 of 3"
    assert rows["Hopper-v5", "sac"][column("runs")] == "2 of 3"
    runs = load(study).of("HalfCheetah-v5", "acc")
    levels = [run.evaluations["mean_return"][-3:].mean() for run in runs]
    text = f"{np.mean(levels):,.0f} ± {np.std(levels):,.0f}"
    assert rows["HalfCheetah-v5", "acc"][column("return, mean ± std")] == text
    assert float(rows["HalfCheetah-v5", "acc"][column("steps to sac's level")]) < 0.8
    published_for = [row.cells[0].text for row in finals.published_table(load(study)).rows]
    assert len(published_for) > 3
    assert set(published_for) == {"HalfCheetah-v5"}


def test_a_remark_takes_a_column_only_where_there_is_one(study, tmp_path):
    assert finals.final_table(source_of(study)).titles[-1] == "remark"
    whole = synthetic.write_study(tmp_path / "s", ["Hopper-v5"], ["acc"], [0, 1], steps=2000)
    assert finals.final_table(source_of(whole)).titles[-1] == "env steps"


@pytest.mark.parametrize(
    ("mean", "spread", "text"),
    [
        (3951.23, 57.81, "3,951 ± 58"),
        (8330.4, 1352.3, "8,330 ± 1,352"),
        (0.63412, 0.0571, "0.634 ± 0.057"),
        (-152.345, 3.456, "-152.3 ± 3.5"),
        (12.0, 0.0, "12.00 ± 0"),
        (3951.23, None, "3,951"),
        (float("nan"), 1.0, "–"),
        (1.0, 1e-12, "1.000000 ± 0.000000"),
    ],
)
def test_digits_fit_the_deviation(mean, spread, text):
    assert cells.with_spread(mean, spread).text == text


def test_digits_fit_the_interval():
    assert cells.interval(669.9, 797.2).text == "670 to 797"
    assert cells.with_interval(0.62915, 0.53291, 0.64178) == "0.629 [0.533, 0.642]"
    assert cells.with_interval(0.5, 0.5, 0.5) == "0.50 [0.50, 0.50]"


def test_a_packed_study_gives_the_numbers_that_it_always_gave():
    golden = json.loads((ROOT / "tests/data/golden_report_early.json").read_text())
    with unpacked(ROOT / "results/early.tar.gz") as folder:
        source = source_of(folder, replicates=REPLICATES)
    names = {"env steps": "steps", "steps to sac's level": "ratio"}
    rows = [{names.get(key, key): each for key, each in row.items()} for row in finals.final_table(source).raw()]
    assert len(rows) == len(golden["rows"]) == 8
    for row, wanted in zip(rows, golden["rows"], strict=True):
        wanted["ratio"] = float("inf") if wanted["ratio"] == "not reached" else wanted["ratio"]
        assert [row.pop(name) for name in ("task", "algorithm")] == [wanted.pop(name) for name in ("task", "algorithm")]
        assert row == pytest.approx(wanted | {"planned": 2}, rel=1e-12)
    drawn = {figure.key: figure for figure in figures.figures(source)}
    for key, panels in golden["figures"].items():
        assert {panel.title: panel.data for panel in drawn[key].panels} == panels


def test_tables_and_curves_as_files(study, tmp_path):
    out = tmp_path / "out"
    assert main(["report", str(study), "--out", str(out), "--tables", "csv", "--curves", "csv"]) == 0
    returns = read_csv(out / "table-returns.csv")
    first = returns[0]
    assert (first["task"], first["algorithm"], first["runs"], first["planned"]) == ("HalfCheetah-v5", "acc", "3", "3")
    levels = [run.evaluations["mean_return"][-3:].mean() for run in load(study).of("HalfCheetah-v5", "acc")]
    assert float(first["mean"]) == pytest.approx(np.mean(levels), rel=1e-12)
    assert float(first["std"]) == pytest.approx(np.std(levels), rel=1e-12)
    assert {row["statistic"] for row in read_csv(out / "table-final.csv")} == {"IQM", "median", "mean"}
    assert [row["of"] for row in read_csv(out / "table-improvement.csv")] == ["acc > acc-2q", "acc > sac", "acc > td3"]
    curves = read_csv(out / "curves-tasks.csv")
    assert curves[0] | {"y": "", "low": "", "high": ""} == {
        "panel": "HalfCheetah-v5", "x is": "env steps", "algorithm": "acc", "run": "",
        "x": "0", "y": "", "low": "", "high": "", "runs": "3",
    }  # fmt: skip
    assert len({(row["panel"], row["algorithm"]) for row in curves}) == 8
    assert {row["run"] for row in read_csv(out / "curves-calibration-dropped-seeds.csv")} == {
        "seed 0",
        "seed 1",
        "seed 2",
    }
    assert not (out / "curves-final.csv").exists()  # bars are no curves


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_tables_as_latex(study, tmp_path):
    assert main(["report", str(study), "--out", str(tmp_path), "--tables", "latex"]) == 0
    lines = (tmp_path / "table-returns.tex").read_text().splitlines()
    assert lines[0] == r"\begin{tabular}{llrrrrrrl}"
    assert re.fullmatch(r"  HalfCheetah-v5 & acc & [\d,]+ \$\\pm\$ [\d,]+ & .* & 3 of 3 & 40,000 &  \\\\", lines[4])
    assert lines[-1] == r"\end{tabular}"


def test_names_are_no_latex_commands():
    table = cells.Table(["a_b"], [cells.Row([cells.Cell(r"\input{x} 5 % & $y^2$ #1 ~")])], set())
    content = export.table_latex(table).splitlines()
    told = r"\textbackslash{}input\{x\} 5 \% \& \$y\textasciicircum{}2\$ \#1 \textasciitilde{}"
    assert content[2] == r"  a\_b \\"
    assert content[4] == f"  {told} " + r"\\"
    assert export.table_latex(cells.Table(["x"], [cells.Row([cells.number(-3)])], {0})).count("$-$3.00") == 1


def test_published_returns_only_where_the_version_allows():
    assert {row.version for row in published("HalfCheetah-v5", 10**6)} == {"v3", "v4"}
    assert {row.version for row in published("Hopper-v4", 10**6)} == {"v4"}
    assert published("Hopper-v5", 10**6) == []
    assert published("Swimmer-v3", 10**7) == []  # its rows use other discounts
    assert published("Meta-World/push", 10**6) == []
    assert all(row.step <= 50_000 for row in published("HalfCheetah-v5", 50_000))
    assert not [row for row in published("HalfCheetah-v3", 10**7) if "digitised" in row.source]
    sac = [row for row in published("HalfCheetah-v4", 10**6) if row.algo == "SAC"]
    assert [(row.step, row.seeds) for row in sac if row.source == "SimbaV2 results"] == [(10**6, 10)]
