"""Teach a simulated cheetah to run with acc-x, draw what was learned, film it, and say what to try next."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import altair as alt

import acc_rl
from acc_rl.core.errors import AccError
from acc_rl.runs.train import Stopped
from acc_rl.store import records

PANELS = {
    "mean_return": (records.EVALUATIONS, "return of test episodes"),
    "pessimism": (records.TRAINING, "pessimism that ACC chose"),
    "gap": (records.TRAINING, "gap: return - Q"),
}
RUNNERS = ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid-")
"""tasks whose body leaves the picture unless the camera follows it"""
FRAMES = 200
"""of the video: ten seconds of HalfCheetah"""


def spec(env: str, steps: int, seed: int) -> acc_rl.RunSpec:
    """A short run that is measured often; one thread, as nets this small gain nothing from a second"""
    settings = {"learning_starts": min(1000, steps // 2), "buffer_size": steps}
    every = max(steps // 20, 1)
    return acc_rl.RunSpec(
        env, algo="acc-x", steps=steps, seed=seed, eval_every=every, eval_episodes=3, threads=1, settings=settings
    )


def draw(folder: Path, path: Path, title: str) -> None:
    """What test episodes brought, how pessimistic the targets were, and how far the critic was off, over the steps"""
    rows = {name: list(records.read(folder / name)) for name in (records.EVALUATIONS, records.TRAINING)}
    panels = [
        alt.Chart(alt.Data(values=[{"step": row["step"], key: row[key]} for row in rows[name] if key in row]))
        .mark_line()
        .encode(alt.X("step:Q", title="env steps"), alt.Y(f"{key}:Q", title=axis))
        .properties(width=250, height=180)
        for key, (name, axis) in PANELS.items()
    ]
    alt.hconcat(*panels, title=title).save(path, scale_factor=2)


def film(folder: Path, env: str, path: Path) -> str:
    """In a process of its own: how to render is decided when MuJoCo is imported, and not every machine can"""
    command = [sys.executable, __file__, "--env", env, "--render", str(folder), str(path)]
    environment = {"MUJOCO_GL": "egl", **os.environ} if sys.platform == "linux" else None
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode == 0 and path.exists():
        return f"video:   {path}"
    reason = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    return f"no video, rendering failed here: {reason}"


def render(folder: Path, env_id: str, path: Path) -> None:
    """The first steps of an episode as a video"""
    import gymnasium as gym
    import imageio

    follow = {"camera_name": "track"} if env_id.startswith(RUNNERS) else {}
    policy, env = acc_rl.load_policy(folder), gym.make(env_id, render_mode="rgb_array", **follow)
    observation, _ = env.reset(seed=1)
    with imageio.get_writer(path, fps=env.metadata["render_fps"]) as video:
        for _ in range(FRAMES):
            observation, _, terminated, truncated, _ = env.step(policy(observation))
            video.append_data(env.render())
            if terminated or truncated:
                break
    env.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--steps", type=int, default=20_000, help="env steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the results")
    parser.add_argument("--no-video", action="store_true")
    parser.add_argument("--render", nargs=2, type=Path, metavar=("RUN", "VIDEO"), help="only film a finished run")
    args = parser.parse_args()
    if args.render:
        render(args.render[0], args.env, args.render[1])
        return
    print(f"{args.env}: {args.steps} steps with acc-x; Ctrl-C stops, the same command resumes")
    try:
        folder = acc_rl.train(spec(args.env, args.steps, args.seed), args.out)
    except Stopped as stopped:
        sys.exit(stopped.exit_code)
    except AccError as error:
        sys.exit(f"{error}")
    draw(folder, args.out / "curves.png", f"acc-x on {args.env}")
    print(f"curves:  {args.out / 'curves.png'}")
    if not args.no_video:
        print("filming ...")
        print(film(folder, args.env, args.out / "demo.mp4"))
    acc = Path(sys.executable).with_name("acc")
    print(
        "try next:",
        f"  {acc} eval {folder} --episodes 20",
        f"  {acc} report {folder} --out {args.out / 'report'}",
        "  " + f"{acc} train Hopper --algo acc-x --steps 5e4",
        sep="\n",
    )


if __name__ == "__main__":
    main()
