"""Do several commits train alike? A short run with each, and the SHA-256 of its records.

python tools/same_records.py a223419 4901fdf --task Hopper --algo acc-x --steps 8000

Equal digests are bit-identical runs. One CPU has to make them all: on another one matrix products round differently.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDS = ("evaluations.jsonl", "training.jsonl", "value_error.jsonl")
ACC = "import sys; from acc_rl.commands.main import main; sys.exit(main())"


def digest(commit: str, command: list[str]) -> str:
    """Of the records of ``acc train`` as it was at the commit"""
    with tempfile.TemporaryDirectory() as folder:
        tree, out = Path(folder, "tree"), Path(folder, "out")
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", tree, commit], check=True)
        try:
            begin = [sys.executable, "-c", ACC, "train", *command, "--out", str(out)]
            subprocess.run(begin, check=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(tree)})
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)
        (run,) = out.iterdir()
        return hashlib.sha256(b"".join((run / name).read_bytes() for name in RECORDS)).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    parser.add_argument("--task", default="Hopper")
    parser.add_argument("--algo", default="acc-x")
    parser.add_argument("--steps", type=int, default=8000, help="env steps; half of them before the first evaluation")
    args = parser.parse_args()
    command = [args.task, "--algo", args.algo, "--steps", str(args.steps), "--eval-every", str(args.steps // 2)]
    found = {commit: digest(commit, [*command, "--threads", "1"]) for commit in args.commits}
    for commit, value in found.items():
        print(commit, value[:16])
    return len(set(found.values())) > 1


if __name__ == "__main__":
    sys.exit(main())
