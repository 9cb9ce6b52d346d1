import json
import re

import altair as alt
import numpy as np
import pytest
import synthetic
from sources import figure_of, source_of

from acc_rl.report import calibration, charts, export, figures, tables
from acc_rl.report.aggregates import against, headline
from acc_rl.report.page import build
from acc_rl.report.statistics import Estimate


def test_figures_follow_the_study(study, tmp_path):
    keys = [figure.key for figure in figures.figures(source_of(study))]
    assert keys == ["aggregate", "final", "profile", "improvement", "tasks", "updates", "calibration-dropped",
                    "calibration-dropped-seeds", "value-error", "bias"]  # fmt: skip
    more = synthetic.write_study(
        tmp_path / "m", ["Meta-World/push"], ["acc", "acc-n2", "td3", "acc-td3"], [0], steps=20_000, success=True
    )
    drawn = {figure.key: figure for figure in figures.figures(source_of(more))}
    assert {"td3", "critics", "calibration-beta"} <= set(drawn)
    assert [panel.title for panel in drawn["aggregate"].panels] == ["IQM of the normalised score", "mean success rate"]
    assert drawn["critics"].panels[-1].title == "wall-clock"
    single = [figure.key for figure in figures.figures(source_of(study / "Hopper-v5_acc_seed0"))]
    assert single == ["tasks", "calibration-dropped", "value-error", "bias"]


def test_curves_tell_how_many_runs_stand_behind_them(study):
    tasks = next(figure for figure in figures.figures(source_of(study)) if figure.key == "tasks")
    rows = export.rows(tasks.panels[1].data)
    count = {(row["series"], row["x"]): row["n"] for row in rows}
    assert count["td3", 20_000] == 3
    assert count["td3", 21_000] == 2
    assert count["sac", 40_000] == 2
    assert count["acc", 12_000] == 2  # its third run has a gap there


def test_tasks_of_unequal_length_are_aggregated_over_their_share(tmp_path):
    synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=20_000))
    synthetic.write_run(tmp_path, synthetic.spec("Ant-v5", "acc", 0, steps=40_000, every=4000))
    panel = figures.figures(source_of(tmp_path))[0].panels[0]
    assert panel.x_title == "% of each task's steps"
    assert (min(panel.data["x"]), max(panel.data["x"])) == (0, 100)
    assert set(panel.data["n"]) == {2}


def test_tasks_of_equal_length_are_aggregated_over_steps(tmp_path):
    for task, every in (("Hopper-v5", 1000), ("Ant-v5", 4000)):
        synthetic.write_run(tmp_path, synthetic.spec(task, "acc", 0, steps=20_000, every=every))
    panel = figure_of(source_of(tmp_path), "aggregate").panels[0]
    assert panel.x_title == "env steps"
    assert panel.data["x"] == list(range(0, 20_001, 4000))


def test_a_curve_ends_where_a_task_ends(tmp_path):
    for task, until in (("Hopper-v5", 20_000), ("Ant-v5", 12_000)):
        synthetic.write_run(tmp_path, synthetic.spec(task, "acc", 0, steps=20_000), until=until)
    source = source_of(tmp_path)
    for key, first in (("aggregate", 0), ("value-error", 1000)):
        panel = figure_of(source, key).panels[0]
        assert panel.data["x"] == list(range(first, 12_001, 1000))
        assert set(panel.data["n"]) == {2}


def test_final_scores_are_of_the_tasks_that_all_have(tmp_path):
    study = synthetic.write_study(
        tmp_path / "s", ["Hopper-v5", "HalfCheetah-v5"], ["acc", "sac"], range(2), steps=20_000
    )
    for seed in range(2):
        (study / f"Hopper-v5_sac_seed{seed}" / "evaluations.jsonl").unlink()
    source = source_of(study)
    drawn = {figure.key: figure for figure in figures.figures(source)}
    assert "without Hopper-v5" in drawn["final"].notes[0]
    assert "In final scores: nothing of Hopper-v5" in " ".join(tables.missing(source))
    assert set(drawn["profile"].panels[0].data["n"]) == {2}
    assert "sac has none of Hopper-v5: it is over the others." in drawn["aggregate"].notes[0]
    only = source_of(study)
    only.study.runs[:] = [run for run in only.study.runs if run.task == "HalfCheetah-v5"]
    assert drawn["final"].panels[0].data == figure_of(only, "final").panels[0].data
    assert drawn["improvement"].panels[0].data == figure_of(only, "improvement").panels[0].data


def test_without_a_task_that_all_have_there_are_no_final_scores(tmp_path):
    for task, algo in (("Hopper-v5", "acc"), ("Ant-v5", "sac")):
        synthetic.write_run(tmp_path, synthetic.spec(task, algo, 0, steps=20_000))
    source = source_of(tmp_path)
    assert "final" not in [figure.key for figure in figures.figures(source)]
    assert source.left_out["final scores"].startswith("no task has runs of all algorithms")


def test_wall_clocks_are_compared_on_the_same_tasks(tmp_path):
    for algo, tasks in (("acc", ("Hopper-v5", "Ant-v5")), ("acc-n2", ("Hopper-v5",))):
        for task in tasks:
            run = synthetic.write_run(tmp_path, synthetic.spec(task, algo, 0, steps=20_000))
            seconds = 100.0 if task == "Ant-v5" else 20.0
            synthetic.write_rows(run / "clock.jsonl", [{"step": 20_000, "seconds": seconds}])
    assert figure_of(source_of(tmp_path), "critics").panels[-1].data["x"] == [1, 1]


def test_few_runs_are_told(study, tmp_path):
    told = "With 2 runs of a task the intervals are too narrow"
    drawn = {figure.key: figure for figure in figures.figures(source_of(study))}
    for key in ("aggregate", "final", "profile", "improvement", "value-error", "bias"):
        assert told in drawn[key].notes[0]
    assert "do not overlap" not in drawn["final"].sentence
    enough = synthetic.write_study(tmp_path / "s", ["Hopper-v5"], ["acc", "sac"], range(5), steps=20_000)
    assert not any("too narrow" in note for figure in figures.figures(source_of(enough)) for note in figure.notes)


def test_gaps_stay_gaps(tmp_path):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=20_000))
    for name in ("evaluations.jsonl", "training.jsonl"):
        lines = (run / name).read_text().splitlines(keepends=True)
        (run / name).write_text("".join(lines[:5] + lines[8:]))
    source = source_of(tmp_path)
    for key, gap in (("aggregate", [5, 6, 7]), ("tasks", [5, 6, 7]), ("calibration-dropped-seeds", [6, 7, 8])):
        data = figure_of(source, key).panels[0].data
        assert [row["x"] for row in export.rows(data) if row["y"] is None] == [1000 * step for step in gap]
        svg = export.write_figure(figure_of(source, key), tmp_path, "svg").read_text()
        line = re.search(r'aria-roledescription="line mark"[^>]*? d="([^"]*)"', svg)[1]
        assert line.count("M") == 2


def test_tasks_without_value_errors_are_named(tmp_path):
    for task in ("Hopper-v5", "Reacher-v5"):
        run = synthetic.write_run(tmp_path, synthetic.spec(task, "acc", 0, steps=20_000))
    (run / "value_error.jsonl").unlink()
    source = source_of(tmp_path)
    assert "Without Reacher-v5, where there are no rows." in figure_of(source, "value-error").notes
    told = " ".join(tables.missing(source))
    assert "In value error and signed bias: nothing of Reacher-v5: a row needs 1000 pairs, and the last 100" in told
    alone = source_of(run)
    figures.figures(alone)
    assert alone.left_out["value error"].startswith("a row needs 1000 pairs")
    spec = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps(spec | {"value_error": False}))
    alone = source_of(run)
    figures.figures(alone)
    assert alone.left_out["value error"] == "it was switched off (--no-value-error)"


def scale(panel, channel):
    layers = charts.bare(panel)["layer"]
    return next(each["scale"] for layer in layers if "scale" in (each := layer["encoding"].get(channel, {})))


def test_errors_of_several_magnitudes_get_a_logarithmic_axis(tmp_path):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=40_000))
    # returns near zero at first, as in most tasks; a logarithm needs values above zero
    for errors, kind in (([100.0] * 10 + [0.5] * 30, "log"), ([0.5] * 40, None), ([100.0] * 10 + [0.0] * 30, None)):
        rows = [{"step": 1000 * i, "normalised": error} for i, error in enumerate(errors, start=1)]
        synthetic.write_rows(run / "value_error.jsonl", rows)
        figure = figure_of(source_of(run), "value-error")
        assert scale(figure.panels[0], "y").get("type") == kind
        assert ("logarithmic" in figure.notes[0]) == (kind == "log")


def test_the_note_names_all_filters(tmp_path):
    for task, every in (("Hopper-v5", 500), ("Ant-v5", 1000)):
        synthetic.write_run(tmp_path, synthetic.spec(task, "acc", 0, steps=40_000, every=every))
    assert "Uniform filter of 4 or 8 rows" in figure_of(source_of(tmp_path), "value-error").notes[0]


def test_one_axis_has_one_unit():
    assert charts.short([0, 5000.0, 9000]) == charts.short([None, 0.5]) == "format(datum.value, ',~g')"
    assert "/ 1000, ',~g') + 'k'" in charts.short([5000], [-10_000])
    assert "/ 1000000, ',~g') + 'M'" in charts.short([500_000, 3_000_000])


def test_axes(study, tmp_path):
    drawn = {figure.key: figure for figure in figures.figures(source_of(study))}
    more = synthetic.write_study(tmp_path / "m", ["Meta-World/push"], ["acc"], [0], steps=20_000, success=True)

    values = [
        scale(panel, "y")["domain"] for key in ("", "-seeds") for panel in drawn[f"calibration-dropped{key}"].panels
    ]
    assert values == 4 * [values[0]]  # one axis for all tasks, and for the single seeds
    assert values[0][0] == 0
    for key in ("aggregate", "tasks", "calibration-dropped", "value-error", "bias"):
        assert all(scale(panel, "x")["domain"] == [0, 40_000] for panel in drawn[key].panels)
    assert scale(drawn["value-error"].panels[0], "y") == {"domainMin": 0}
    assert scale(drawn["improvement"].panels[0], "x")["domain"] == [0, 1]
    assert scale(figure_of(source_of(more), "success").panels[0], "y") == {"domain": [0, 1]}
    low, high = scale(drawn["final"].panels[0], "x")["domain"]
    for panel in drawn["final"].panels:
        assert scale(panel, "x")["domain"] == [low, high]
        assert low < min(panel.data["low"]) < max(panel.data["high"]) < high
    assert charts.bare(drawn["bias"].panels[0])["layer"][0]["encoding"] == {"y": {"datum": 0}}
    for key, grids in (("bias", 2 * len(drawn["bias"].panels)), ("improvement", 1)):
        svg = export.write_figure(drawn[key], tmp_path, "svg").read_text()
        assert svg.count('class="mark-rule role-axis-grid"') == grids  # a reference does not take their place


def test_charts_are_valid_vega_lite(study):
    drawn = {figure.key: figure for figure in figures.figures(source_of(study))}
    for key in ("aggregate", "improvement", "calibration-dropped-seeds", "bias"):
        alt.Chart.from_dict(charts.page_spec(drawn[key].panels[0]))
    for key in ("aggregate", "improvement"):
        alt.VConcatChart.from_dict({**export.file_spec(drawn[key]), "datasets": {}})


def test_single_seeds_tell_that_they_are_thinned(tmp_path):
    study = synthetic.write_study(tmp_path / "s", ["Hopper-v5"], ["acc"], [0], steps=20_000, every=50)
    figure = figure_of(source_of(study), "calibration-dropped-seeds")
    assert len(figure.panels[0].data["x"]) == 160
    assert figure.notes == ["Of a run with more rows, 160 are drawn."]


def one(value, low, high):
    return Estimate(*(np.array([each]) for each in (value, low, high, 5)))


@pytest.mark.parametrize(
    ("others", "fewest", "begins", "ends"),
    [
        ({}, 5, "acc ends with an IQM of 0.80", ""),
        ({"sac": (0.75, 0.71, 0.79), "td3": (0.72, 0.6, 0.9)}, 5, "No difference seen: the intervals of all", ""),
        (
            {"sac": (0.75, 0.71, 0.79), "td3": (0.1, 0, 0.2)},
            5,
            "No difference seen between sac and acc",
            "interval: td3.",
        ),
        ({"sac": (0.1, 0, 0.2)}, 5, "Highest: acc", "No other interval reaches it."),
        ({"sac": (0.1, 0, 0.2)}, 2, "Highest: acc", "a hint, not yet a result."),
        ({"sac": (0.1, 0.1, 0.1)}, 1, "acc ends with the highest IQM, 0.80; with one run of a task no interval", ""),
    ],
)
def test_headlines_say_what_the_intervals_allow(others, fewest, begins, ends):
    found = {"acc": one(0.8, 0.75, 0.85), **{label: one(*each) for label, each in others.items()}}
    told = headline(found, fewest)
    assert told.startswith(begins)
    assert told.endswith(ends)


def test_improvements_are_told_as_far_as_the_intervals_allow():
    data = {"series": ["sac", "td3", "tqc"], "low": [0.6, 0.0, 0.5], "high": [0.9, 0.4, 1.0]}
    told = against("acc", data, 5)
    assert told.startswith("A run of acc more often ends better than one of sac. A run of acc more often ends worse")
    assert told.endswith("worse than one of td3. No difference seen between acc and tqc.")
    assert "no interval" in against("acc", data, 1)


def test_markers_are_few_and_apart():
    data = {"series": ["a"] * 100 + ["b"] * 100 + ["c"], "y": [1.0] * 150 + [None] * 50 + [1.0]}
    rows = np.flatnonzero(charts.marked(data))
    assert [((rows >= low) & (rows < high)).sum() for low, high in ((0, 100), (100, 200), (200, 201))] == [8, 8, 1]
    assert max(rows[rows < 200]) < 150  # not in the gap
    assert not set(rows[:8]) & set((rows[8:16] - 100) * 2)


def test_the_legend_of_a_file_has_lines_and_markers(study, tmp_path):
    svg = export.write_figure(figure_of(source_of(study), "tasks"), tmp_path, "svg").read_text()
    for label in ("acc", "acc-2q", "sac", "td3"):
        assert f">{label}</text>" in svg
    assert 'stroke-dasharray="7,3"' in svg


def test_what_older_records_lack_is_not_shown(study):
    drawn = {figure.key: figure for figure in figures.figures(source_of(study))}
    assert [panel.title for panel in drawn["value-error"].panels] == ["mean of |Q - R| / |R|, the paper's"]
    assert not {"bias-soft", "bias-full", "return-bias"} & set(drawn)
    assert len(drawn["calibration-dropped"].notes) == 1
    assert calibration.gap_table(source_of(study)).rows == []


def test_newer_records_show_more(tmp_path):
    study = synthetic.write_study(tmp_path / "s", ["Hopper-v5"], ["acc", "sac"], [0, 1], steps=40_000, gaps=True)
    source = source_of(study)
    drawn = {figure.key: figure for figure in figures.figures(source)}
    relative, papers = drawn["value-error"].panels
    assert (relative.title, papers.title) == ("mean |Q - R| / mean |R|", "mean of |Q - R| / |R|, the paper's")
    np.testing.assert_allclose(np.array(relative.data["y"]) * 2, papers.data["y"], rtol=1e-3)
    soft, plain = (drawn[key].panels[0].data["y"] for key in ("bias-soft", "bias"))
    np.testing.assert_allclose(soft, np.array(plain) + 3, rtol=1e-3)
    assert set(drawn["bias-full"].panels[0].data["y"]) == {1.234}  # Q - R, the gap is R - Q
    at_end = "d has been at its end 0 since step 25,000 while the critic still underestimates."
    assert drawn["calibration-dropped"].notes[0] == f"Hopper-v5, acc, seeds 0, 1: {at_end}"
    rows = [[cell.text for cell in row.cells] for row in calibration.gap_table(source).rows]
    assert rows == [["Hopper-v5", name, "24.1 ± 2.4", "9.87 ± 0.99", "-1.23 ± 0.12"] for name in ("acc", "sac")]
    html, _ = build(study)
    assert '<section id="gap">' in html
    assert "since step 25,000" in html


def test_return_against_bias_has_a_mark_per_run_and_their_ranks(tmp_path):
    study = synthetic.write_study(tmp_path / "s", ["Hopper-v5"], ["acc", "sac"], [0, 1, 2], steps=40_000, gaps=True)
    levels = []
    for bias, folder in enumerate(sorted(path.parent for path in study.glob("*/training.jsonl")), start=1):
        rows = [json.loads(line) for line in (folder / "training.jsonl").read_text().splitlines()]
        sign = 1 if bias % 2 else -1
        synthetic.write_rows(folder / "training.jsonl", [row | {"gap_full": sign * bias} for row in rows])
        rows = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
        levels.append(100.0 - bias)
        synthetic.write_rows(folder / "evaluations.jsonl", [row | {"mean_return": levels[-1]} for row in rows])
    figure = figure_of(source_of(study), "return-bias")
    (panel,) = figure.panels
    assert panel.data["series"] == ["acc"] * 3 + ["sac"] * 3
    assert panel.data["line"] == ["seed 0", "seed 1", "seed 2"] * 2
    assert panel.data["x"] == [-1, 2, -3, 4, -5, 6]
    assert panel.data["y"] == levels
    assert "Hopper-v5, 6 runs: -1.00 (p < 0.001)" in figure.notes[0]
    svg = export.write_figure(figure, tmp_path, "svg").read_text()
    assert svg.count('aria-roledescription="point"') == 6 + 2  # and two of the legend
    assert len(export.write_curves(figure, tmp_path).read_text().splitlines()) == 7


def test_a_beta_that_left_its_end_again_is_not_told(tmp_path):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=40_000), gaps=True)
    rows = [json.loads(line) for line in (run / "training.jsonl").read_text().splitlines()]
    synthetic.write_rows(run / "training.jsonl", [*rows[:-1], rows[-1] | {"at_limit": 0}])
    assert calibration.limit_since(source_of(run).study.runs[0]) is None
    synthetic.write_rows(run / "training.jsonl", [*rows[:-4], rows[-4] | {"at_limit": 0}, *rows[-3:]])
    assert calibration.limit_since(source_of(run).study.runs[0]) == 38_000


def test_a_beta_that_never_left_its_end_is_shown(tmp_path):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=40_000), gaps=True)
    rows = [json.loads(line) for line in (run / "training.jsonl").read_text().splitlines()]
    ended = {"dropped_per_net": 5.0, "beta": 0.0, "at_limit": 1, "gap": -2.0}
    synthetic.write_rows(run / "training.jsonl", [row | ended for row in rows])
    note = figure_of(source_of(run), "calibration-dropped").notes[0]
    assert note.endswith("d has been at its end 5 since step 1,000 while the critic still overestimates.")
