"""Tasks x variants x seeds become runs. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from acc_rl.core.checks import hint, is_whole
from acc_rl.core.errors import AccError
from acc_rl.runs.spec import COUNT, VARIED, RunSpec, check_effect, from_dict
from acc_rl.runs.tasks import full_name
from acc_rl.runs.typed import as_whole

MOST_SEEDS = 10_000
UNSCALED = ("eval_every", "log_every", "learning_starts", "bias.start_step", "bias.update_interval", "bias.pairs_kept")
"""intervals in env steps that stay as they are when the budgets are scaled"""


@dataclass(frozen=True)
class Grid:
    """What a study compares, on which tasks and how often."""

    name: str
    """the study's folder"""
    tasks: Mapping[str, int]
    """task -> env steps"""
    variants: Sequence[Mapping[str, Any]]
    """each: algo, settings, bias and what it changes in its tasks, as in a run"""
    seeds: Sequence[int]
    """one run each"""
    common: Mapping[str, Any] = field(default_factory=dict)
    """what all runs share: fields of a run by name"""

    def runs(self) -> list[RunSpec]:
        """Seeds outermost: an unfinished study has compared everything on the first seeds."""
        specs = [
            self._spec(task, steps, variant, seed)
            for seed in self.seeds
            for task, steps in self.tasks.items()
            for variant in self.variants
        ]
        if name := _twice(spec.name for spec in specs):
            raise AccError(f"two variants of study {self.name} give the same run {name[0]}")
        return specs

    def _spec(self, task: str, steps: int, variant: Mapping[str, Any], seed: int) -> RunSpec:
        parts = {
            name: {**_table(self.common.get(name, {}), name), **_table(variant.get(name, {}), name)}
            for name in ("settings", "bias", "env_kwargs")
        }
        # single-thread runs side by side get more done than runs that share their cores
        return from_dict({"threads": 1, **self.common, **variant, **parts, "env": task, "steps": steps, "seed": seed})

    def select(self, tasks: Sequence[str] = (), seeds: int | None = None, scale: float = 1.0) -> Grid:
        """Some of the tasks, the first seeds (or more), scaled budgets."""
        if not 0 < scale <= 1000:
            raise AccError(f"scale is {scale}, but must be a number > 0 and <= 1000")
        if seeds is not None and not 1 <= seeds <= MOST_SEEDS:
            raise AccError(f"seeds is {seeds}, but must be an integer >= 1 and <= {MOST_SEEDS}")
        known = {full_name(task): task for task in self.tasks}
        chosen = [known[_nearest("task", full_name(task), list(known), self.name)] for task in tasks] or self.tasks
        steps = {task: max(1, round(self.tasks[task] * scale)) for task in chosen}
        count = len(self.seeds) if seeds is None else seeds
        numbers = [*self.seeds[:count], *range(max(self.seeds) + 1, max(self.seeds) + 1 + count - len(self.seeds))]
        name = self.name if scale == 1 else f"{self.name}-x{scale:g}"
        return replace(self, name=name, tasks=steps, seeds=tuple(numbers))


def _table(part: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(part, Mapping):
        raise AccError(f"{name} is {part!r}, but must be a table of settings")
    return part


def _nearest(what: str, name: str, known: Sequence[str], where: str) -> str:
    if name in known:
        return name
    raise AccError(f"{where} has no {what} {name!r}; {hint(name, known)}")


OWN = ("name", "tasks", "variants", "seeds", "steps")
SHARED = tuple(each.name for each in fields(RunSpec) if each.name not in ("env", "algo", "steps", "seed"))


def grid_from_dict(content: Mapping[str, Any], name: str) -> Grid:
    """A grid from TOML; ``name`` is used where the file gives none."""
    for key in content:
        _nearest("setting", key, [*OWN, *SHARED], "the study")
    for key in ("tasks", "variants"):
        if not isinstance(content.get(key), list) or not content[key]:
            raise AccError(f"{key} is {content.get(key)!r}, but must be a list with at least one entry")
    tasks = [_text("tasks", each) for each in content["tasks"]]
    variants = [{"algo": each} if isinstance(each, str) else _table(each, "variants") for each in content["variants"]]
    for variant in variants:
        for key in variant:
            _nearest("setting", key, ["algo", "settings", "bias", *VARIED], "a variant")
    seeds = content.get("seeds", 10)
    if isinstance(seeds, list):
        numbers = list(map(as_whole, seeds))
    else:
        numbers = list(range(min(_whole("seeds", seeds), MOST_SEEDS + 1)))
    if not (0 < len(numbers) <= MOST_SEEDS and all(is_whole(each, 0) for each in numbers)):
        raise AccError(f"seeds is {seeds!r}, but must be a number from 1 to {MOST_SEEDS}, or a list of integers >= 0")
    for what, values in (("tasks", map(full_name, tasks)), ("seeds", numbers)):
        if twice := _twice(values):
            raise AccError(f"{what} has {twice[0]} twice: leave one out")
    grid = Grid(
        _name(content.get("name", name)),
        _steps(content.get("steps", RunSpec("Hopper").steps), tasks),
        variants,
        tuple(numbers),
        {key: value for key, value in content.items() if key in SHARED},
    )
    for spec in grid.runs():  # mistakes in settings show here
        check_effect(spec)
    return grid


def _steps(given: Any, tasks: Sequence[str]) -> dict[str, int]:
    """One number for all tasks, or a table with a number for each"""
    if not isinstance(given, Mapping):
        return {task: _whole("steps", given) for task in tasks}
    for task in given:
        _nearest("task", task, tasks, "the study")
    for task in tasks:
        if task not in given:
            raise AccError(f"steps has no entry for {task}")
    return {task: _whole(f"steps.{task}", given[task]) for task in tasks}


def _whole(name: str, value: Any) -> int:
    allowed, holds = COUNT
    if not holds(as_whole(value)):
        raise AccError(f"{name} is {value!r}, but must be {allowed}")
    return int(value)


def _twice(values: Iterable[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]


def _name(value: Any) -> str:
    """The study's folder, which must not lie elsewhere"""
    name = _text("name", value)
    if "/" in name or "\\" in name or name in (".", ".."):
        raise AccError(f"name is {name!r}, but must be the name of a folder, not a path: use --out for its place")
    return name


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise AccError(f"{name} is {value!r}, but must be a text")
    return value
