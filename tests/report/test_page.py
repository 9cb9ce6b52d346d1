import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import altair as alt
import numpy as np
import pytest
import synthetic

from acc_rl.commands.main import main
from acc_rl.report import charts, figures, tables
from acc_rl.report.colours import KNOWN, PALETTE, looks
from acc_rl.report.curves import scales
from acc_rl.report.load import load
from acc_rl.report.page import build
from acc_rl.report.published import published
from acc_rl.report.source import Source


def source_of(path, replicates=50):
    loaded = load(path)
    return Source(loaded, looks(loaded.labels), scales(loaded), replicates=replicates)


class Parsed(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self.text, self._in = [], [], [], None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in == "script":
            self.scripts[-1] += data
        elif self._in != "style":
            self.text.append(data)


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&quot; onload=alert(3) ${x} {{x}}"


def test_hostile_names_stay_text(tmp_path):
    content = synthetic.spec(f"Env{HOSTILE}", f"acc{HOSTILE}", 0, steps=20_000, gamma=HOSTILE)
    other = synthetic.spec(f"Env{HOSTILE}", f"acc{HOSTILE}", 0, steps=20_000)
    study = tmp_path / "study"
    for i, each in enumerate((content, other)):
        run = synthetic.write_run(study, each, folder=f"<b onclick=alert({i})>")
        provenance = {"versions": {HOSTILE: HOSTILE}, "cpu": HOSTILE}
        (run / "provenance.json").write_text(json.dumps(provenance))
    (study / "study.json").write_text(json.dumps({"name": HOSTILE, "source": HOSTILE, "runs": [content, other]}))
    broken = study / f"x{HOSTILE.replace('/', '')}"
    broken.mkdir()
    (broken / "spec.json").write_text(f'"{HOSTILE}')
    plain = Parsed(build(synthetic.write_study(tmp_path / "plain", ["A-v1"], ["acc"], [0], steps=20_000))[0])
    html, _ = build(study)
    parsed = Parsed(html)
    assert len(parsed.scripts) == len(plain.scripts) == 3
    assert parsed.scripts[1:] == plain.scripts[1:]  # the page's own, byte for byte
    assert {tag for tag, _ in parsed.tags} <= {tag for tag, _ in plain.tags} | {"li", "ul"}
    assert not [a for _, attributes in parsed.tags for a in attributes if a.startswith("on") or a == "src"]
    data = json.loads(parsed.scripts[0])
    assert any(HOSTILE in label for label in data["colours"])
    assert HOSTILE in "".join(parsed.text)


def test_nothing_is_loaded_and_only_own_scripts_run(study):
    html, _ = build(study)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "connect-src" not in policy
    assert not [a for tag, a in Parsed(html).tags if {"src", "href"} & set(a) or tag == "link"]


def test_what_is_missing_is_told(study):
    source = source_of(study)
    figures.figures(source)
    told = " ".join(tables.missing(source))
    assert "1 planned run without a folder yet: Hopper-v5 sac seed 1." in told
    assert "1 run not finished: Hopper-v5_td3_seed1 (step 20,000 of 40,000)." in told
    assert "1 run with missing evaluations, which count where they have some: Hopper-v5_acc_seed2 (5 of 41)." in told
    assert "No figure of TD3 against ACC-TD3: the study does not have both." in told
    assert "No figure of fewer critics: no algorithm ran with several numbers of critics." in told


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


def test_a_sparse_run_is_told(tmp_path):
    for seed in range(2):
        run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", seed, steps=10_000))
    lines = (run / "evaluations.jsonl").read_text().splitlines(keepends=True)
    (run / "evaluations.jsonl").write_text("".join(lines[::5]))
    assert "Hopper-v5_acc_seed1 (8 of 11)" in " ".join(tables.missing(source_of(tmp_path)))


def test_curves_tell_how_many_runs_stand_behind_them(study):
    tasks = next(figure for figure in figures.figures(source_of(study)) if figure.key == "tasks")
    rows = charts.rows(tasks.panels[1].data)
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


def figure_of(source, key):
    return next(figure for figure in figures.figures(source) if figure.key == key)


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
        assert [row["x"] for row in charts.rows(data) if row["y"] is None] == [1000 * step for step in gap]
        svg = charts.write_figure(figure_of(source, key), tmp_path, "svg").read_text()
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
    return next(layer["encoding"][channel]["scale"] for layer in layers if "scale" in layer["encoding"][channel])


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

    assert scale(drawn["calibration-dropped"].panels[0], "y") == {"domainMin": 0}
    assert scale(drawn["value-error"].panels[0], "y") == {"domainMin": 0}
    assert scale(drawn["improvement"].panels[0], "x")["domain"] == [0, 1]
    assert scale(figure_of(source_of(more), "success").panels[0], "y") == {"domain": [0, 1]}
    low, high = scale(drawn["final"].panels[0], "x")["domain"]
    for panel in drawn["final"].panels:
        assert scale(panel, "x")["domain"] == [low, high]
        assert low < min(panel.data["low"]) < max(panel.data["high"]) < high
    assert charts.bare(drawn["bias"].panels[0])["layer"][0]["encoding"] == {"y": {"datum": 0}}
    for key, grids in (("bias", 2 * len(drawn["bias"].panels)), ("improvement", 1)):
        svg = charts.write_figure(drawn[key], tmp_path, "svg").read_text()
        assert svg.count('class="mark-rule role-axis-grid"') == grids  # a reference does not take their place


def test_whole_numbers_are_whole(tmp_path):
    study = synthetic.write_study(tmp_path / "s", ["Hopper-v5"], ["acc"], [7], steps=500, every=100)
    loaded = load(study)
    assert [cell.text for cell in tables.runs_table(loaded).rows[0].cells][2] == "7"
    assert tables.grid_table(loaded).rows[0].cells[1].text == "500"
    assert tables.final_table(source_of(study)).rows[0].cells[3].text == "500"


def test_algorithms_with_the_same_setting_share_a_row(tmp_path):
    for algo, gamma in (("acc", 0.9), ("sac", 0.9), ("td3", 0.8)):
        synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", algo, 0, steps=2000, gamma=gamma, batch_size=64))
    rows = [[cell.text for cell in row.cells] for row in tables.settings_table(load(tmp_path)).rows]
    assert rows == [
        ["acc, sac", "gamma = 0.9", "all tasks"],
        ["all algorithms", "batch_size = 64", "all tasks"],
        ["td3", "gamma = 0.8", "all tasks"],
    ]


def test_charts_are_valid_vega_lite(study):
    drawn = {figure.key: figure for figure in figures.figures(source_of(study))}
    for key in ("aggregate", "improvement", "calibration-dropped-seeds", "bias"):
        alt.Chart.from_dict(charts.page_spec(drawn[key].panels[0]))
    for key in ("aggregate", "improvement"):
        alt.ConcatChart.from_dict({**charts.file_spec(drawn[key]), "datasets": {}})


def test_single_seeds_tell_that_they_are_thinned(tmp_path):
    study = synthetic.write_study(tmp_path / "s", ["Hopper-v5"], ["acc"], [0], steps=20_000, every=50)
    figure = figure_of(source_of(study), "calibration-dropped-seeds")
    assert len(figure.panels[0].data["x"]) == 160
    assert figure.notes == ["Of a run with more rows, 160 are drawn."]


def test_the_final_table(study):
    table = tables.final_table(source_of(study))
    rows = {(row.cells[0].text, row.cells[1].text): [cell.text for cell in row.cells] for row in table.rows}
    column = table.titles.index
    assert rows["Hopper-v5", "td3"][column("runs")] == "2 of 3"
    assert rows["Hopper-v5", "sac"][column("runs")] == "2 of 3"
    runs = load(study).of("HalfCheetah-v5", "acc")
    levels = [run.evaluations["mean_return"][-3:].mean() for run in runs]
    text = f"{np.mean(levels):,.0f} ± {tables.number(np.std(levels)).text}"
    assert rows["HalfCheetah-v5", "acc"][column("return, mean ± std")] == text
    assert float(rows["HalfCheetah-v5", "acc"][column("steps to sac's level")]) < 0.8
    assert [row.cells[0].text for row in table.rows if row.kind == "published"].count("HalfCheetah-v5") > 3
    assert not [row for row in table.rows if row.kind == "published" and row.cells[0].text == "Hopper-v5"]


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


def test_looks_are_fixed_or_free():
    found = looks(["sac", "mine", "acc", "yours"])
    assert found["acc"] == KNOWN["acc"]
    assert len({look.colour for look in found.values()}) == 4
    assert looks(["yours", "mine", "acc", "sac"]) == found
    many = looks([f"algorithm {i}" for i in range(36)])
    assert len({(look.colour, tuple(look.dash)) for look in many.values()}) == 36


SIGHTS = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Machado, Oliveira and Fernandes (2009), severity 1"""
SHOWN_TOGETHER = [
    ("acc", "sac", "td3"),
    ("acc", "tqc-d0", "tqc-d2", "tqc-d5"),
    ("acc", "sac", "td3", "acc-td3", "tqc-d2"),
    ("acc", "acc-sac", "sac"),
]


def linear(colour):
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("names", SHOWN_TOGETHER, ids="-".join)
@pytest.mark.parametrize("sight", SIGHTS)
def test_the_colour_blind_can_tell_them_apart(names, sight):
    colours = [lab(np.array(SIGHTS[sight]) @ linear(KNOWN[name].colour)) for name in names]
    distances = [np.linalg.norm(a - b) for i, a in enumerate(colours) for b in colours[:i]]
    assert min(distances) > 9


@pytest.mark.parametrize("colour", PALETTE)
@pytest.mark.parametrize("ground", ["#ffffff", "#14171c"])
def test_contrast(colour, ground):
    weights = [0.2126, 0.7152, 0.0722]
    dark, light = sorted([linear(colour) @ weights, linear(ground) @ weights])
    assert (light + 0.05) / (dark + 0.05) >= 3


@pytest.mark.parametrize(("kind", "begins"), [("pdf", b"%PDF"), ("svg", b"<svg"), ("png", b"\x89PNG")])
def test_figures_as_files(tmp_path, capsys, kind, begins):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=20_000))
    assert main(["report", str(run), "--out", str(tmp_path / "out"), "--figures", kind]) == 0
    assert "4 figures beside it" in capsys.readouterr().out
    files = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert files == sorted(
        [*(f"{key}.{kind}" for key in ("tasks", "calibration-dropped", "value-error", "bias")), "index.html"]
    )
    assert (tmp_path / "out" / f"tasks.{kind}").read_bytes().startswith(begins)


def test_the_same_study_gives_the_same_page(tmp_path):
    study = synthetic.write_study(tmp_path / "s", ["Hopper-v5"], ["acc", "sac"], range(3), steps=20_000)

    def without_time(html):
        return re.sub(r"Made by acc_rl on [^<]*", "", html)

    first, again = (without_time(build(study)[0]) for _ in range(2))
    assert first == again
    assert without_time(build(study, seed=1)[0]) != first


def test_wrong_folders_are_one_line(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"acc: error: {tmp_path / 'nowhere'}: No such folder\n"


def test_a_study_that_has_only_its_plan_is_a_page(tmp_path):
    plan = {"name": "soon", "runs": [synthetic.spec("Hopper-v5", "acc", seed) for seed in range(2)]}
    (tmp_path / "study.json").write_text(json.dumps(plan))
    html, drawn = build(tmp_path)
    assert drawn == []
    assert "2 planned runs without a folder yet" in html


def test_no_torch_is_imported():
    code = "import sys, acc_rl.report.page, acc_rl.report.serve; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_runs_that_have_just_begun_are_a_page(tmp_path):
    began = tmp_path / "began"
    for seed in range(2):
        run = synthetic.write_run(began, synthetic.spec("Hopper-v5", "acc", seed, steps=20_000), until=0)
        for file in run.glob("*.jsonl"):
            file.unlink()
    html, drawn = build(began)
    assert drawn == []
    assert "2 runs without an evaluation" in html
    # the next one is further
    synthetic.write_run(began, synthetic.spec("Hopper-v5", "sac", 0, steps=20_000), until=3000)
    html, drawn = build(began)
    assert {"aggregate", "tasks"} <= {figure.key for figure in drawn}
    assert "still running: newest evaluations" in html
    assert "No figure of final scores: no run has reached its last steps yet." in html
