"""Studies done in pieces: archives that grow, and runs that are left out because an archive has them."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console
from tiny_studies import small_study, write_file

from acc_rl.commands.main import main
from acc_rl.commands.study import Run
from acc_rl.runs.folder import run_folder
from acc_rl.runs.spec import RunSpec
from acc_rl.store import records
from acc_rl.store.archive import pack, unpacked
from acc_rl.study.folder import Part, read_study
from acc_rl.study.pieces import add
from acc_rl.study.status import study_status
from acc_rl.study.table import headline, table


def make(study, spec, step, mark="", **changes):
    """A run's records up to a step, with a result if that is the last one"""
    folder = study.folder / spec.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    records.write_json(folder / records.SPEC, {**spec.as_dict(), "resolved": {}, **changes})
    records.Rows(folder / records.EVALUATIONS).append({"step": step, "mean_return": -1.0})
    records.write_json(folder / records.PROVENANCE, {"started": mark})
    if step >= changes.get("steps", spec.steps):
        records.write_json(folder / records.RESULT, {"step": step})


@pytest.fixture
def study(tmp_path):
    return small_study(tmp_path / "a", seeds=3)


def marks(file):
    with unpacked(file) as folder:
        found = {path.parent.name: json.loads(path.read_text()) for path in folder.glob(f"*/{records.PROVENANCE}")}
        return {name: content["started"] for name, content in found.items()}, len(read_study(folder).runs)


@pytest.mark.parametrize("folder", ["nowhere", "small/Hopper-v5_sac_seed0"])
def test_pack_add_of_a_folder_without_runs_is_an_error(study, tmp_path, capsys, folder):
    file = tmp_path / "small.tar.gz"
    make(study, study.runs[0], 400)
    pack(study.folder, file)
    before = file.read_bytes()
    assert main(["study", "pack", "--add", str(tmp_path / folder), str(file)]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_archives_that_are_added_to_at_the_same_time_lose_nothing(tmp_path):
    """Each process adds one run of its own"""
    file, studies = tmp_path / "small.tar.gz", [small_study(tmp_path / str(i), seeds=3) for i in range(4)]
    for study, spec in zip(studies, studies[0].runs, strict=False):
        make(study, spec, 400)
    code = "import sys; from acc_rl.commands.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "study", "pack", "--add"]
    adding = [subprocess.Popen([*command, study.folder, file], stdout=subprocess.DEVNULL) for study in studies]
    assert [each.wait(120) for each in adding] == [0, 0, 0, 0]
    assert set(marks(file)[0]) == {spec.name for spec in studies[0].runs[:4]}


def test_pack_add_keeps_what_is_further(study, tmp_path, capsys):
    finished, unfinished, behind, longer, new, _ = study.runs
    file = tmp_path / "small.tar.gz"
    make(study, finished, 400, "old")
    make(study, unfinished, 100, "old")
    make(study, behind, 300, "old")
    make(study, longer, 400, "old")
    pack(study.folder, file)
    more = small_study(tmp_path / "b", seeds=3)
    make(more, finished, 300, "new")
    make(more, unfinished, 200, "new")
    make(more, behind, 200, "new")
    make(more, longer, 900, "new", steps=900)
    make(more, new, 400, "new")
    (more.folder / new.name / "policy.safetensors").write_bytes(b"weights stay where they are")
    assert main(["study", "pack", "--add", str(more.folder), str(file)]) == 0
    out = capsys.readouterr().out
    assert f"1 runs added: {new.name}\n" in out
    assert f"2 runs replaced: {', '.join(sorted([unfinished.name, longer.name]))}\n" in out
    assert f"2 runs kept: {', '.join(sorted([finished.name, behind.name]))}\n" in out
    found, named = marks(file)
    names = {finished.name: "old", unfinished.name: "new", behind.name: "old", longer.name: "new", new.name: "new"}
    assert (found, named) == (names, 6)
    before = file.read_bytes()
    assert main(["study", "pack", "--add", str(more.folder), str(file)]) == 0
    assert "5 runs kept" in capsys.readouterr().out
    assert file.read_bytes() == before


def test_pack_add_makes_the_file_and_refuses_other_runs(study, tmp_path, capsys):
    file = tmp_path / "small.tar.gz"
    make(study, study.runs[0], 400)
    assert main(["study", "pack", "--add", str(study.folder), str(file)]) == 0
    assert f"1 runs added: {study.runs[0].name}" in capsys.readouterr().out
    before = file.read_bytes()
    make(study, study.runs[0], 400, eval_every=7)
    assert main(["study", "pack", "--add", str(study.folder), str(file)]) == 2
    err = capsys.readouterr().err
    assert f"{file} has {study.runs[0].name} with other settings (eval_every)" in err
    assert err.count("\n") == 1
    assert file.read_bytes() == before
    (tmp_path / "x.tar.gz").write_bytes(b"no archive")
    assert main(["study", "pack", "--add", str(study.folder), str(tmp_path / "x.tar.gz")]) == 2
    assert (tmp_path / "x.tar.gz").read_bytes() == b"no archive"


def test_study_json_of_an_archive_names_the_runs_of_all_pieces(tmp_path):
    for name, seeds in (("a", [0, 1]), ("b", [1, 2])):
        piece = small_study(tmp_path / name, seeds=seeds, variants=["acc"])
        for spec in piece.runs:
            make(piece, spec, 400)
        assert main(["study", "pack", "--add", str(piece.folder), str(tmp_path / "all.tar.gz")]) == 0
    with unpacked(tmp_path / "all.tar.gz") as folder:
        assert [spec.seed for spec in read_study(folder).runs] == [0, 1, 2]


def test_what_an_archive_has_is_left_out(clean, tmp_path, capsys):
    """One of two runs is in the archive, finished; the other one is trained, and merged into it."""
    file, toml = tmp_path / "have.tar.gz", write_file(tmp_path / "small.toml", variants=["acc", "td3"])
    before = small_study(tmp_path / "before")
    acc, td3 = before.runs
    shutil.copytree(clean.folder / acc.name, before.folder / acc.name)
    make(before, td3, 100)
    pack(before.folder, file)
    words = ["study", str(toml), "--out", str(tmp_path / "out")]
    assert main([*words, "--have", str(file), "--dry-run"]) == 0
    assert "study small: 1 runs" in capsys.readouterr().out
    assert main([*words, "--have", str(file), "--part", "1/2"]) == 0
    assert "none of its 2 runs is left to do here" in capsys.readouterr().out
    assert main([*words, "--have", str(file)]) == 0
    out = capsys.readouterr().out
    assert f"1 of 2 runs are in {file}" in out
    assert "study small: 1 runs, 1 finished" in out
    folder = tmp_path / "out" / "small"
    assert [spec.name for spec in read_study(folder).runs] == [td3.name]
    assert main(["study", "pack", "--add", str(folder), str(file)]) == 0
    assert f"1 runs replaced: {td3.name}" in capsys.readouterr().out
    assert main([*words, "--have", str(file)]) == 0
    assert "2 of 2 runs are in" in capsys.readouterr().out


def test_an_archive_of_other_settings_is_refused_before_anything_is_trained(study, tmp_path, capsys):
    make(study, study.runs[0], 400, log_every=7)
    pack(study.folder, tmp_path / "other.tar.gz")
    toml = write_file(tmp_path / "small.toml", variants=["acc", "td3"], seeds=3)
    assert main(["study", str(toml), "--out", str(tmp_path / "out"), "--have", str(tmp_path / "other.tar.gz")]) == 2
    assert f"{study.runs[0].name} with other settings (log_every)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_runs_part_does_not_depend_on_what_an_archive_has(study, tmp_path):
    """Machines that start with different archives have no run in common."""
    make(study, study.runs[0], 400)
    pack(study.folder, tmp_path / "one.tar.gz")
    for number in (1, 2):
        part = Part(number, 2)
        _, without = Run("x")._select(study.runs, part, None)
        assert without == part.select(study.runs)
        _, having = Run("x", have=(tmp_path / "one.tar.gz",))._select(study.runs, part, Console(quiet=True))
        assert having == [spec for spec in without if spec.name != study.runs[0].name]


def test_a_run_whose_folder_was_renamed_is_the_same_run(tmp_path):
    settings = {"learning_rate": 0.001, "batch_size": 64, "learning_starts": 500, "buffer_size": 20_000}
    spec = RunSpec("Hopper", steps=10, settings=settings)
    assert spec.name != spec.old_names[0]
    folder = tmp_path / "study" / spec.old_names[0]
    folder.mkdir(parents=True)
    records.write_json(folder / records.SPEC, spec.as_dict())
    records.write_json(folder / records.RESULT, {"step": 10})
    file = tmp_path / "study.tar.gz"
    pack(folder.parent, file)
    run_folder(folder.parent, spec)
    assert add(folder.parent, file) == {"added": [], "replaced": [], "kept": [spec.name]}
    with unpacked(file) as there:
        assert [each.parent.name for each in there.glob(f"*/{records.SPEC}")] == [spec.name]


def test_a_folder_renamed_by_hand_is_added_once(study, tmp_path):
    make(study, study.runs[0], 400)
    (study.folder / study.runs[0].name).rename(study.folder / "first try")
    file = tmp_path / "small.tar.gz"
    add(study.folder, file)
    assert add(study.folder, file) == {"added": [], "replaced": [], "kept": ["first try"]}


def test_a_run_that_ended_early_has_no_steps_left(study, capsys):
    spec = replace(study.runs[0], callback=("module:Class",))
    make(study, spec, 100)
    records.write_json(study.folder / spec.name / records.RESULT, {"step": 100, "ended_by": "callback"})
    early = replace(study, runs=(spec,))
    (status,) = study_status(early)
    assert (status.state, status.step, status.left) == ("finished", 100, 0.0)
    running = replace(status, state="running", name="other [bold]", step=100, steps=200, seconds=10.0)
    assert headline(early, [replace(status, seconds=10.0, steps=10**6), running]).endswith("about 0:00:10 left")
    Console(width=200).print(table(early, [status, running]))
    told = capsys.readouterr().out
    assert "other [bold]" in told
    assert "[green]" not in told
