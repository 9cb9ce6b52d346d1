"""What checkpoints cost: the stall of training, the share of a paper-sized run, the memory of the replay buffer.

Beside it SB3's own way to save as much: ``save`` and ``save_replay_buffer``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from acc_rl import ACC, ACCX
from acc_rl.algos.buffers import SharedReplayBuffer
from acc_rl.runs.envs import SeededEpisodes
from acc_rl.runs.provenance import cpu_name
from acc_rl.runs.resume import CheckpointCallback

EVERY = 10_000
EPISODE = 200


def fill(buffer: ReplayBuffer, transitions: int) -> None:
    """As a run would, but faster: noise in episodes of 200 steps"""
    rng = np.random.default_rng(0)
    shape, actions = (1, *buffer.obs_shape), rng.normal(size=(1, buffer.action_dim)).astype(np.float32)
    obs, reward, infos = rng.normal(size=shape), np.ones(1), [{}]
    step = rng.normal(size=shape) * 1e-3
    for i in range(transitions):
        done = np.array([i % EPISODE == EPISODE - 1])
        next_obs = obs + step
        buffer.add(obs, next_obs, actions, reward, done, infos)
        obs = -next_obs if done else next_obs


def timed(function: Callable[[], object], repeats: int = 1) -> float:
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return float(best)


def make(
    env_id: str, buffer_class: type[ReplayBuffer], size: int, algorithm: type[ACC] | type[ACCX] = ACC
) -> ACC | ACCX:
    venv = DummyVecEnv([lambda: SeededEpisodes(Monitor(gym.make(env_id)), 0, 0)])
    return algorithm("MlpPolicy", venv, buffer_size=size, replay_buffer_class=buffer_class, learning_starts=100, seed=0)


def ours(env_id: str, n: int, folder: Path) -> None:
    model = make(env_id, SharedReplayBuffer, n)
    model.learn(110)  # so that the optimizers have a state
    buffer = model.replay_buffer
    assert isinstance(buffer, SharedReplayBuffer)
    buffer.reset()
    fill(buffer, n)
    saver = CheckpointCallback(folder)
    saver.init_callback(model)
    sample = timed(lambda: buffer.sample(256), 200)
    first = timed(saver.save)
    stalls = []
    for _ in range(3):
        fill(buffer, EVERY)
        model.num_timesteps += EVERY
        stalls.append(timed(saver.save))
    disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print("this package (exact, whole or not at all)")
    print(f"  memory of the buffer      {buffer.nbytes / 1e9:6.2f} GB")
    print(f"  minibatch of 256          {1e3 * sample:6.2f} ms")
    print(f"  checkpoint, first of all  {first:6.2f} s  (writes the whole buffer)")
    print(f"  checkpoint, each further  {max(stalls):6.2f} s  (largest of {len(stalls)}, {EVERY} new transitions)")
    fast = make(env_id, SharedReplayBuffer, 1000, ACCX)
    fast.learn(110)
    for name, learner in {"ACC": model, "ACC-X": fast}.items():
        step = timed(lambda learner=learner: learner.train(1, 256), 10)  # type: ignore[misc]
        share = np.mean(stalls) / (EVERY * step + np.mean(stalls))
        print(f"  share of training, {name:<6} {100 * share:6.2f} %  (every {EVERY} steps of {1e3 * step:.0f} ms)")
    back = make(env_id, SharedReplayBuffer, n)
    load = timed(lambda: CheckpointCallback(folder).resume(back))
    print(f"  resume                    {load:6.2f} s, {disk / 1e9:.2f} GB on disk")


def theirs(env_id: str, n: int, folder: Path) -> None:
    model = make(env_id, ReplayBuffer, n)
    model.learn(110)
    buffer = model.replay_buffer
    assert buffer is not None
    buffer.reset()
    fill(buffer, n)
    arrays = [value for value in vars(buffer).values() if isinstance(value, np.ndarray)]
    sample = timed(lambda: buffer.sample(256), 200)
    seconds = timed(lambda: (model.save(folder / "model"), model.save_replay_buffer(folder / "buffer")))
    disk = (folder / "buffer.pkl").stat().st_size
    print("SB3's replay buffer, save and save_replay_buffer (not exact, no protection against a crash)")
    print(f"  memory of the buffer      {sum(array.nbytes for array in arrays) / 1e9:6.2f} GB")
    print(f"  minibatch of 256          {1e3 * sample:6.2f} ms")
    print(f"  each checkpoint           {seconds:6.2f} s, {disk / 1e9:.2f} GB on disk")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="Humanoid-v5")
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    th.set_num_threads(args.threads)
    print(
        f"{time.strftime('%Y-%m-%d')}, {cpu_name()}, {args.threads} threads, torch {th.__version__}: "
        f"ACC (N=5, 3x512) on {args.env}, replay buffer of {args.transitions} transitions"
    )
    with tempfile.TemporaryDirectory(dir=".") as name:
        ours(args.env, args.transitions, Path(name) / "ours")
        theirs(args.env, args.transitions, Path(name))


if __name__ == "__main__":
    main()
