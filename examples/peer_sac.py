"""SB3's own SAC with the settings of `sac` in examples/early.toml, evaluated alike: does ours learn as fast?"""

import argparse
from functools import partial
from pathlib import Path
from statistics import mean

import gymnasium as gym
import torch as th
from stable_baselines3 import SAC
from stable_baselines3.common.logger import Logger

from acc_rl.runs.callbacks import EvaluationCallback
from acc_rl.store import records

ENV = "HalfCheetah-v5"


def main(seed: int, steps: int, path: Path) -> None:
    th.set_num_threads(1)
    model = SAC("MlpPolicy", gym.make(ENV), learning_starts=5000, seed=seed, device="cpu")
    model.set_logger(Logger(None, []))
    model.learn(steps, callback=EvaluationCallback(path, partial(gym.make, ENV), 1000, 10, seed))
    last = [row["mean_return"] for row in records.read(path) if row["step"] > steps - 5000]
    print(f"SB3's SAC on {ENV}, seed {seed}, {steps} steps: {mean(last):.0f} over the last 5000")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("path", type=Path, help="file for its evaluations, one JSON row each")
    main(**vars(parser.parse_args()))
