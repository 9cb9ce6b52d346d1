"""``acc diagnose``"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Diagnose:
    """Say whether the critic of a saved model over- or underestimates, with numbers and a plot.

    For models of SB3 and sb3-contrib (sac, td3, ddpg, tqc, dqn, qrdqn) as their `save` leaves them.

    example:
      acc diagnose model.zip --algo sac --env Hopper-v5
    """

    model: tyro.conf.Positional[Path]
    """the model's zip file"""
    algo: str
    """sac, td3, ddpg, tqc, dqn or qrdqn; with --trust-pickle also the algorithms of this package"""
    env: str
    """the task it was trained on"""
    episodes: int = 20
    """episodes to compare on"""
    seed: int = 0
    """decides their starts and the policy's noise"""
    plot: Path | None = None
    """picture of Q against return to write (default: beside the model)"""
    trust_pickle: bool = False
    """also load what the zip has pickled; it can run any code"""

    def run(self) -> None:
        from acc_rl.inference.diagnose import diagnose, load_model
        from acc_rl.runs.spec import full_name

        if self.episodes < 2:
            raise ValueError(f"episodes is {self.episodes}, but must be >= 2 for an interval")
        env_id = full_name(self.env)
        result = diagnose(
            load_model(self.model, self.algo, env_id, self.trust_pickle), env_id, self.episodes, self.seed
        )
        plot = self.plot or self.model.with_suffix(".diagnosis.png")
        result.draw(plot, f"{self.algo} on {env_id}")
        pairs = sum(map(len, result.returns))
        print(f"The critic {result.verdict()} ({pairs} pairs of {self.episodes} episodes on {env_id}); plot: {plot}")
