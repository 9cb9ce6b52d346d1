"""Build the wheel and the source distribution into dist/, and try both in an environment of their own.

A package index shows the README alone: relative pictures and links would lead nowhere there. So they are built from a
copy of the package whose README has neither.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("acc_rl", "pyproject.toml", "LICENSE", "CHANGELOG.md", "CITATION.cff")
SMOKE = """
import sys
from pathlib import Path
import numpy as np
import acc_rl
assert Path(acc_rl.__file__).is_relative_to(sys.prefix), acc_rl.__file__
tiny = acc_rl.RunSpec("Pendulum-v1", algo="acc-x", steps=200, eval_episodes=1, settings={"learning_starts": 100})
folder = acc_rl.train(tiny, sys.argv[1])
print("an action:", acc_rl.load_policy(folder)(np.zeros(3, np.float32)))
"""


def portable(readme: str) -> str:
    """Without pictures and their captions, with the texts of relative links alone, installed by name"""
    readme = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n(\n\*[^*]+\*\n)?\n?", "", readme, flags=re.MULTILINE)
    readme = re.sub(r"\[([^\]]+)\]\((?!\w+://)[^)]*\)", r"\1", readme)
    return re.sub(r"--constraint constraints\.txt ('?)\.", r"\1acc_rl", readme)


def build(out: Path) -> None:
    """``python -m build`` in a copy that has what is shipped and nothing else"""
    with tempfile.TemporaryDirectory() as made:
        for name in PARTS:
            source = ROOT / name
            ignore = shutil.ignore_patterns("__pycache__")
            if source.is_dir():
                shutil.copytree(source, Path(made, name), ignore=ignore)
            else:
                shutil.copy(source, made)
        Path(made, "README.md").write_text(portable((ROOT / "README.md").read_text()))
        shutil.rmtree(out, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "build", "--outdir", out, made], check=True, stdout=subprocess.DEVNULL)


def smoke(package: Path) -> None:
    """Install into a fresh environment; ``acc --help``, a tiny run, its policy"""
    with tempfile.TemporaryDirectory() as made:
        venv.create(made, with_pip=True)
        python, constraints = Path(made, "bin", "python"), ROOT / "constraints.txt"
        install = ["-m", "pip", "install", "--quiet", "--constraint", constraints, package]
        for words in (install, ["-m", "acc_rl.commands.main", "--help"], ["-I", "-c", SMOKE, Path(made, "runs")]):
            subprocess.run([python, *words], check=True, cwd=made)
        subprocess.run([Path(made, "bin", "acc"), "--version"], check=True, cwd=made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    out = parser.parse_args().out
    build(out)
    for package in sorted(out.iterdir()):
        print(f"trying {package.name} in a fresh environment")
        smoke(package)
    print(*(f"{each} ({each.stat().st_size // 1024} KB)" for each in sorted(out.iterdir())), sep="\n")


if __name__ == "__main__":
    main()
