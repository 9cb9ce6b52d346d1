"""``acc report``"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from acc_rl.commands.parsing import check_seed
from acc_rl.core.errors import AccError


@dataclass(frozen=True)
class Report:
    """Make one self-contained page of a study or of a run: statistics, the paper's figures, tables.

    examples:
      acc report studies/gym                              report/index.html, to be opened in any browser
      acc report studies/gym studies/gym-lr3e-4           two studies compared on one page
      acc report studies/gym --figures pdf --tables latex and each figure and table as a file, for a paper
      acc report studies/gym --curves csv                 and the points of each curve, for plots of your own
      acc report runs/Hopper-v5_acc_seed0 --out hopper    one run
      acc report studies/gym --watch                      on http://127.0.0.1:8000/, refreshed while runs go on
    """

    path: tyro.conf.Positional[Path]
    """a study's folder, any folder of run folders, one run's folder, or a file of acc study pack"""
    more: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[PATH ...]")] = ()
    """others to compare it with; an algorithm that both have is shown as acc and as acc (name of the other)"""
    out: Path = Path("report")
    """folder for index.html and the files below; files of an earlier report there are written over"""
    figures: Literal["pdf", "svg", "png"] | None = None
    """write each figure as a file with title and legend: pdf or svg for papers, png for slides"""
    tables: Literal["csv", "latex"] | None = None
    """write the final returns and all scores with their intervals as table-*.csv in full digits, or as table-*.tex
    (tabulars for booktabs) in the digits that their deviations leave meaningful"""
    curves: Literal["csv"] | None = None
    """write the points of all curves as curves-*.csv, filtered as they are drawn: algorithm, x, y, low, high, runs"""
    normalise: Path | None = None
    """CSV file with task, low, high: the returns of score 0 and 1 (default: the paper's, 1 is the best seen)"""
    seed: int = 0
    """seed of the bootstrap: the same records and seed give the same intervals"""
    watch: bool = False
    """serve the page instead of writing it, and refresh it when records change; of one folder only"""
    host: str = "127.0.0.1"
    """with --watch, the address to serve on; another than this shows the page to other machines, without a password"""
    port: int = 8000
    """with --watch, the port to serve on, 0 for any that is free"""

    def run(self) -> None:
        check_seed(self.seed)
        if self.watch:
            self._serve()
            return
        from acc_rl.report.page import write
        from acc_rl.store.archive import unpacked

        with ExitStack() as opened:
            folders = [opened.enter_context(unpacked(path)) for path in (self.path, *self.more)]
            index, files = write(
                folders, self.out, self.figures, self.tables, self.curves is not None, self.normalise, self.seed
            )
        print(f"{index}: open it in a browser" + f"; {len(files)} files beside it" * bool(files))

    def _serve(self) -> None:
        from acc_rl.report.serve import watch

        if self.more:
            raise AccError(f"--watch serves one folder, not {1 + len(self.more)}: leave --watch out, or name one")
        if self.path.is_file():
            raise AccError(f"{self.path} is a file, which does not change: leave --watch out")
        for option in ("figures", "tables", "curves"):
            if (kind := getattr(self, option)) is not None:
                raise AccError(f"--{option} {kind} writes files, but --watch serves the page: leave one of them out")
        watch(self.path, self.host, self.port, self.normalise, self.seed)
