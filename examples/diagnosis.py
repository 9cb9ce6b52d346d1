"""The picture in docs/numbers.md: what the critic of an SB3 SAC promises after 4000 steps on Pendulum-v1."""

import tempfile
from pathlib import Path

from stable_baselines3 import SAC

from acc_rl.commands.main import main

if __name__ == "__main__":
    sizes = {"net_arch": [64, 64]}
    model = SAC(
        "MlpPolicy", "Pendulum-v1", policy_kwargs=sizes, learning_rate=1e-3, batch_size=64, learning_starts=500, seed=0
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sac.zip"
        model.learn(4000).save(path)
        main(["diagnose", str(path), "--algo", "sac", "--env", "Pendulum-v1", "--plot", "docs/diagnosis.png"])
