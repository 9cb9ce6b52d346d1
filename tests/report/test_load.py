import json
import os
import shutil

import numpy as np
import pytest
import synthetic

from acc_rl.report import curves
from acc_rl.report.load import ReportError, load, together


def test_a_study_is_read(study):
    loaded = load(study)
    assert loaded.tasks == ["HalfCheetah-v5", "Hopper-v5"]
    assert loaded.labels == ["acc", "acc-2q", "sac", "td3"]
    assert len(loaded.runs) == 23
    assert [(spec["env"], spec["algo"], spec["seed"]) for spec in loaded.absent()] == [("Hopper-v5", "sac", 1)]
    assert [run.name for run in loaded.runs if not run.finished] == ["Hopper-v5_td3_seed1"]
    run = loaded.of("HalfCheetah-v5", "acc")[0]
    assert run.evaluations["step"].tolist() == list(range(0, 40_001, 1000))
    assert run.setting("critic_updates") == 1
    assert run.seconds == pytest.approx(40_000 * 0.05)


def test_a_torn_last_line_is_passed_over_and_of_two_rows_of_a_step_the_later_counts(tmp_path):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=3000))
    with (run / "evaluations.jsonl").open("a") as file:
        file.write('{"step": 3000, "mean_return": 7.0}\n{"step": 4000, "mean_re')
    evaluations = load(tmp_path).runs[0].evaluations
    assert evaluations["step"].tolist() == [0, 1000, 2000, 3000]
    assert evaluations["mean_return"][-1] == 7.0


def test_a_damaged_run_is_told_and_the_others_are_read(tmp_path):
    for seed in (0, 1):
        run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", seed, steps=3000))
    (run / "evaluations.jsonl").write_text('{"step": 0}\nnonsense\n{"step": 1}\n')
    loaded = load(tmp_path)
    assert [each.seed for each in loaded.runs] == [0]
    assert "line 2 is not valid JSON" in loaded.damaged[run.name]
    with pytest.raises(ReportError, match="line 2"):
        load(run)


@pytest.mark.parametrize(("content", "told"), [({"algo": "acc"}, "env is None"), ([], "not a JSON object")])
def test_a_spec_that_is_none_is_told(tmp_path, content, told):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/spec.json").write_text(json.dumps(content))
    with pytest.raises(ReportError, match=told):
        load(tmp_path)


def test_where_a_run_that_ended_early_ended(tmp_path):
    for seed, (until, step) in enumerate([(3000, 3000), (2000, 2000), (2000, None)]):
        run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", seed, steps=3000), until=until)
        rows = [{"step": at, "mean_return": float(at)} for at in range(0, until + 1, 1000)]
        synthetic.write_rows(run / "evaluations.jsonl", rows)
        if step is not None:
            (run / "result.json").write_text(json.dumps({"step": step}))
    levels = [curves.final_level(run) for run in load(tmp_path).runs]
    assert levels[:2] == [3000, 2000]
    assert np.isnan(levels[2])


def test_a_column_that_only_rows_in_between_have_is_read(tmp_path):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=3000))
    rows = [{"step": at, "mean_return": 1.0, **({"success": 0.5} if at == 1000 else {})} for at in (0, 1000, 2000)]
    synthetic.write_rows(run / "evaluations.jsonl", rows)
    np.testing.assert_array_equal(load(tmp_path).runs[0].evaluations["success"], [np.nan, 0.5, np.nan])


@pytest.mark.parametrize("runs", [None, 7, [{"env": ["Hopper-v5"], "algo": "acc", "seed": 0, "steps": 9}, "no spec"]])
def test_a_plan_without_runs_that_can_be_shown(tmp_path, runs):
    synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=3000))
    (tmp_path / "study.json").write_text(json.dumps({"name": "x", "runs": runs}))
    assert load(tmp_path).absent() == []


def test_text_that_no_file_can_hold_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/spec.json").write_text(json.dumps({"env": "\ud800x", "algo": "acc", "seed": 0, "steps": 9}))
    with pytest.raises(ReportError, match="but must be a string"):
        load(tmp_path / "run")


def test_folders_without_runs(tmp_path):
    with pytest.raises(ReportError, match="holds no run"):
        load(tmp_path)
    with pytest.raises(ReportError, match="No such directory"):
        load(tmp_path / "nowhere")


def test_settings_that_differ_name_the_algorithm(tmp_path):
    for updates in (1, 4):
        spec = synthetic.spec("Hopper-v5", "acc", 0, steps=2000, critic_updates=updates, gamma=0.9)
        synthetic.write_run(tmp_path, spec)
    synthetic.write_run(tmp_path, synthetic.spec("Ant-v5", "acc", 0, steps=2000, critic_updates=4, gamma=0.99))
    assert load(tmp_path).labels == ["acc critic_updates=4", "acc critic_updates=1"]


@pytest.mark.parametrize(("key", "values"), [("steps", (2000, 3000)), ("n_envs", (1, 4))])
def test_runs_of_other_length_or_with_other_envs_are_not_pooled(tmp_path, key, values):
    for value in values:
        spec = synthetic.spec("Hopper-v5", "acc", 0, steps=2000) | {key: value}
        synthetic.write_run(tmp_path, spec, folder=f"{key}{value}")
    synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "sac", 0, steps=5000))
    assert load(tmp_path).labels == [*(f"acc {key}={value}" for value in values), "sac"]


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"normalize": True}, "normalize=True"),
        ({"time_limit": 50}, "time_limit=50"),
        ({"horizon": 200}, "horizon=200"),
        ({"env_kwargs": {"g": 5.0}}, "env.g=5.0"),
        ({"wrapper": ["mine:Noisy"]}, "wrapper=mine:Noisy"),
        ({"callback": ["mine:Watch"]}, "callback=mine:Watch"),
    ],
)
def test_runs_on_a_changed_task_are_not_pooled(tmp_path, changes, label):
    plain = synthetic.spec("Hopper-v5", "acc", 0, steps=2000)
    synthetic.write_run(tmp_path, plain, folder="plain")
    synthetic.write_run(tmp_path, plain | changes, folder="changed")
    study = load(tmp_path)
    assert sorted(study.labels) == ["acc", f"acc {label}"]
    assert sorted(run.label for run in study.runs) == ["acc", f"acc {label}"]


def test_tasks_of_other_length_do_not_name_the_algorithm(tmp_path):
    for task, steps in (("Hopper-v5", 2000), ("Ant-v5", 3000)):
        synthetic.write_run(tmp_path, synthetic.spec(task, "acc", 0, steps=steps))
    assert load(tmp_path).labels == ["acc"]


def test_a_damaged_run_is_not_absent(tmp_path):
    study = synthetic.write_study(tmp_path / "s", ["Hopper-v5"], ["acc"], range(4), steps=3000)
    shutil.rmtree(study / "Hopper-v5_acc_seed3")
    (study / "Hopper-v5_acc_seed1" / "evaluations.jsonl").write_text("nonsense\n{}\n")
    (study / "Hopper-v5_acc_seed2" / "spec.json").write_text("{")
    loaded = load(study)
    assert list(loaded.damaged) == ["Hopper-v5_acc_seed1", "Hopper-v5_acc_seed2"]
    assert [spec["seed"] for spec in loaded.absent()] == [3]


def test_studies_together_keep_their_algorithms_apart(study, tmp_path):
    other = synthetic.write_study(
        tmp_path / "b", ["Hopper-v5"], ["acc", "tqc-d2"], range(2), name="other", steps=40_000
    )
    shutil.rmtree(other / "Hopper-v5_acc_seed1")
    (other / "Hopper-v5_tqc-d2_seed0" / "spec.json").write_text("{")
    both = together([load(study), load(other)])
    assert both.name == "study and other"
    assert both.labels == ["acc", "acc-2q", "sac", "td3", "acc (other)", "tqc-d2"]
    assert len(both.of("Hopper-v5", "acc")) == 3
    assert [run.name for run in both.of("Hopper-v5", "acc (other)")] == ["other/Hopper-v5_acc_seed0"]
    absent = [(spec["label"], spec["seed"]) for spec in both.absent()]
    assert absent == [("sac", 1), ("acc (other)", 1)]  # the damaged one is not among them
    assert list(both.damaged) == ["other/Hopper-v5_tqc-d2_seed0"]
    assert both.about[1].startswith("other: Made from test")


def test_a_damaged_run_is_not_taken_for_another_studys_absent_one(tmp_path):
    whole, damaged = (
        synthetic.write_study(tmp_path / name, ["Hopper-v5"], ["acc"], range(2), name=name, steps=3000) for name in "ab"
    )
    shutil.rmtree(whole / "Hopper-v5_acc_seed1")
    (damaged / "Hopper-v5_acc_seed1" / "spec.json").write_text("{")
    both = together([load(whole), load(damaged)])
    assert [(spec["label"], spec["seed"]) for spec in both.absent()] == [("acc", 1)]


def test_studies_of_one_name_are_numbered(study):
    both = together([load(study), load(study)])
    assert both.name == "study and study 2"
    assert both.labels[4:] == ["acc (study 2)", "acc-2q (study 2)", "sac (study 2)", "td3 (study 2)"]


def test_unchanged_files_are_read_once(study):
    cache = {}
    first = load(study, cache)
    size = len(cache)
    again = load(study, cache)
    assert len(cache) == size > 0
    assert again.runs[0].evaluations is first.runs[0].evaluations


def test_a_file_that_grows_has_one_entry(tmp_path):
    run, cache = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=3000)), {}
    load(tmp_path, cache)
    size = len(cache)
    for step in range(4000, 8000, 1000):
        with (run / "evaluations.jsonl").open("a") as file:
            file.write(f'{{"step": {step}, "mean_return": 7.0}}\n')
        assert load(tmp_path, cache).runs[0].evaluations["step"][-1] == step
    assert len(cache) == size


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "is no plain file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a link"),
        (lambda path: (path.touch(), os.truncate(path, 1 << 40)), "not at most"),
        (lambda path: path.write_text("[" * 10**5 + "\n"), "line 1 is not valid JSON"),
    ],
)
def test_records_are_plain_files(tmp_path, make, told):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=3000))
    (run / "training.jsonl").unlink()
    make(run / "training.jsonl")
    with pytest.raises(ReportError, match=rf"training\.jsonl: .*{told}"):
        load(run)


@pytest.mark.parametrize(("key", "value"), [("steps", 0), ("steps", -5), ("steps", True), ("seed", -1), ("algo", 7)])
def test_a_spec_with_values_that_no_run_has(tmp_path, key, value):
    spec = synthetic.spec("Hopper-v5", "acc", 0, steps=3000)
    run = synthetic.write_run(tmp_path, spec)
    (run / "spec.json").write_text(json.dumps({**spec, key: value}))
    with pytest.raises(ReportError, match=f"{key} is {value}, but must be"):
        load(tmp_path)


def test_grid():
    assert curves.grid(10, 30).tolist() == [0, 10, 20, 30]
    assert curves.grid(10, 27).tolist() == [0, 10, 20, 27]
    assert curves.grid(10, 24).tolist() == [0, 10, 24]  # 20 would be too near to the end


def test_align_takes_the_nearest_and_leaves_gaps():
    onto = np.array([0.0, 10, 20, 30, 40])
    steps, values = np.array([0.0, 8, 11, 19, 41]), np.array([1.0, 2, 3, np.nan, 5])
    np.testing.assert_array_equal(curves.align(steps, values, onto), [1, 3, np.nan, np.nan, 5])


def rewrite(run, name, steps, column):
    synthetic.write_rows(run / name, [{"step": step, column: float(step)} for step in steps])


def test_a_sparse_run_does_not_make_the_grid_coarse(tmp_path):
    for seed in range(2):
        sparse = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", seed, steps=10_000))
    rewrite(sparse, "evaluations.jsonl", range(0, 10_001, 5000), "mean_return")
    rewrite(sparse, "value_error.jsonl", range(0, 10_001, 5000), "bias")
    runs = load(tmp_path).runs
    steps, values = curves.table(runs, "evaluations", "mean_return", 10_000)
    assert steps.tolist() == list(range(0, 10_001, 1000))
    assert np.isfinite(values).sum(axis=1).tolist() == [11, 3]
    for run, every in zip(runs, (1000, 5000), strict=True):
        assert curves.spacing([run], "value_error") == every
    assert curves.spacing([runs[0], runs[0], runs[1]], "value_error") == 1000


def test_value_errors_end_with_their_last_row_and_hold_between_rows(tmp_path):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=10_000))
    rewrite(run, "value_error.jsonl", (1000, 2000, 3000, 5000, 6100), "bias")
    steps, values = curves.table(load(tmp_path).runs, "value_error", "bias", 10_000)
    assert steps.tolist() == [0, 1000, 2000, 3000, 4000, 5000, 6100]
    np.testing.assert_array_equal(values[0], [np.nan, 1000, 2000, 3000, 5000, 5000, 6100])


def test_one_row_makes_no_fine_grid(tmp_path):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=10_000))
    for rows, steps, values in (((2000,), [0, 2000], [np.nan, 2000]), ((0,), [0, 1], [0, np.nan])):
        rewrite(run, "value_error.jsonl", rows, "bias")
        found = curves.table(load(tmp_path).runs, "value_error", "bias", 10_000)
        assert found[0].tolist() == steps
        np.testing.assert_array_equal(found[1][0], values)


def test_the_level_itself_is_reached(tmp_path):
    rng = np.random.default_rng(0)
    for trial in range(5):
        for seed in range(3):
            run = synthetic.write_run(tmp_path / str(trial), synthetic.spec("Hopper-v5", "sac", seed, steps=6000))
            rows = [{"step": step, "mean_return": -150 - 1500 * rng.random()} for step in range(0, 5001, 1000)]
            synthetic.write_rows(run / "evaluations.jsonl", [*rows, {"step": 6000, "mean_return": -145 * rng.random()}])
        runs = load(tmp_path / str(trial)).runs
        level = float(np.mean([curves.final_level(run) for run in runs]))
        assert curves.steps_to_reach(runs, level, 6000) == 6000
        assert np.isnan(curves.steps_to_reach(runs, level + 1e-3, 6000))


def test_a_filter_of_one_changes_no_digit():
    values = np.random.default_rng(0).normal(size=50) * 1e6
    np.testing.assert_array_equal(curves.smooth(values, 1), values)


def test_smooth():
    values = np.array([[1.0, 2, 3, np.nan, 5]])
    np.testing.assert_array_equal(curves.smooth(values, 3), [[1.5, 2, 2.5, np.nan, 5]])
    np.testing.assert_array_equal(curves.smooth(values, 1), values)


def test_smooth_equals_a_convolution_inside():
    values = np.random.default_rng(0).normal(size=50)
    inside = np.convolve(values, np.ones(15) / 15, mode="valid")
    np.testing.assert_allclose(curves.smooth(values, 15)[7:-7], inside, rtol=1e-9)


def test_thin_keeps_the_ends():
    assert curves.thin(3).tolist() == [0, 1, 2]
    some = curves.thin(5000, 100)
    assert (len(some), some[0], some[-1]) == (100, 0, 4999)


def test_scores_are_divided_by_the_best_unless_that_is_negative(tmp_path):
    path = synthetic.write_study(tmp_path / "s", ["Hopper-v5", "Pendulum-v1"], ["acc", "sac"], range(2), steps=20_000)
    loaded = load(path)
    scales = curves.scales(loaded)
    for task in loaded.tasks:
        scores = [scales[task](run.evaluations["mean_return"]) for run in loaded.runs if run.task == task]
        assert max(each.max() for each in scores) == 1
    assert scales["Hopper-v5"].low == 0
    assert scales["Pendulum-v1"](np.array([scales["Pendulum-v1"].low])) == 0
    assert scales["Pendulum-v1"].high > scales["Pendulum-v1"].low


def test_a_given_table_normalises(study, tmp_path):
    file = tmp_path / "scales.csv"
    file.write_text("task,low,high\nHopper-v5,-100,900\nHalfCheetah-v5,0,10\n", encoding="utf-8-sig")  # as Excel does
    scale = curves.scales(load(study), curves.read_scales(file))["Hopper-v5"]
    assert scale(np.array([-100.0, 400, 900])).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("task,low\nHopper-v5,1\n", "line 2 needs task, low and high"),
        ("task,low,high\nHopper-v5,1,x\n", "line 2 needs"),
        ("task,low,high\nHopper-v5,1,1\n", "high is 1, but must be larger than low, 1"),
        ("task,low,high\n", "has no rows"),
    ],
)
def test_wrong_tables(tmp_path, text, told):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ReportError, match=told):
        curves.read_scales(tmp_path / "t.csv")


def test_a_task_that_the_table_lacks(study):
    with pytest.raises(ReportError, match="no row for HalfCheetah-v5; it has Hopper-v5"):
        curves.scales(load(study), {"Hopper-v5": (0, 1)})


def test_final_levels_and_steps_to_reach(tmp_path):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=40_000))
    rows = [{"step": step, "mean_return": float(step)} for step in range(0, 40_001, 1000)]
    synthetic.write_rows(run / "evaluations.jsonl", rows)
    loaded = load(tmp_path).runs
    assert curves.final_level(loaded[0]) == 39_000  # of 38,000, 39,000 and 40,000
    assert curves.level_at(loaded[0], 20_000) == 19_500
    assert curves.steps_to_reach(loaded, 20_000, 40_000) == 20_000
    assert np.isnan(curves.steps_to_reach(loaded, 50_000, 40_000))
