"""Teach a simulated cheetah to run with acc-x, draw what was learned, film it, and say what to try next."""

from __future__ import annotations

import argparse
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
ACC = Path(sys.executable).with_name("acc")
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


def film(folder: Path, path: Path) -> str:
    """In a process of its own: how to render is decided when MuJoCo is imported, and not every machine can"""
    command = [ACC, "play", folder, "--video", path, "--horizon", FRAMES]
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False)
    if done.returncode == 0 and path.exists():
        return f"video:   {path}"
    reason = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    return f"no video, rendering failed here: {reason}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--steps", type=int, default=20_000, help="env steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the results")
    parser.add_argument("--no-video", action="store_true")
    args = parser.parse_args()
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
        print(film(folder, args.out / "demo.mp4"))
    print(
        "try next:",
        f"  {ACC} eval {folder} --episodes 20",
        f"  {ACC} report {folder} --out {args.out / 'report'}",
        "  " + f"{ACC} train Hopper --algo acc-x --steps 5e4",
        sep="\n",
    )


if __name__ == "__main__":
    main()
