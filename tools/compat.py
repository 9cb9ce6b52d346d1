"""Run a part of the tests with the oldest and the newest allowed SB3, Gymnasium and MuJoCo, in throw-away environments.

All other packages are those of constraints.txt.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRIED = ("stable-baselines3", "sb3-contrib", "gymnasium", "mujoco")
WITH = ".[contrib,mujoco,report,tensorboard]"
TESTS = (
    "tests/algos/test_against_sb3.py",
    "tests/algos/test_golden.py",
    "tests/algos/test_buffers.py",
    "tests/algos/test_x.py",
    "tests/runs/test_declared_state.py",
    "tests/inference/test_diagnose.py",
)
MUJOCO = """
import acc_rl, mujoco, gymnasium, stable_baselines3
spec = acc_rl.RunSpec("Hopper", algo="acc-x", steps=300, eval_episodes=1, settings={"learning_starts": 100})
acc_rl.train(spec)
"""


def oldest() -> dict[str, str]:
    """The lower bounds in pyproject.toml"""
    text = (ROOT / "pyproject.toml").read_text()
    return {name: re.findall(rf'"{name}>=([\d.]+)', text)[0] for name in TRIED}


def constraints(pins: dict[str, str]) -> str:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    others = [line for line in lines if line.partition("==")[0].replace("_", "-") not in TRIED]
    return "\n".join(others + [f"{name}=={version}" for name, version in pins.items()])


def attempt(name: str, pins: dict[str, str]) -> bool:
    with tempfile.TemporaryDirectory() as made:
        venv.create(made, with_pip=True)
        python, file = Path(made, "bin", "python"), Path(made, "constraints.txt")
        file.write_text(constraints(pins))
        install = [python, "-m", "pip", "install", "--quiet", "--constraint", file, ROOT / WITH]
        subprocess.run([*install, "pytest", "pytest-xdist", "hypothesis"], check=True, cwd=ROOT)
        listed = subprocess.run([python, "-m", "pip", "list"], check=True, capture_output=True, text=True).stdout
        found = [f"{each} {version}" for each, version in re.findall(r"^(\S+) +(\S+)", listed, flags=re.MULTILINE)]
        told = ", ".join(each for each in found if each.split()[0].lower().replace("_", "-") in TRIED)
        tests = subprocess.run([python, "-m", "pytest", "-q", *TESTS], check=False, cwd=ROOT).returncode
        trained = subprocess.run([python, "-c", MUJOCO], check=False, cwd=made).returncode
    print(f"{name}: {told}: {'passed' if not tests + trained else 'FAILED'}", flush=True)
    return not tests + trained


if __name__ == "__main__":
    sys.exit(not all([attempt("oldest", oldest()), attempt("newest", {})]))
