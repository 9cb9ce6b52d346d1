"""``acc diagnose``"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from acc_rl.commands.parsing import check_file, check_seed
from acc_rl.core.errors import AccError

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

    from acc_rl.runs.spec import RunSpec

PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Diagnose:
    """Say whether the critic of a saved model over- or underestimates, with numbers and a plot.

    For models of SB3 and sb3-contrib (sac, td3, ddpg, tqc, dqn, qrdqn) as their `save` leaves them, and for runs.

    examples:
      acc diagnose model.zip --env Hopper-v5
      acc diagnose runs/Hopper-v5_acc_seed0
    """

    model: tyro.conf.Positional[Path]
    """the model's zip file, or a run's folder"""
    env: str | None = None
    """the task it was trained on; a run's folder tells it"""
    algo: str | None = None
    """sac, td3, ddpg, tqc, dqn or qrdqn, if the file does not tell; with --trust-pickle an algorithm of this package"""
    episodes: int = 20
    """episodes to compare on"""
    seed: int = 0
    """decides their starts and the policy's noise"""
    horizon: int | None = None
    """for tasks that never end: steps after which they are cut (default: a run's own)"""
    plot: Path | None = None
    """picture of Q against return to write (default: beside the model)"""
    trust_pickle: bool = False
    """also load what the zip has pickled; it can run any code"""

    def run(self) -> None:
        from acc_rl.inference.diagnose import diagnose

        if self.episodes < 2:
            raise AccError(f"episodes is {self.episodes}, but must be >= 2 for an interval")
        check_file("plot", self.plot, PICTURES)
        check_seed(self.seed)
        model, task = self._run_model() if self.model.is_dir() else self._saved_model()
        env_id, horizon = (task, None) if isinstance(task, str) else (task.env, task.horizon)
        result = diagnose(model, task, self.episodes, self.seed, horizon if self.horizon is None else self.horizon)
        verdict, pairs = result.verdict(), sum(map(len, result.returns))
        path = Path(os.path.abspath(self.model))
        plot = self.plot or path.with_name(f"{path.name.removesuffix('.zip')}.diagnosis.png")
        result.draw(plot, f"{type(model).__name__} on {env_id}")
        print(
            f"The critic {verdict} ({type(model).__name__}, {pairs} pairs of {self.episodes} episodes on {env_id}); "
            f"plot: {plot}"
        )

    def _run_model(self) -> tuple[OffPolicyAlgorithm, RunSpec]:
        from acc_rl.inference.run_model import load_model
        from acc_rl.runs.config import read_spec
        from acc_rl.runs.folder import has_checkpoint

        spec = read_spec(self.model)
        if self.algo is not None or self.env is not None:
            raise AccError(f"{self.model}: is a run of {spec.algo} on {spec.env}: leave --algo and --env out")
        if not has_checkpoint(self.model):
            raise AccError(f"{self.model}: has no checkpoint, and a run keeps its critics there alone")
        return load_model(self.model, device="cpu"), spec

    def _saved_model(self) -> tuple[OffPolicyAlgorithm, str]:
        from acc_rl.inference.saved import load_model
        from acc_rl.runs.tasks import full_name

        if self.env is None:
            raise AccError(f"{self.model}: a saved model does not tell its task: use --env")
        env_id = full_name(self.env)
        return load_model(self.model, self.algo, env_id, self.trust_pickle), env_id
