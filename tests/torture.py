"""The large form of the tests of resuming, and the table in docs/reliability.md.

python tests/torture.py [--kills 60] [--only TEXT] [--write docs/reliability.md]
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "runs"))
sys.path.insert(0, str(Path(__file__).parent / "store"))

import numpy as np
import test_checkpoint as cases
import torch as th
from kit import ALGORITHMS, digests, killed_until_done, run, tiny

from acc_rl.runs.provenance import cpu_name
from acc_rl.store import records

TESTS = Path(__file__).parent
BEGIN, END = "<!-- torture: begin -->", "<!-- torture: end -->"
READ = "the checkpoint before it, or the new one, was read whole"
EQUAL = "bit-identical"
NAMED = "detected and named, the checkpoint before it was used"


def kills(folder: Path, total: int) -> tuple[str, str]:
    """Runs killed at random moments until they are done, against the same runs left alone"""
    rng, hit, runs = random.Random(0), 0, 0
    combinations = [(a, e, n) for a in ALGORITHMS for e in ("Pendulum-v1", "Hopper-v5") for n in (1, 2)]
    for i, (algo, env, n_envs) in enumerate(combinations):
        spec = tiny(env, algo, n_envs=n_envs)
        start = time.monotonic()
        whole = digests(run(spec, folder / f"whole-{i}"))
        wanted = (i + 1) * total // len(combinations) - hit
        done, hits = killed_until_done(spec, folder / f"killed-{i}", wanted, time.monotonic() - start, rng)
        found = digests(done)
        assert found == whole, f"{spec.name}: {[name for name in whole if whole[name] != found[name]]} differ"
        hit, runs = hit + hits, runs + 1
    what = f"{runs} runs ({', '.join(ALGORITHMS)}; Pendulum-v1, Hopper-v5; 1 and 2 envs), {hit} kills"
    return what, "weights, optimizers, RNG, replay buffer and records bit-identical"


def tests() -> list[tuple[str, str, str, str, str]]:
    """What is tested, how often (%d: as many as the tests), the result, and the tests that show it: file and pattern"""
    with tempfile.TemporaryDirectory() as name:
        operations = cases.count_operations(cases.make_two(Path(name)))
    damages = len(cases.FILES) * sum(times for _, times in cases.DAMAGES)
    each, all_of_it = f"at each of its {operations} file operations", "each commit of a checkpoint"
    untouched = "refused by name, nothing else touched"
    table = {
        "store/test_checkpoint.py": [
            ("kill -9 inside the checkpoint writer", each, READ, "kill_9_at_every_file_operation"),
            ("fsync of the file, rename, fsync of the folder", all_of_it, "in this order", "flushed_before_renamed"),
            ("ENOSPC, EIO, EACCES", each, f"{READ}; the next try worked", "failing_disk_leaves"),
            ("bit flips, truncation, deletion of each file", f"{damages} damages", NAMED, "damage_is_detected"),
            ("swaps of files between checkpoints", "each kind of file", "detected and named", "swapped"),
            ("hostile files, with a canary", "%d files", "refused in one line, no code ran", "hostile"),
        ],
        "runs/test_resume.py": [
            ("links in place of checkpoints, replay, a step", "%d links", untouched, "linked_checkpoints_are_refused"),
            ("checkpoints of another run", "%d, another seed's", untouched, "checkpoints_of_another_run"),
            ("a record file truncated by someone else", "%d time", "the run ends and names it", "is_truncated_ends"),
        ],
        "runs/test_exactness.py": [
            (
                "envs with state over episodes",
                "%d cases",
                "reported, the open episode closed as truncated",
                "state_over_episodes",
            ),
            (
                "wrappers, noise, buffers, callbacks that no checkpoint keeps",
                "%d tests",
                "named in a warning at the start",
                "named or looked_at",
            ),
        ],
        "runs/test_declared_state.py": [
            (
                "state of algorithms, schedules and controllers, undeclared",
                "%d cases",
                "an error by name at the first checkpoint",
                "is_an_error_with_its_name",
            ),
            ("the same, declared; noise with a memory", "%d cases", EQUAL, "resumed_exactly or resumes_exactly"),
        ],
    }
    return [(*row[:3], file, row[3]) for file, rows in table.items() for row in rows]


def passed(file: str, pattern: str) -> int:
    """How many tests there are; all of them pass"""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-k", pattern, str(TESTS / file)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent)
    found = re.search(r"(\d+) passed", result.stdout)
    assert found is not None, result.stdout
    assert result.returncode == 0, result.stdout
    return int(found[1])


def stops(folder: Path) -> tuple[str, str]:
    """SIGTERM to a real process at moments of a run: how long it takes to end, and whether a step is lost"""
    spec = tiny(settings={"train_freq": 1}, steps=3000, eval_every=300, eval_episodes=10)
    start = time.monotonic()
    whole = digests(run(spec, folder / "whole"))
    seconds, rng, longest, times = time.monotonic() - start, random.Random(1), 0.0, 0
    while not (folder / "stopped" / spec.name / records.RESULT).exists():
        child = os.fork()
        if child == 0:
            try:
                run(spec, folder / "stopped")
            except KeyboardInterrupt as stopped:
                os._exit(getattr(stopped, "exit_code", 1))
            os._exit(0)
        time.sleep(rng.uniform(0.1, 0.4) * seconds)
        asked = time.monotonic()
        os.kill(child, signal.SIGTERM)
        status = os.waitpid(child, 0)[1]
        longest = max(longest, time.monotonic() - asked)
        # before the handlers are set the signal ends the process as it always does
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) in (0, 128 + signal.SIGTERM)
        times += 1
    assert digests(folder / "stopped" / spec.name) == whole
    return f"{times} stops of a run", f"ended within {longest:.1f} s, no step lost, bit-identical"


def long_run(folder: Path, steps: int) -> tuple[str, str]:
    """Memory, files and descriptors over many checkpoints"""
    from acc_rl.store.checkpoint import Checkpoints

    settings = {"train_freq": 8, "buffer_size": 20_000, "batch_size": 32}
    spec = tiny(steps=steps, settings=settings, eval_every=steps, log_every=1000)
    seen, original = [], Checkpoints.write

    def write(self: Checkpoints, step: int, *args: object) -> None:
        original(self, step, *args)  # type: ignore[arg-type]
        status = Path("/proc/self/status").read_text()
        memory = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]
        files = sum(1 for _ in self.folder.rglob("*"))
        seen.append((step, memory, files, len(os.listdir("/proc/self/fd"))))

    Checkpoints.write = write  # type: ignore[method-assign]
    try:
        run(spec, folder, checkpoint_every=steps // 100)
    finally:
        Checkpoints.write = original  # type: ignore[method-assign]
    late = np.array([row for row in seen if row[0] >= 2 * settings["buffer_size"]], float)
    growth = np.polyfit(late[:, 0], late[:, 1], 1)[0] * 100_000 / 1e6
    assert growth < 1, f"memory grows by {growth:.2f} MB per 100k steps"
    assert late[-1, 2] <= late[:, 2].min() + 2, "files are left behind"
    assert late[-1, 3] <= late[0, 3], "descriptors are left open"
    return f"{steps} steps, {len(seen)} checkpoints", f"memory grows by {growth:.2f} MB per 100k steps, nothing is left"


def plain_sb3(folder: Path) -> tuple[str, str]:
    """The same with SB3's save, save_replay_buffer and load"""
    from stable_baselines3 import SAC

    def fresh() -> SAC:
        nets = {"net_arch": [16]}
        return SAC("MlpPolicy", "Pendulum-v1", learning_starts=100, batch_size=16, policy_kwargs=nets, seed=0)

    def weights(model: SAC) -> str:
        tensors = model.policy.state_dict().values()
        return hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).hexdigest()

    whole = fresh().learn(500)
    first = fresh().learn(250)
    first.save(folder / "model")
    first.save_replay_buffer(folder / "buffer")
    second = SAC.load(folder / "model", env=first.get_env())
    second.load_replay_buffer(folder / "buffer")
    second.learn(250, reset_num_timesteps=False)
    equal = weights(second) == weights(whole)
    return "1 stop, at a step of its choice", "bit-identical" if equal else "resumes, but the weights differ"


def isolated(function: object, *args: object) -> tuple[str, str]:
    """In a process of its own: threads of an earlier part must not be forked, nor its memory measured"""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_call, (function, args))


def _call(function: object, args: tuple[object, ...]) -> tuple[str, str]:
    th.set_num_threads(1)
    return function(*args)  # type: ignore[operator, no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--only", default="", help="only rows that contain this text")
    parser.add_argument("--write", type=Path, help="the page whose table is replaced")
    args = parser.parse_args()
    if args.only and args.write:
        parser.error("--write needs the whole table: leave --only out")
    rows = [("what", "how often", "result")]

    def add(name: str, find: Callable[[], tuple[str, str]]) -> None:
        if args.only in name:
            rows.append((name, *find()))
            print(" | ".join(rows[-1]), flush=True)

    folder = Path(tempfile.mkdtemp(dir="."))
    try:
        add("kill -9 at random moments, resume, until done", partial(isolated, kills, folder / "kills", args.kills))
        for name, often, result, *where in tests():
            add(name, lambda: (often.replace("%d", str(passed(*where))), result))  # noqa: B023, called at once
        stopped = "SIGTERM at random moments (warm-up, training, evaluation, saving)"
        add(stopped, partial(isolated, stops, folder / "stops"))
        add("a long run", partial(isolated, long_run, folder / "long", args.steps))
        (folder / "sb3").mkdir()
        add("for comparison: plain SB3 SAC, stopped and loaded", partial(isolated, plain_sb3, folder / "sb3"))
    finally:
        shutil.rmtree(folder)
    if args.write is not None:
        table = [f"| {' | '.join(row)} |" for row in rows]
        made = f"Made by `make torture` on {time.strftime('%Y-%m-%d')}, {cpu_name()}, {os.cpu_count()} cores."
        text = "\n".join([BEGIN, table[0], "|---|---|---|", *table[1:], "", made, END])
        before, rest = args.write.read_text().split(BEGIN)
        args.write.write_text(before + text + rest.split(END)[1])


if __name__ == "__main__":
    main()
