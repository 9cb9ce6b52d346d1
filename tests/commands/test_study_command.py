"""``acc study`` without training: what it says."""

import json
import multiprocessing as mp
import os
import re
from contextlib import nullcontext
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from tiny_studies import small_study, write_file

from acc_rl.commands.main import main
from acc_rl.commands.study import scale_notice
from acc_rl.store import records
from acc_rl.store.lock import LOCK, exclusive
from acc_rl.study.attempts import AttemptLog, End
from acc_rl.study.folder import Part, last_row, open_study, read_study
from acc_rl.study.presets import PRESETS
from acc_rl.study.status import counts, study_status
from acc_rl.study.table import Progress, cells, duration, table


@pytest.fixture
def half_done(tmp_path):
    """Six runs: finished, running, failed, cut off, two waiting"""
    study = small_study(tmp_path, seeds=3)
    finished, running, failed, cut_off, *_ = study.runs
    for spec, step, score in ((finished, 400, -100.0), (running, 200, -200.0), (failed, 0, -300.0), (cut_off, 200, -4)):
        folder = study.folder / spec.name
        folder.mkdir()
        records.Rows(folder / records.EVALUATIONS).append({"step": step, "mean_return": score})
        records.Rows(folder / records.TRAINING).append({"step": step, "beta": 2.25, "dropped_per_net": 2.75})
        records.Rows(folder / records.CLOCK).append({"step": max(1, step), "seconds": step / 10})
    records.write_json(study.folder / finished.name / records.RESULT, {"step": 400})
    records.write_json(study.folder / finished.name / records.SPEC, finished.as_dict())
    log = AttemptLog(study)
    for spec in (failed, cut_off, running):
        log.started(spec.name, {})
    log.ended(failed.name, {}, End("failed", 0, ("Traceback ...", "RuntimeError: the robot fell over")))
    log.ended(cut_off.name, {}, End("stopped", 200))
    with exclusive(study.folder):
        yield study


def test_status(half_done, capsys):
    statuses = study_status(half_done)
    assert [each.state for each in statuses] == ["finished", "running", "failed", "cut off", "waiting", "waiting"]
    assert counts(statuses) == {"finished": 1, "running": 1, "failed": 1, "cut off": 1, "waiting": 2}
    running = statuses[1]
    assert (running.step, running.steps, running.score, running.dropped) == (200, 400, -200.0, 2.75)
    assert (running.seconds, running.left) == (20.0, 20.0)  # ten steps per second, 200 to go
    assert cells(running)[1:] == ["running", "200/400", "-200.0", "2.75", "0:00:20"]
    assert main(["study", "status", str(half_done.folder)]) == 0
    out = capsys.readouterr().out
    assert "6 runs, 1 finished, 1 running, 1 failed, 1 cut off, 2 waiting" in " ".join(out.split())
    assert main(["study", "status", str(half_done.folder), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["counts"]["failed"] == 1
    assert content["runs"][2]["error"][-1] == "RuntimeError: the robot fell over"


@pytest.mark.parametrize(("algo", "knob"), [("sac", ""), ("acc-sac", "beta 0.25")])
def test_beta_is_shown_where_it_is_turned(algo, knob, tmp_path):
    study = small_study(tmp_path, variants=[algo])
    folder = study.folder / study.runs[0].name
    folder.mkdir()
    records.Rows(folder / records.TRAINING).append({"step": 200, "beta": 0.25})
    assert cells(study_status(study)[0])[4] == knob
    records.Rows(folder / records.TRAINING).append({"step": 300, "beta": 0.25, "at_limit": 1.0})
    assert study_status(study)[0].at_limit
    assert cells(study_status(study)[0])[4].endswith("(limit)")


def test_failed(half_done, capsys):
    half_done.log(half_done.runs[2]).write_text("...")
    assert main(["study", "failed", str(half_done.folder)]) == 0
    out = capsys.readouterr().out
    assert f"{half_done.runs[2].name}: failed at step 0 of 400, 1 attempts" in out
    assert "    RuntimeError: the robot fell over" in out
    assert "1 of 6 runs failed; start the study again to retry" in out


def test_a_folder_of_runs_without_study_json_is_a_study(half_done, capsys):
    (half_done.folder / records.STUDY).unlink()
    for spec in half_done.runs[:2]:
        records.write_json(half_done.folder / spec.name / records.SPEC, {**spec.as_dict(), "resolved": {}})
    assert sorted(each.state for each in study_status(read_study(half_done.folder))) == ["finished", "running"]


def test_the_table_fits_and_shows_what_matters_first(half_done):
    console = Console(width=120, record=True, file=StringIO())
    console.print(table(half_done, study_status(half_done), max_rows=2))
    text = console.export_text()
    assert "running" in text
    assert "waiting │" not in text
    assert "4 more: acc study status" in text


def test_live_on_a_terminal_and_lines_elsewhere(half_done, tmp_path):
    with (tmp_path / "out").open("w") as file:
        live = Console(file=file, force_terminal=True, width=150)
        with Progress(half_done, live) as progress:
            assert progress.live is not None
            progress.started(half_done.runs[0])
    assert "200/400" in (tmp_path / "out").read_text()
    with (tmp_path / "lines").open("w") as file, Progress(half_done, Console(file=file, width=40)) as progress:
        progress.started(half_done.runs[1])
        progress.shown -= 100
        progress.refresh()
        progress.ended(half_done.runs[0], "finished")
    lines = (tmp_path / "lines").read_text().splitlines()
    first, second = (spec.name for spec in half_done.runs[:2])
    assert lines[:2] == [f"{second}: started", f"{second}: running, 200/400, -200.0, 2.75, 0:00:20"]
    assert lines[-1] == f"{first}: finished at step 400 of 400, evaluation -100.0"


def test_durations():
    assert (duration(59.6), duration(3 * 3600), duration(2.5 * 86400)) == ("0:01:00", "3:00:00", "2 days, 12:00:00")


def test_the_last_row_of_a_file_that_is_being_written(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert last_row(path) == {}
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert last_row(path) == {"step": 2}
    path.write_text("x" * 100 + '\n{"step": 3}\n')
    assert last_row(path, span=20) == {"step": 3}


def test_a_study_can_grow_but_not_change(tmp_path):
    first = small_study(tmp_path, seeds=1)
    small_study(tmp_path, seeds=2)
    assert len(read_study(first.folder).runs) == 4
    again = small_study(tmp_path, seeds=1)  # works on two of the four
    assert len(again.runs) == 2
    assert len(read_study(first.folder).runs) == 4
    with pytest.raises(ValueError, match="with other settings \\(steps: 400 there, 900 now\\): use another --out"):
        small_study(tmp_path, steps=900)
    content = records.read_json(first.folder / records.STUDY)
    assert (content["name"], content["source"], content["scale"]) == ("small", "test", 1.0)
    assert content["created"]


def test_two_open_a_study_at_once(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    runs = PRESETS["quick"][1].runs()
    parts = [runs[i::6] for i in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda part: open_study(tmp_path, "x", "test", 1.0, part), parts))
    assert {spec.name for spec in read_study(tmp_path).runs} == {spec.name for spec in runs}


def _open_without_locks(folder, runs, at_once):
    from acc_rl.study import folder as module

    module.exclusive = lambda *_: nullcontext(True)
    for number in range(10):
        at_once.wait(20)
        open_study(folder / str(number), "x", "test", 1.0, runs)


def test_parts_open_a_study_at_once_on_a_file_system_without_locks(tmp_path):
    runs = PRESETS["quick"][1].runs()
    context = mp.get_context("fork")
    at_once = context.Barrier(4)
    parts = [context.Process(target=_open_without_locks, args=(tmp_path, runs, at_once)) for _ in range(4)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    assert [part.exitcode for part in parts] == [0] * 4
    for number in range(10):
        assert [spec.name for spec in read_study(tmp_path / str(number)).runs] == [spec.name for spec in runs]
        assert {path.name for path in (tmp_path / str(number)).iterdir()} == {records.STUDY, "logs"}


@pytest.mark.parametrize("of", [1, 3, 16, 40])
def test_parts_have_no_run_in_common_and_together_all(of):
    runs = PRESETS["quick"][1].runs()
    parts = [Part(number, of).select(runs) for number in range(1, of + 1)]
    names = [spec.name for part in parts for spec in part]
    assert sorted(names) == sorted(spec.name for spec in runs)
    assert len(set(names)) == len(names)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert parts == [Part.parse(f"{number}/{of}").select(PRESETS["quick"][1].runs()) for number in range(1, of + 1)]
    # more seeds, later: every run stays in its part
    more = PRESETS["quick"][1].select(seeds=5).runs()
    assert all(set(part) <= set(Part(number, of).select(more)) for number, part in enumerate(parts, start=1))


def test_status_of_parts(tmp_path):
    """An attempt without an end is running as long as the supervisor of its own part lives."""
    study = small_study(tmp_path, seeds=1)
    for number, spec in enumerate(study.runs, start=1):
        AttemptLog(replace(study, part=Part(number, 2))).started(spec.name, {})
        (study.folder / spec.name).mkdir()
    assert [each.state for each in study_status(study)] == ["cut off", "cut off"]
    with exclusive(study.folder, f"{LOCK}-2-of-2"):
        assert [each.state for each in study_status(study)] == ["cut off", "running"]


def test_dry_run(tmp_path, capsys):
    file = write_file(tmp_path / "mine.toml", variants=["td3"], seeds=3)
    assert main(["study", str(file), "--dry-run", "--out", str(tmp_path / "out"), "--workers", "2"]) == 0
    out = capsys.readouterr().out
    assert "study small: 3 runs, 1,200 steps, about" in out
    assert "hours with 2 workers" in out
    assert "Pendulum-v1" in out
    assert not (tmp_path / "out").exists()
    assert main(["study", str(file), "--dry-run", "--out", str(tmp_path / "out"), "--part", "2/2"]) == 0
    assert "study small: 1 runs, 400 steps, about" in capsys.readouterr().out
    assert main(["study", str(file), "--dry-run", "--part", "4/4"]) == 0
    assert "none of its 3 runs is left to do here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ('{ algo = "td3", settings = { n_atoms = 5 } }', "td3 of the study: td3 has no setting n_atoms; it takes"),
        ('{ algo = "acc-x", settings = { nets = "simba", qf = [16, 32] } }', "acc-x of the study: .*simba"),
        ('{ algo = "acc-x", settings = { n_atoms = 1 } }', "acc-x of the study: n_atoms is 1, but must be"),
    ],
)
def test_settings_that_do_not_fit_are_named_before_any_run(tmp_path, capsys, variant, message):
    file = write_file(tmp_path / "mine.toml", variants=["td3"])
    file.write_text(file.read_text().replace("['td3']", f'["td3", {variant}]'))
    assert main(["study", str(file), "--out", str(tmp_path / "out")]) == 2
    assert re.search(f"acc: error: {message}", capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_scale_says_what_it_leaves_alone():
    text = scale_notice(0.002, PRESETS["gym"][1].select(["Hopper", "Humanoid"], 1, 0.0025).runs())
    for name in ("eval_every", "learning_starts", "bias.start_step", "bias.update_interval"):
        assert name in text
    assert "2 of 2 runs of ACC end before bias.start_step" in text
    assert "end before" not in scale_notice(0.5, PRESETS["gym"][1].select(scale=0.5).runs())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gim"], "unknown study 'gim'; did you mean gym?"),
        (["nowhere.toml"], "nowhere.toml: No such file"),
        (["gym", "--tasks", "Hoper"], "gym has no task 'Hoper'; did you mean Hopper-v5?"),
        (["gym", "--scale", "-1"], "scale is -1.0, but must be a number > 0 and <= 1000"),
        (["gym", "--workers", "0"], "workers is 0, but must be >= 1"),
        (["gym", "--timeout", "0"], "timeout is 0.0, but must be >= 60"),
        (["gym", "--checkpoint-every", "0"], "checkpoint_every is 0, but must be >= 1"),
        (["gym", "--part", "17/16"], "part is '17/16', but must be K/N with 1 <= K <= N"),
        (["gym", "--part", "0/16"], "part is '0/16'"),
        (["gym", "--part", "half"], "part is 'half'"),
        (["gym", "--have", "nowhere.tar.gz"], "nowhere.tar.gz: no such archive"),
        (["status", "nowhere"], "nowhere is not a directory"),
        (["failed", "."], "holds no study"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["study", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_pipes_and_endless_nesting_in_place_of_records_are_passed_over(tmp_path):
    study = small_study(tmp_path, seeds=1)
    folder = study.folder / study.runs[0].name
    folder.mkdir()
    os.mkfifo(folder / records.TRAINING)
    (folder / records.EVALUATIONS).write_text('{"step": 100, "mean_return": 1.0}\n' + "[" * 20_000 + "\n")
    status = study_status(study)[0]
    assert (status.step, status.score) == (100, 1.0)
