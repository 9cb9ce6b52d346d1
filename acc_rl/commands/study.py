"""``acc study``: parse, call, print."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from acc_rl.algos.registry import find
from acc_rl.commands.parsing import one_line
from acc_rl.core.checks import hint
from acc_rl.core.errors import AccError
from acc_rl.core.settings import EARLY, PAPER
from acc_rl.runs.config import read_toml
from acc_rl.runs.spec import RunSpec, adapts
from acc_rl.store.records import RESULT
from acc_rl.study.check import check_variants
from acc_rl.study.folder import WHOLE, Part, Study, open_study, read_study, supervised
from acc_rl.study.grid import UNSCALED, Grid, grid_from_dict
from acc_rl.study.presets import PRESETS

if TYPE_CHECKING:
    from rich.console import Console

    from acc_rl.study.executors import Executor

EXAMPLES = """Train all runs of a study: tasks x algorithms x seeds, in one folder. Started again, it resumes.

examples:
  acc study quick                                    everything once, in minutes
  acc study gym --dry-run                            what the paper's experiment would take on this machine
  acc study gym --tasks Hopper Ant --seeds 3         part of it; a later start may take in more
  acc study fixed-d --scale 0.01 --workers 4         a hundredth of the steps
  acc study my.toml --ray auto                       a study of your own, on a Ray cluster
  acc study gym --part 3/16                          the third of 16 parts, for job arrays (SLURM)
  acc study gym --have gym.tar.gz                    only the runs that are not in this archive yet
  acc study status studies/gym                       how far it is (--json for programs)
  acc study failed studies/gym                       what went wrong
  acc study pack studies/gym gym.tar.gz              its records in one small file (--add: merged into it)

presets:
""" + "\n".join(f"  {name:<17} {about}" for name, (about, _) in PRESETS.items())


class StudyFailed(AccError):
    """Some runs did not finish."""


@dataclass(frozen=True)
class Run:
    study: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PRESET|FILE.toml")]
    """name of a preset, or a file"""
    out: Path = Path("studies")
    """folder for the study's folder; for --ray a path that all nodes share"""
    workers: Annotated[int | Literal["auto"], tyro.conf.arg(metavar="INT|auto")] = "auto"
    """runs at the same time; auto: as many as cores"""
    scale: float = 1.0
    """factor on the steps of every run; intervals stay as they are"""
    tasks: tuple[str, ...] = ()
    """only these"""
    seeds: int | None = None
    """runs per task and variant"""
    ray: str | None = None
    """address of a Ray cluster: HOST:PORT, auto for the one this machine belongs to, local to start one here"""
    part: str | None = None
    """K/N: only the K-th of N parts of the runs; all parts may run at the same time on one shared folder"""
    have: tuple[Path, ...] = ()
    """archives of acc study pack: runs that they have to their end are left out"""
    timeout: float = 600.0
    """seconds without progress after which a run is ended and tried again"""
    retries: int = 2
    """how often a run that fails without getting further is tried again"""
    checkpoint_every: int = 10_000
    """env steps between two checkpoints, from which a run that was cut off resumes"""
    dry_run: bool = False
    """print the runs and the expected time, run nothing"""

    def run(self) -> None:
        from rich.console import Console

        for name, value, least in (
            ("timeout", self.timeout, 60),  # a run shows signs of life every 30 s
            ("retries", self.retries, 0),
            ("checkpoint_every", self.checkpoint_every, 1),
        ):
            if not value >= least:
                raise AccError(f"{name} is {value}, but must be >= {least}")
        part = WHOLE if self.part is None else Part.parse(self.part)
        grid = find_grid(self.study).select(self.tasks, self.seeds, self.scale)
        specs = grid.runs()
        console = Console()
        if self.scale != 1:
            _plain(console)(scale_notice(self.scale, specs))
        wanted, mine = self._select(specs, part, console)
        workers = self._count(mine)
        if not mine:
            _plain(console)(f"study {grid.name}: none of its {len(specs)} runs is left to do here")
        elif self.dry_run:
            dry_run(grid.name, mine, workers, console)
        else:
            check_variants(mine)
            self._train(grid.name, wanted, mine, part, console)

    def _train(
        self, name: str, wanted: Sequence[RunSpec], mine: Sequence[RunSpec], part: Part, console: Console
    ) -> None:
        folder = self.out / name
        with ExitStack() as stack:
            if self.ray is not None:
                from acc_rl.study.on_ray import connected

                stack.enter_context(connected(self.ray))
            stack.enter_context(supervised(folder, part))
            # named in all parts are the runs of all parts: it does not matter which of them comes first, or last
            whole = open_study(folder, name, Path(self.study).name, self.scale, wanted)
            study = replace(whole, runs=tuple(mine), part=part)
            run_study(study, self._executor(study), self.retries, console)

    def _select(
        self, specs: Sequence[RunSpec], part: Part, console: Console
    ) -> tuple[Sequence[RunSpec], Sequence[RunSpec]]:
        """The runs that no archive has, and those of them that are this part's"""
        if not self.have:
            return specs, part.select(specs)
        from acc_rl.study.pieces import finished_in

        had = finished_in(self.have, specs)
        _plain(console)(f"{len(had)} of {len(specs)} runs are in {', '.join(map(str, self.have))}")
        wanted = [spec for spec in specs if spec.name not in had]
        # counted among all runs, so that a run's part does not depend on what an archive has
        return wanted, [spec for spec in part.select(specs) if spec.name not in had]

    def _count(self, specs: Sequence[RunSpec]) -> int:
        from acc_rl.study.executors import cores

        if self.workers == "auto":
            return max(1, cores() // max([1, *(spec.threads for spec in specs)]))
        if self.workers < 1:
            raise AccError(f"workers is {self.workers}, but must be >= 1")
        return self.workers

    def _executor(self, study: Study) -> Executor:
        from acc_rl.study.worker import Options

        options = Options(self.timeout, self.checkpoint_every)
        if self.ray is not None:
            from acc_rl.study.on_ray import OnRay

            return OnRay(study, None if self.workers == "auto" else self.workers, options)
        from acc_rl.study.executors import Local

        return Local(study, self._count(study.runs), options)


def run_study(study: Study, executor: Executor, retries: int, console: Console) -> None:
    from acc_rl.runs.interrupt import Stopped
    from acc_rl.study.executors import execute
    from acc_rl.study.status import study_status
    from acc_rl.study.table import Progress, headline

    print_line = _plain(console)
    try:
        with Progress(study, console) as progress:
            failed = execute(study, executor, retries, progress)
    except Stopped:
        print_line(f"{headline(study, study_status(study))}. Stopped; the same command resumes it.")
        raise
    print_line(f"{headline(study, study_status(study))}. Results: {study.folder}")
    if failed:
        names = ", ".join(spec.name for spec in failed[:3]) + (", ..." if len(failed) > 3 else "")
        raise StudyFailed(f"{len(failed)} runs failed ({names}): see acc study failed {study.folder}")


@dataclass(frozen=True)
class Status:
    """Say how far a study is: each run's state, progress, last score, d and time left.

    example:
      acc study status studies/gym
    """

    folder: tyro.conf.Positional[Path]
    """the study's folder"""
    json: bool = False
    """as JSON, for programs"""

    def run(self) -> None:
        from acc_rl.study.status import as_json, study_status

        study = read_study(self.folder)
        statuses = study_status(study)
        if self.json:
            print(as_json(study, statuses))
            return
        from rich.console import Console

        from acc_rl.study.table import table

        Console().print(table(study, statuses))


@dataclass(frozen=True)
class Failed:
    """Show the runs of a study whose last attempt failed, with the last lines of each.

    example:
      acc study failed studies/gym
    """

    folder: tyro.conf.Positional[Path]
    """the study's folder"""

    def run(self) -> None:
        from acc_rl.study.status import study_status

        study = read_study(self.folder)
        failed = [each for each in study_status(study) if each.state == "failed"]
        specs = {spec.name: spec for spec in study.runs}
        for each in failed:
            print(f"{each.name}: failed at step {each.step} of {each.steps}, {each.attempts} attempts")
            print("\n".join(f"    {line}" for line in each.error))
            print(f"    whole log: {study.log(specs[each.name])}\n")
        print(
            f"{len(failed)} of {len(study.runs)} runs failed" + ("; start the study again to retry" if failed else "")
        )


@dataclass(frozen=True)
class Pack:
    """Write the records of a study to one small file, which acc report reads: no weights, no replay buffers.

    examples:
      acc study pack studies/gym gym.tar.gz
      acc study pack --add studies/gym gym.tar.gz      merge them into what the file has
      acc report gym.tar.gz
    """

    folder: tyro.conf.Positional[Path]
    """the study's folder"""
    file: tyro.conf.Positional[Path]
    """the file to write, NAME.tar.gz"""
    add: bool = False
    """merge the runs into the file: of a run that both have, a finished one stays, or the one with more steps"""

    def run(self) -> None:
        from acc_rl.store.archive import pack
        from acc_rl.study.pieces import add

        if self.add:
            for what, names in add(self.folder, self.file).items():
                print(f"{self.file}: {len(names)} runs {what}{': ' if names else ''}{', '.join(names)}")
            return
        names = pack(self.folder, self.file)
        finished = sum((self.folder / name / RESULT).exists() for name in names)
        size = self.file.stat().st_size / 1e3
        print(f"{self.file}: records of {len(names)} runs, {finished} of them finished, {size:.0f} kB")


def find_grid(name: str) -> Grid:
    if name in PRESETS:
        return PRESETS[name][1]
    path = Path(name)
    if path.suffix == ".toml":
        return grid_from_dict(read_toml(path), path.stem)
    raise AccError(f"unknown study {name!r}; {hint(name, PRESETS, 'a file ends in .toml; presets are')}")


def scale_notice(scale: float, specs: Sequence[RunSpec]) -> str:
    text = f"scale {scale:g}: steps are multiplied; {', '.join(UNSCALED)} stay as they are"
    adaptive = [spec for spec in specs if adapts(spec)]
    early = [spec for spec in adaptive if spec.steps <= start_step(spec)]
    if early:
        text += f". {len(early)} of {len(adaptive)} runs of ACC end before bias.start_step: it does not adapt in them"
    return text


def start_step(spec: RunSpec) -> int:
    """The env step from which on the run's beta may move"""
    default = PAPER.merged(EARLY) if "confident" in (spec.bias.rule, find(spec.algo).rule) else PAPER
    return default.merged(spec.bias).start_step or 0


def dry_run(name: str, specs: Sequence[RunSpec], workers: int, console: Console) -> None:
    from rich.table import Table

    from acc_rl.study.speed import expected_seconds

    print_line = _plain(console)
    print_line("measuring speed ...")
    seconds = expected_seconds(specs)
    shown = Table("task", "variant", "steps", "seeds", "hours each")
    cells: dict[tuple[str, str], list[RunSpec]] = {}
    for spec in specs:
        variant = spec.name.removeprefix(spec.env.replace("/", "-") + "_").removesuffix(f"_seed{spec.seed}")
        cells.setdefault((spec.env, variant), []).append(spec)
    for (env, variant), runs in cells.items():
        hours = f"{seconds[runs[0].name] / 3600:.1f}"
        shown.add_row(env, variant, f"{runs[0].steps:,}", str(len(runs)), hours)
    console.print(shown)
    total = sum(seconds.values()) / 3600
    print_line(
        f"study {name}: {len(specs)} runs, {sum(spec.steps for spec in specs):,} steps, "
        f"about {total:.1f} hours of one core, {total / min(workers, len(specs)):.1f} hours with {workers} workers"
    )


def _plain(console: Console) -> Any:
    return lambda line: console.print(line, highlight=False, soft_wrap=True, markup=False)


def parse_study(arguments: Sequence[str]) -> Any:
    commands = {"status": Status, "failed": Failed, "pack": Pack}
    if arguments and (command := commands.get(arguments[0])):
        return one_line(command, f"acc study {arguments[0]}", arguments[1:])
    return one_line(Run, "acc study", arguments, description=EXAMPLES)
