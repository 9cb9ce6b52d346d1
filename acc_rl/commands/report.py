"""``acc report``"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from acc_rl.core.errors import AccError


@dataclass(frozen=True)
class Report:
    """Make one self-contained page of a study or of a run: statistics, the paper's figures, tables.

    examples:
      acc report studies/gym                              report/index.html, to be opened in any browser
      acc report studies/gym --figures pdf                and each figure as a file beside it
      acc report runs/Hopper-v5_acc_seed0 --out hopper    one run
      acc report studies/gym --watch                      on http://127.0.0.1:8000/, refreshed while runs go on
    """

    path: tyro.conf.Positional[Path]
    """a study's folder, any folder of run folders, one run's folder, or a file of acc study pack"""
    out: Path = Path("report")
    """folder for index.html and the figures"""
    figures: Literal["pdf", "svg", "png"] | None = None
    """write the figures as files too"""
    normalise: Path | None = None
    """CSV file with task, low, high: the returns of score 0 and 1 (default: the paper's, 1 is the best seen)"""
    seed: int = 0
    """of the bootstrap"""
    watch: bool = False
    """serve the page instead of writing it, and refresh it when records change"""
    host: str = "127.0.0.1"
    """address to serve on; another than this shows the page to other machines"""
    port: int = 8000
    """port to serve on, 0 for any that is free"""

    def run(self) -> None:
        if self.watch:
            from acc_rl.report.serve import watch

            if self.path.is_file():
                raise AccError(f"{self.path} is a file, which does not change: leave --watch out")
            watch(self.path, self.host, self.port, self.normalise, self.seed)
            return
        from acc_rl.report.page import write
        from acc_rl.store.archive import unpacked

        with unpacked(self.path) as path:
            index, files = write(path, self.out, self.figures, self.normalise, self.seed)
        print(f"{index}: open it in a browser" + f"; {len(files)} figures beside it" * bool(files))
