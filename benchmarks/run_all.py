"""Runs every benchmark, one after the other, and writes what they print to docs/performance.md."""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import learning

from acc_rl.runs.provenance import cpu_name

HERE = Path(__file__).parent
PACKAGES = ("torch", "numpy", "stable_baselines3", "sb3_contrib", "gymnasium", "mujoco", "ray")
COMMANDS = ("--help", "train --help", "study --help", "report --help")


def parts(sbx: str | None) -> list[tuple[str, str, list[str]]]:
    """Title, what it says, and the command"""
    with_sbx = ["--sbx", sbx] if sbx else []
    return [
        (
            "One training step",
            "In brackets the ratio to ours. The bare products of the same shapes are the floor.",
            ["update_step.py"],
        ),
        (
            "A whole env step",
            "Env, policy, buffer, training and logging of `learn`. SBX is SB3 in JAX; its TQC has two critics. "
            "Beside ACC-X stand CrossQ, SAC with SimBa's nets, and ACC with two critics.",
            ["env_step.py", *with_sbx],
        ),
        (
            "Checkpoints and the replay buffer",
            "A full buffer of a million transitions, beside SB3's way to save as much.",
            ["checkpoint.py"],
        ),
        ("Evaluation and value error", "What they add to training, with the paper's intervals.", ["shares.py"]),
        ("Threads", "From which size of nets on a second one pays; `acc train` goes by it.", ["threads.py"]),
        (
            "torch.compile",
            "Plain functions that it compiles, and the same uncompiled; in brackets the ratio to ours.",
            ["compiled.py"],
        ),
        ("Studies", "Workers, threads and Ray.", ["study.py", "--turns", "2", "--steps", "500"]),
        ("Statistics and the report", "The bootstrap beside rliable's; a study of 480 runs.", ["report_page.py"]),
    ]


def output(words: list[str]) -> str:
    """What the benchmark prints"""
    print("$ python", *words, flush=True)
    result = subprocess.run([sys.executable, str(HERE / words[0]), *words[1:]], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{words[0]} failed, nothing was written:\n{result.stdout}{result.stderr[-2000:]}")
    print(result.stdout, flush=True)
    return re.sub(r"[ \t]+$", "", result.stdout, flags=re.MULTILINE).strip("\n")


def starts(repeats: int = 5) -> str:
    """Seconds until a command has answered and Python has imported the package"""
    lines = []
    tried = {f"acc {words}": ["-m", "acc_rl.commands.main", *words.split()] for words in COMMANDS}
    tried |= {"import acc_rl": ["-c", "import acc_rl"], "from acc_rl import ACC": ["-c", "from acc_rl import ACC"]}
    for name, words in tried.items():
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            subprocess.run([sys.executable, *words], capture_output=True, check=True)
            best = min(best, time.perf_counter() - start)
        lines.append(f"{name:<24} {best:.2f} s")
    return "\n".join(lines)


def section(title: str, about: str, words: list[str]) -> str:
    return f"## {title}\n\n{about} `python benchmarks/{' '.join(words)}`\n\n```\n{output(words)}\n```"


def renew(page: Path, script: str, sbx: str | None) -> None:
    """Put one part in the place of the old one."""
    (part,) = [part for part in parts(sbx) if part[2][0] == script]
    old = re.compile(rf"^## {re.escape(part[0])}$.*?(?=^## |\Z)", flags=re.MULTILINE | re.DOTALL)
    if not old.search(page.read_text()):  # a new part goes to the end
        page.write_text(f"{page.read_text()}\n## {part[0]}\n")
    made = f"{section(*part)}\n\nMeasured again by `--only {script}` on {time.strftime('%Y-%m-%d')}.\n\n"
    page.write_text(old.sub(lambda _: made, page.read_text()).rstrip("\n") + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sbx", help="the Python of an environment with SBX")
    parser.add_argument("--write", type=Path, default=HERE.parent / "docs" / "performance.md")
    parser.add_argument(
        "--only",
        choices=[words[0] for _, _, words in parts(None)],
        help="measure this part again and put it into the page that is there",
    )
    args = parser.parse_args()
    if args.only:
        renew(args.write, args.only, args.sbx)
        return
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    page = [
        "# Performance",
        f"Written by `make bench` on {time.strftime('%Y-%m-%d')}: {cpu_name()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f} before the start, Python {platform.python_version()}, {versions}.",
        "Ratios are from one run each, with the contestants taking turns; times on a shared machine vary more.",
    ]
    page += [section(*part) for part in parts(args.sbx)]
    page += ["## Starting", "Best of five.", f"```\n{starts()}\n```"]
    args.write.write_text("\n\n".join(page) + "\n")
    learning.write_section(args.write, HERE.parent / "results" / "learning.jsonl", minutes=15)  # from its rows alone
    print(f"written: {args.write}")


if __name__ == "__main__":
    main()
