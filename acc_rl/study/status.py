"""How far a study is, from its files alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from acc_rl.runs.spec import RunSpec, adapts
from acc_rl.store import records
from acc_rl.store.lock import is_locked
from acc_rl.study.attempts import Attempt, read_attempts
from acc_rl.study.folder import Study, last_row

State = Literal["finished", "running", "failed", "cut off", "waiting"]


@dataclass(frozen=True)
class RunStatus:
    """One run, now."""

    name: str
    state: State
    step: int
    steps: int
    score: float | None
    """mean return of the last evaluation"""
    success: float | None
    dropped: float | None
    """d, the dropped atoms per net, of algorithms that have it"""
    beta: float | None
    """of algorithms that adapt it"""
    at_limit: bool
    """beta has been at an end of its range for ten updates with the gap pointing outward"""
    seconds: float | None
    """of training so far"""
    left: float | None
    """seconds to go at the speed so far"""
    attempts: int
    error: tuple[str, ...]
    """the last lines of the last attempt, if it failed"""


def run_status(study: Study, spec: RunSpec, tried: Sequence[Attempt]) -> RunStatus:
    folder = study.folder / spec.name
    training, evaluation = last_row(folder / records.TRAINING), last_row(folder / records.EVALUATIONS)
    clock = last_row(folder / records.CLOCK)
    finished = study.finished(spec)
    step = max(training.get("step", 0), evaluation.get("step", 0))
    if finished:  # by ``stop_at``, say, before its last step
        step = min(records.read_json(folder / records.RESULT).get("step", spec.steps), spec.steps)
    seconds = clock.get("seconds")
    rate = seconds / clock["step"] if seconds and clock.get("step") else None
    state = "finished" if finished else _state(tried, folder)
    end = tried[-1].end if tried else None
    return RunStatus(
        spec.name,
        state,
        step,
        spec.steps,
        evaluation.get("mean_return"),
        evaluation.get("success"),
        training.get("dropped_per_net"),
        training.get("beta") if adapts(spec) else None,
        bool(training.get("at_limit")),
        seconds,
        0.0 if finished else None if rate is None else rate * (spec.steps - step),
        len(tried),
        end.error if end is not None and state == "failed" else (),
    )


def _state(tried: Sequence[Attempt], folder: Path) -> State:
    end = tried[-1].end if tried else None
    if (tried and end is None) or is_locked(folder):  # by acc train, say
        return "running"
    if end is not None and end.how == "failed":
        return "failed"
    return "cut off" if folder.exists() else "waiting"


def study_status(study: Study) -> list[RunStatus]:
    tried = read_attempts(study.folder)
    return [run_status(study, spec, tried.get(spec.name, ())) for spec in study.runs]


def as_json(study: Study, statuses: Sequence[RunStatus]) -> str:
    content = {"name": study.name, "folder": str(study.folder), "counts": counts(statuses)}
    return json.dumps({**content, "runs": [asdict(each) for each in statuses]}, indent=2)


def counts(statuses: Sequence[RunStatus]) -> dict[str, int]:
    states = [each.state for each in statuses]
    return {state: states.count(state) for state in ("finished", "running", "failed", "cut off", "waiting")}
