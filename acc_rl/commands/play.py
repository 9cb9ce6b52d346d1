"""``acc play``"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from acc_rl.runs.config import read_spec


@dataclass(frozen=True)
class Play:
    """Watch the policy of a run: in a window, or as a video where there is no screen.

    examples:
      acc play runs/Hopper-v5_acc_seed0
      acc play runs/Hopper-v5_acc_seed0 --video hopper.mp4
    """

    run_folder: tyro.conf.Positional[Path]
    """the run's folder"""
    video: Path | None = None
    """file to write instead of opening a window"""
    episodes: int = 1
    """episodes to play"""
    seed: int = 0
    """decides their starts"""

    def run(self) -> None:
        from acc_rl.inference.play import play

        spec = read_spec(self.run_folder)
        for number, result in enumerate(play(self.run_folder, spec, self.episodes, self.seed, self.video)):
            print(f"episode {number}: return {result['return']:.1f}, {result['length']} steps")
        if self.video is not None:
            print(f"video: {self.video}")
