"""Folders of runs, read into arrays."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

import acc_rl.store.records as records
from acc_rl.core.checks import is_whole
from acc_rl.core.errors import AccError
from acc_rl.runs.spec import RUN, VARIED, Allowed

Array = NDArray[np.float64]
Columns = Mapping[str, Array]

GAPS = ("gap", "gap_soft", "gap_full")
COLUMNS = {
    records.EVALUATIONS: ("step", "mean_return", "success"),
    records.TRAINING: ("step", "dropped_per_net", "beta", "at_limit", *GAPS, *(f"{gap}_error" for gap in GAPS)),
    records.VALUE_ERROR: ("step", "bias", "bias_soft", "normalised", "relative"),
    records.CLOCK: ("step", "seconds"),
}
OF_TASK = (*(name for name in VARIED if name != "env_kwargs"), "horizon")
TEXT: Allowed = ("a string", lambda value: isinstance(value, str) and not re.search("[\ud800-\udfff]", value))
KEYS: Mapping[str, Allowed] = {"env": TEXT, "algo": TEXT, "seed": RUN["seed"], "steps": RUN["steps"]}
"""what a spec must have to be shown"""


class ReportError(AccError):
    """Nothing that a report could be made of."""


@dataclass(frozen=True)
class Run:
    """One run: what was asked for and what was recorded."""

    name: str
    task: str
    algo: str
    seed: int
    steps: int
    """env steps it is to take"""
    spec: Mapping[str, Any]
    provenance: Mapping[str, Any]
    finished: bool
    evaluations: Columns
    training: Columns
    value_error: Columns
    clock: Columns
    label: str = ""
    """the algorithm's name in the report: its own, and the settings in which its runs on one task differ"""
    ended: int | None = None
    """the step at which it finished, which ``stop_at`` or a callback may have brought forward"""

    @property
    def end(self) -> int:
        """The step at which it finished, or is to finish"""
        return self.steps if self.ended is None else min(self.ended, self.steps)

    def rows(self, part: str) -> Columns:
        """evaluations, training, value_error or clock"""
        columns: Columns = getattr(self, part)
        return columns

    def has(self, part: str, name: str) -> bool:
        return bool(np.isfinite(self.rows(part)[name]).any())

    @property
    def last_step(self) -> int:
        steps = [columns["step"][-1] for columns in (self.evaluations, self.training) if len(columns["step"])]
        return int(max(steps, default=0))

    @property
    def seconds(self) -> float | None:
        return float(self.clock["seconds"][-1]) if len(self.clock["step"]) else None

    def setting(self, name: str) -> Any:
        """A setting in effect: given, or resolved when the run began"""
        given = _part(self.spec, "settings").get(name)
        return _part(self.spec, "resolved").get(name) if given is None else given


@dataclass(frozen=True)
class Study:
    """Runs that belong together, and what is missing of them."""

    name: str
    single: bool
    """the folder is one run's"""
    runs: list[Run]
    planned: list[Mapping[str, Any]]
    """specs of the runs that the study asks for, with their labels; empty if no plan is in the folder"""
    about: list[str]
    """sentences on where the plan comes from"""
    damaged: dict[str, str] = field(default_factory=dict)
    """folder -> why it could not be read"""

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(run.task for run in self.runs))

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(run.label for run in self.runs))

    def of(self, task: str, label: str) -> list[Run]:
        return [run for run in self.runs if run.task == task and run.label == label]

    def length(self, task: str) -> int:
        """env steps of the longest run that the task is to have"""
        return max(run.steps for run in self.runs if run.task == task)

    def absent(self) -> list[Mapping[str, Any]]:
        """Specs of planned runs that have no folder yet"""
        return self._without_folder(self.readable())

    def readable(self) -> list[Mapping[str, Any]]:
        """Specs of planned runs without those whose folders are damaged"""
        planned = self.planned
        for name in self.damaged:
            its = next((spec for spec in self._without_folder(planned) if _may_be(name, spec)), None)
            planned = [spec for spec in planned if spec is not its]
        return planned

    def _without_folder(self, planned: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        there = {(run.label, _identity(run.spec)) for run in self.runs}
        return [spec for spec in planned if (spec["label"], _identity(spec)) not in there]


Cache = dict[Path, tuple[tuple[int, int], Columns]]
"""file -> its size and time of change when it was read, and what it held: one entry per file, however often it grows"""


def load(path: Path, cache: Cache | None = None) -> Study:
    """The study in ``path``, or the one run; files that are in ``cache`` and unchanged are not read again."""
    if not path.is_dir():
        raise ReportError(f"{path}: {'is not a directory' if path.exists() else 'No such directory'}")
    cache = {} if cache is None else cache
    single = (path / records.SPEC).exists()
    folders = [path] if single else sorted(each.parent for each in path.glob(f"*/{records.SPEC}"))
    plan = records.read_json(path / records.STUDY) if (path / records.STUDY).exists() else {}
    runs, damaged = [], {}
    for folder in folders:
        try:
            runs.append(_run(folder, cache))
        except ValueError as error:
            damaged[folder.name] = str(error)
    if single and damaged:
        raise ReportError(next(iter(damaged.values())))
    if not runs and not plan:
        reason = f"; {next(iter(damaged.values()))}" if damaged else ""
        raise ReportError(f"{path}: holds no run (a run's folder has a {records.SPEC}){reason}")
    specs = plan.get("runs")
    planned: list[Mapping[str, Any]] = [spec for spec in specs if _is_spec(spec)] if isinstance(specs, list) else []
    name = str(plan.get("name") or path.resolve().name)
    labels = _labels([*(run.spec for run in runs), *planned])
    runs = [replace(run, label=label) for run, label in zip(runs, labels, strict=False)]
    planned = [{**spec, "label": label} for spec, label in zip(planned, labels[len(runs) :], strict=True)]
    return Study(name, single, _ordered(runs, planned), planned, _about(plan), damaged)


def together(studies: Sequence[Study]) -> Study:
    """Several studies as one; an algorithm whose name an earlier one has gets its study's name added."""
    if len(studies) == 1:
        return studies[0]
    names, taken = _distinct([study.name for study in studies]), set[str]()
    runs, planned, damaged = list[Run](), list[Mapping[str, Any]](), dict[str, str]()
    for name, study in zip(names, studies, strict=True):
        mine = {*study.labels, *(spec["label"] for spec in study.planned)}
        renamed = {label: f"{label} ({name})" if label in taken else label for label in mine}
        taken |= set(renamed.values())
        runs += [replace(run, name=f"{name}/{run.name}", label=renamed[run.label]) for run in study.runs]
        planned += [{**spec, "label": renamed[spec["label"]]} for spec in study.readable()]
        damaged |= {f"{name}/{folder}": reason for folder, reason in study.damaged.items()}
    about = [f"{name}: {each}" for name, study in zip(names, studies, strict=True) for each in study.about]
    return Study(" and ".join(names), False, runs, planned, about, damaged)


def _distinct(names: Sequence[str]) -> list[str]:
    """The later ones of equal names with a number"""
    return [name if name not in names[:i] else f"{name} {names[:i].count(name) + 1}" for i, name in enumerate(names)]


def _about(plan: Mapping[str, Any]) -> list[str]:
    words = {"source": "made from", "scale": "scale of its steps", "created": "created"}
    summary = "; ".join(f"{word} {plan[key]}" for key, word in words.items() if plan.get(key) is not None)
    return [f"{summary[0].upper()}{summary[1:]}."] if summary else []


def _run(folder: Path, cache: Cache) -> Run:
    spec = records.read_json(folder / records.SPEC)
    for key, (allowed, holds) in KEYS.items():
        if not holds(spec.get(key)):
            raise ReportError(f"{folder / records.SPEC}: {key} is {spec.get(key)!r}, but must be {allowed}")
    provenance = folder / records.PROVENANCE
    finished, result = (folder / records.RESULT).exists(), dict[str, Any]()
    with suppress(records.RecordError):  # where it ended is then not known
        result = records.read_json(folder / records.RESULT)
    columns = {name: _columns(folder / name, names, cache) for name, names in COLUMNS.items()}
    return Run(
        folder.name,
        spec["env"],
        spec["algo"],
        spec["seed"],
        spec["steps"],
        spec,
        records.read_json(provenance) if provenance.exists() else {},
        finished,
        columns[records.EVALUATIONS],
        columns[records.TRAINING],
        columns[records.VALUE_ERROR],
        columns[records.CLOCK],
        ended=step if is_whole(step := result.get("step"), 1) else None,
    )


def _columns(path: Path, names: tuple[str, ...], cache: Cache) -> Columns:
    """The named numbers of all rows by step, NaN where a row has none; of two rows of a step the later one counts."""
    if not path.exists():
        return {name: np.empty(0) for name in names}
    stat = path.stat()
    state = (stat.st_size, stat.st_mtime_ns)
    if path not in cache or cache[path][0] != state:
        table = _table(path, names)
        table = table[np.isfinite(table[:, 0])]
        _, last = np.unique(table[::-1, 0], return_index=True)
        cache[path] = (state, dict(zip(names, table[::-1][last].T.copy(), strict=True)))
    return cache[path][1]


def _table(path: Path, names: tuple[str, ...]) -> Array:
    """(rows, names), NaN where a row has none"""
    try:
        content = records.read_rows(path)
        lines = content.splitlines()
        ends = [orjson.loads(line) for line in (lines[0], lines[-1])]
        present = [name for name in names if any(name in row for row in ends)]
        if any(f'"{name}"'.encode() in content for name in names if name not in present):
            return _uneven_table(path, names)
        values = itemgetter("step", *present)
        table = np.full((len(lines), len(names)), np.nan)
        # no row outlives its line: a million dicts at once would keep the garbage collector busy
        found = np.array([values(orjson.loads(line)) for line in lines], float)
        table[:, [names.index(name) for name in present]] = found[:, 1:]
        return table
    except IndexError:
        return np.empty((0, len(names)))
    except records.DamagedFile:
        raise
    except (KeyError, TypeError, ValueError):
        return _uneven_table(path, names)


def _uneven_table(path: Path, names: tuple[str, ...]) -> Array:
    """The same for rows that differ in what they have or are damaged, at a fraction of the speed"""
    rows = records.read(path)
    try:
        return np.array([[row.get(name) for name in names] for row in rows], float).reshape(-1, len(names))
    except (TypeError, ValueError):
        raise records.RecordError(f"{path}: a value of {', '.join(names)} is not a number") from None


def _is_spec(spec: Any) -> bool:
    return isinstance(spec, dict) and all(holds(spec.get(key)) for key, (_, holds) in KEYS.items())


def _part(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = spec.get(name)
    return part if isinstance(part, dict) else {}


def given(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the spec gives, those of the bias rule with their prefix"""
    settings = {key: value for key, value in _part(spec, "settings").items() if value is not None}
    return settings | {f"bias.{key}": value for key, value in _part(spec, "bias").items() if value is not None}


def _of_task(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What the spec changes about the task"""
    told = {f"env.{key}": value for key, value in _part(spec, "env_kwargs").items()}
    return told | {name: value for name in OF_TASK if (value := spec.get(name))}


def _identity(spec: Mapping[str, Any]) -> str:
    what = [spec.get(key) for key in ("env", "algo", "seed", "steps")]
    return json.dumps([*what, spec.get("n_envs", 1), given(spec) | _of_task(spec)], sort_keys=True)


def _may_be(name: str, spec: Mapping[str, Any]) -> bool:
    """Whether the folder's name can be that of the spec's run"""
    begin = f"{spec.get('env')}_{spec.get('algo')}_".replace("/", "-")
    return name.startswith(begin) and name.endswith(f"_seed{spec.get('seed')}")


def _labels(specs: list[Mapping[str, Any]]) -> list[str]:
    """An algorithm whose runs on one task differ in a setting, in length, in envs or in what was changed about the task
    gets that into its label."""
    differing = [
        given(spec) | _of_task(spec) | {"steps": spec.get("steps"), "n_envs": spec.get("n_envs", 1)} for spec in specs
    ]
    keys: dict[Any, set[str]] = {}
    for spec, settings in zip(specs, differing, strict=True):
        keys.setdefault(spec.get("algo"), set()).update(settings)
    values: dict[tuple[Any, Any, str], set[str]] = {}
    for spec, settings in zip(specs, differing, strict=True):
        algo = spec.get("algo")
        for key in keys[algo]:
            values.setdefault((spec.get("env"), algo, key), set()).add(json.dumps(settings.get(key)))
    varying = {(algo, key) for (_, algo, key), several in values.items() if len(several) > 1}
    return [
        " ".join(
            [
                str(spec.get("algo")),
                *(f"{k}={_short(v)}" for k, v in settings.items() if (spec.get("algo"), k) in varying),
            ]
        )
        for spec, settings in zip(specs, differing, strict=True)
    ]


def _short(value: Any) -> str:
    return "x".join(map(_short, value)) if isinstance(value, list) else str(value)


def _ordered(runs: list[Run], planned: list[Mapping[str, Any]]) -> list[Run]:
    """Tasks and algorithms in the plan's order, then by name"""
    tasks = {spec.get("env"): -len(planned) + i for i, spec in reversed(list(enumerate(planned)))}
    algos = {spec.get("algo"): -len(planned) + i for i, spec in reversed(list(enumerate(planned)))}
    return sorted(runs, key=lambda r: (tasks.get(r.task, 0), r.task, algos.get(r.algo, 0), r.label, r.seed))
