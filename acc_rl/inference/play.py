"""Episodes to look at."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from acc_rl.core.errors import AccError, needs
from acc_rl.runs.spec import RunSpec
from acc_rl.store.files import PART

GIF_FPS = 25
FREE_CAMERA = -1
"""MuJoCo's own, which stays where it is unless its settings name a body to follow"""


def play(
    folder: Path, task: str | RunSpec, episodes: int, seed: int, video: Path | None, horizon: int | None = None
) -> Iterator[dict[str, Any]]:
    """Play episodes with deterministic actions, in a window or into a video file; gives return and length of each."""
    if episodes < 1:
        raise AccError(f"episodes is {episodes}, but must be >= 1")
    if sys.platform == "linux":
        if video is not None:
            os.environ.setdefault("MUJOCO_GL", "egl")  # read when mujoco is imported
        elif not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            raise AccError("there is no screen for a window: use --video FILE.mp4 or --gif FILE.gif")

    from acc_rl.inference.policy import load_policy
    from acc_rl.runs import envs
    from acc_rl.runs.evaluation import AFTERWARDS, evaluation_seeds, play_episodes

    policy = load_policy(folder)
    env = envs.make(task, horizon, render_mode="human" if video is None else "rgb_array")
    _follow(env)
    # beside the video until it is whole
    part = None if video is None else video.with_name(PART + video.name)
    fps = env.metadata.get("render_fps", 30)
    # GIFs know hundredths of a second, and viewers slow down what is faster than that
    every = max(1, round(fps / GIF_FPS)) if video is not None and video.suffix == ".gif" else 1
    writer = None if part is None else _writer(part, fps / every)
    try:
        for episode_seed in evaluation_seeds(seed, AFTERWARDS, episodes):
            result: dict[str, Any] = {"return": 0.0, "length": 0}
            for step in play_episodes(policy, [env], [episode_seed]):
                result["return"] += step.reward
                result["length"] += 1
                if writer is not None and result["length"] % every == 0:
                    writer.append_data(_even(env.render()))
            yield result
        if writer is not None and part is not None and video is not None:
            writer.close()
            part.replace(video)
    finally:
        env.close()
        if writer is not None and part is not None:
            writer.close()
            part.unlink(missing_ok=True)


def _follow(env: gym.Env[Any, Any]) -> None:
    """Film a body that may leave the picture with the camera that its model has for that, if the task's does not"""
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None or renderer.camera_id != FREE_CAMERA:  # the run may have chosen one of its own
        return
    if "trackbodyid" not in (renderer.default_cam_config or {}):
        import mujoco

        # the free one again where there is none of that name
        renderer.camera_id = mujoco.mj_name2id(renderer.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")


def _writer(path: Path, fps: float) -> Any:
    with needs("video", "a video needs ffmpeg"):
        import imageio
        import imageio_ffmpeg  # noqa: F401
    if path.suffix == ".gif":
        return imageio.get_writer(path, duration=1000 / fps, loop=0)
    return imageio.get_writer(path, fps=fps, macro_block_size=1)


def _even(frame: Any) -> Any:
    """ffmpeg takes frames of even sizes alone: the last row or column is there twice where need be"""
    height, width, _ = frame.shape
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
