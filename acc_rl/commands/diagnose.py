"""``acc diagnose``"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from acc_rl.core.errors import AccError


@dataclass(frozen=True)
class Diagnose:
    """Say whether the critic of a saved model over- or underestimates, with numbers and a plot.

    For models of SB3 and sb3-contrib (sac, td3, ddpg, tqc, dqn, qrdqn) as their `save` leaves them.

    example:
      acc diagnose model.zip --env Hopper-v5
    """

    model: tyro.conf.Positional[Path]
    """the model's zip file"""
    env: str
    """the task it was trained on"""
    algo: str | None = None
    """sac, td3, ddpg, tqc, dqn or qrdqn, if the file does not tell; with --trust-pickle an algorithm of this package"""
    episodes: int = 20
    """episodes to compare on"""
    seed: int = 0
    """decides their starts and the policy's noise"""
    plot: Path | None = None
    """picture of Q against return to write (default: beside the model)"""
    trust_pickle: bool = False
    """also load what the zip has pickled; it can run any code"""

    def run(self) -> None:
        from acc_rl.inference.diagnose import diagnose
        from acc_rl.inference.saved import load_model
        from acc_rl.runs.tasks import full_name

        if self.episodes < 2:
            raise AccError(f"episodes is {self.episodes}, but must be >= 2 for an interval")
        env_id = full_name(self.env)
        model = load_model(self.model, self.algo, env_id, self.trust_pickle)
        result = diagnose(model, env_id, self.episodes, self.seed)
        verdict, pairs = result.verdict(), sum(map(len, result.returns))
        plot = self.plot or self.model.with_suffix(".diagnosis.png")
        result.draw(plot, f"{type(model).__name__} on {env_id}")
        print(
            f"The critic {verdict} ({type(model).__name__}, {pairs} pairs of {self.episodes} episodes on {env_id}); "
            f"plot: {plot}"
        )
