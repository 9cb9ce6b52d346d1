"""A study on disk: ``study.json`` names its runs, each has a folder of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from acc_rl.runs.config import finished, read_spec
from acc_rl.runs.spec import RunSpec, from_dict
from acc_rl.store import records
from acc_rl.study.leases import Watch

LEASES, LOGS = "leases", "logs"


class StudyError(ValueError):
    """The folder holds something else."""


@dataclass(frozen=True)
class Study:
    folder: Path
    name: str
    source: str
    scale: float
    runs: tuple[RunSpec, ...]

    def finished(self, spec: RunSpec) -> bool:
        return finished(self.folder / spec.name, spec)

    def log(self, spec: RunSpec) -> Path:
        return self.folder / LOGS / f"{spec.name}.log"

    def leases(self, spec: RunSpec) -> Path:
        return self.folder / LEASES / spec.name


def open_study(folder: Path, name: str, source: str, scale: float, specs: Sequence[RunSpec]) -> Study:
    """The study of these runs; those that the folder has already stay in it, with the settings they have."""
    for part in (LEASES, LOGS):
        (folder / part).mkdir(parents=True, exist_ok=True)
    watch = Watch(folder / LEASES)
    while (lease := watch.take(records.STUDY)) is None:
        time.sleep(0.1)
    try:
        there = read_study(folder) if (folder / records.STUDY).exists() else None
        known = {spec.name: spec for spec in there.runs} if there else {}
        for spec in specs:
            _require_same(folder, known.get(spec.name, spec), spec)
        added = [spec for spec in specs if spec.name not in known]
        if there is None or added:
            content = (
                records.read_json(folder / records.STUDY) if there else {"name": name, "source": source, "scale": scale}
            )
            content.setdefault("created", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
            content["runs"] = [spec.as_dict() for spec in [*known.values(), *added]]
            records.write_json(folder / records.STUDY, content)
    finally:
        lease.end("finished")
    return Study(folder, name, source, scale, tuple(specs))


def _require_same(folder: Path, there: RunSpec, wanted: RunSpec) -> None:
    old, new = there.as_dict(), wanted.as_dict()
    differ = [f"{key}: {old[key]} there, {new[key]} now" for key in new if old[key] != new[key]]
    if differ:
        raise StudyError(f"{folder} has {wanted.name} with other settings ({'; '.join(differ)}): use another --out")


def read_study(folder: Path) -> Study:
    """What the folder says; run folders without study.json are a study too."""
    if (folder / records.STUDY).exists():
        content = records.read_json(folder / records.STUDY)
        runs = content.get("runs")
        if not isinstance(runs, list):
            raise records.RecordError(f"{folder / records.STUDY}: runs is no list")
        specs = [from_dict(each) for each in runs]
        return Study(
            folder, str(content.get("name")), str(content.get("source")), content.get("scale", 1), tuple(specs)
        )
    if not folder.is_dir():
        raise StudyError(f"{folder} is no folder")
    found = [read_spec(path.parent) for path in sorted(folder.glob(f"*/{records.SPEC}"))]
    if not found:
        raise StudyError(f"{folder} holds no study: neither {records.STUDY} nor run folders")
    return Study(folder, folder.name, str(folder), 1.0, tuple(found))
