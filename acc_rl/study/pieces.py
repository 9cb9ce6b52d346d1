"""Studies done in pieces, on machines that come and go: what an archive has, and what a folder adds to it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from acc_rl.runs.config import differences, finished, read_spec
from acc_rl.runs.folder import run_folder
from acc_rl.runs.spec import RunSpec
from acc_rl.store import records
from acc_rl.store.archive import pack, runs_in, unpacked
from acc_rl.store.lock import LOCK, exclusive
from acc_rl.study.folder import PATIENCE, StudyError, last_step, read_study


def finished_in(archives: Iterable[Path], specs: Sequence[RunSpec]) -> set[str]:
    """The names of the runs that one of the archives has to their end"""
    found: set[str] = set()
    for path in archives:
        if not path.exists():
            raise StudyError(f"{path}: no such archive")
        with unpacked(path) as folder:
            for spec in specs:
                if (run_folder(folder, spec) / records.SPEC).exists():
                    _require_same(path, folder / spec.name, spec)
                    found |= {spec.name} if finished(folder / spec.name, spec) else set()
    return found


def _require_same(archive: Path, there: Path, spec: RunSpec) -> None:
    if differ := differences(records.read_json(there / records.SPEC), spec):
        raise StudyError(f"{archive} has {spec.name} with other settings ({', '.join(differ)}): use another archive")


def add(folder: Path, file: Path) -> dict[str, list[str]]:
    """Merge the records of a study's runs into an archive; the names of the runs that were added, replaced and kept.

    Of a run that both have, the one with more steps stays; but only a finished one replaces a finished one.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(file.parent, f".{file.name}{LOCK}", PATIENCE) as free:
        if not free:
            raise StudyError(f"{file}: another process has been adding to it for {PATIENCE:g} s: end it, or try again")
        if not file.is_file():
            return {"added": pack(folder, file), "replaced": [], "kept": []}
        return _merged(runs_in(folder), folder, file)


def _merged(runs: Sequence[Path], folder: Path, file: Path) -> dict[str, list[str]]:
    merged: dict[str, list[str]] = {"added": [], "replaced": [], "kept": []}
    with unpacked(file) as both:
        _merge_names(folder, both)
        for run in runs:
            there = both / run.name
            there = there if there.exists() else run_folder(both, read_spec(run))
            what = "added" if not there.exists() else "replaced" if _is_further(file, run, there) else "kept"
            merged[what].append(run.name)
            if what != "kept":
                _copy_records(run, there)
        pack(both, file)
    return merged


def _is_further(archive: Path, run: Path, there: Path) -> bool:
    """Whether ``run`` is to replace the same run that is ``there``"""
    _require_same(archive, there, read_spec(run))
    mine, theirs = ((finished(each, read_spec(each)), last_step(each)) for each in (run, there))
    if mine[0] != theirs[0]:
        return mine[0]
    return mine[1] > theirs[1]


def _copy_records(run: Path, there: Path) -> None:
    shutil.rmtree(there, ignore_errors=True)
    there.mkdir()
    for path in (run / name for name in records.RECORDS):
        if path.exists():
            shutil.copyfile(path, there / path.name, follow_symlinks=False)


def _merge_names(folder: Path, both: Path) -> None:
    """study.json names the runs of both"""
    if not (folder / records.STUDY).exists():
        return
    content, target = records.read_json(folder / records.STUDY), both / records.STUDY
    if target.exists():
        content = records.read_json(target)
        known = {spec.name for spec in read_study(both).runs}
        content["runs"] += [spec.as_dict() for spec in read_study(folder).runs if spec.name not in known]
    records.write_json(target, content)
