"""``acc play``"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from acc_rl.commands.parsing import check_file, check_seed
from acc_rl.core.errors import AccError
from acc_rl.runs.config import read_spec
from acc_rl.store.records import BEST

VIDEOS = (".mp4", ".mkv", ".mov", ".avi", ".gif")
"""what ffmpeg writes with its defaults"""


@dataclass(frozen=True)
class Play:
    """Watch the policy of a run: in a window, or as a video or GIF where there is no screen.

    examples:
      acc play runs/Hopper-v5_acc_seed0
      acc play runs/Hopper-v5_acc_seed0 --video hopper.mp4
      acc play runs/Hopper-v5_acc_seed0 --best --gif hopper.gif
    """

    run_folder: tyro.conf.Positional[Path]
    """the run's folder"""
    video: Path | None = None
    """file to write instead of opening a window; one that ends in .gif is a GIF"""
    gif: Path | None = None
    """GIF to write instead of opening a window"""
    best: bool = False
    """the policy of the best evaluation instead of the last one"""
    episodes: int = 1
    """episodes to play"""
    seed: int = 0
    """decides their starts"""
    horizon: int | None = None
    """for tasks that never end: steps after which they are cut (default: the run's)"""

    def run(self) -> None:
        from acc_rl.inference.play import play

        if self.video is not None and self.gif is not None:
            raise AccError(f"video is {self.video} and gif {self.gif}: one of them at a time")
        check_file("gif", self.gif, [".gif"])
        check_file("video", self.video, VIDEOS)
        check_seed(self.seed)
        spec, file = read_spec(self.run_folder), self.video or self.gif
        policy = self.run_folder / BEST if self.best else self.run_folder
        horizon = spec.horizon if self.horizon is None else self.horizon
        for number, result in enumerate(play(policy, spec, self.episodes, self.seed, file, horizon)):
            print(f"episode {number}: return {result['return']:.1f}, {result['length']} steps")
        if file is not None:
            print(f"video: {file}")
