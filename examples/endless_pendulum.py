"""A pendulum that is never reset: `PYTHONPATH=examples acc train endless_pendulum:EndlessPendulum-v0 --horizon 200`.

It begins hanging still. There is no time limit and no terminal state, so no episode ever ends. Run as a program it
trains for a few minutes on one thread and evaluates.
"""

import math
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control.pendulum import PendulumEnv


class EndlessPendulum(PendulumEnv):
    """Gymnasium's pendulum, at rest when it begins"""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.state = [math.pi, 0.0]
        return self._get_obs(), {}


gym.register("EndlessPendulum-v0", EndlessPendulum)  # without max_episode_steps, hence without a time limit

if __name__ == "__main__":
    from acc_rl import train
    from acc_rl.commands.main import main
    from acc_rl.runs.spec import RunSpec
    from acc_rl.store import records

    spec = RunSpec("EndlessPendulum-v0", "acc-x", steps=10_000, horizon=200, eval_episodes=1, threads=1)
    folder = train(spec)
    last = records.read(folder / records.TRAINING)[-1]
    print(f"beta {last['beta']:.2f}, gap {last['gap']:.2f} +- {last['gap_error']:.2f} at step {last['step']}")
    main(["eval", str(folder), "--episodes", "1", "--horizon", "1000"])
