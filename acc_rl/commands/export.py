"""``acc export``"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Export:
    """Write the policy of a run as an ONNX file: raw observations in, env actions out.

    The file is compared with torch on 1000 observations before it is kept.

    example:
      acc export runs/Hopper-v5_acc_seed0 policy.onnx
    """

    run_folder: tyro.conf.Positional[Path]
    """the run's folder"""
    file: tyro.conf.Positional[Path]
    """the file to write"""

    def run(self) -> None:
        from acc_rl.inference.export import TRIED, export_onnx
        from acc_rl.inference.policy import load_policy

        difference = export_onnx(load_policy(self.run_folder), self.file)
        print(f"{self.file}: equal to torch on {TRIED} observations (largest difference {difference:.1e})")
