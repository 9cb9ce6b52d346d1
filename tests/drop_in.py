"""The tests of SB3 and sb3-contrib with the classes of this package in the place of theirs.

python tests/drop_in.py --sb3 CHECKOUT --contrib CHECKOUT [--only TEXT] [--keep FOLDER] [--write docs/from_sb3.md]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

BEGIN, END = "<!-- drop-in: begin -->", "<!-- drop-in: end -->"
LIBRARIES = {"stable_baselines3": ("SAC", "TD3", "DDPG", "DQN"), "sb3_contrib": ("TQC", "QRDQN")}
SETS = {
    "theirs": {name: name for names in LIBRARIES.values() for name in names},
    "plain": {name: name for names in LIBRARIES.values() for name in names},
    "calibrated": {"TQC": "ACC", **{name: f"ACC{name}" for name in ("QRDQN", "SAC", "TD3", "DDPG", "DQN")}},
}
"""of theirs, the class that takes its place; the first set is theirs itself, for comparison"""
REASONS = {
    "test_continuous": "it learns for 400 steps, but `learning_starts` is 5000 here, as in the paper; "
    "with `learning_starts=100` it passes",
    "test_save_load_pytorch_var": "it learns for 128 steps, but `learning_starts` is 5000 here, as in the paper",
    "test_warn_buffer": "it expects the warning that `optimize_memory_usage` cuts the last episode; ours cuts none",
    "test_eval_callback_logs_are_written_with_the_correct_timestep": "it looks for the log folder `DQN_1`; "
    "folders have the class's name",
    "test_performance_her": "a threshold for one seed; the weights equal those of SB3's DQN up to rounding, which "
    "grows over 1500 steps (SB3's DQN misses the threshold with seeds 2 and 3)",
    "test_fps_logger": "it measures the speed of SB3's loop by the clock, which a busy machine distorts",
}
"""why a test fails with our classes, where that is known"""
Results = dict[str, dict[str, Any]]


class Substitute:
    """Puts our classes where ``from LIBRARY import NAME`` finds them, and keeps the tests that concern them."""

    def __init__(self, library: str, names: str) -> None:
        import acc_rl

        there = __import__(library)
        self.classes: dict[type, str] = {}
        found = {}
        for name in LIBRARIES[library]:
            found[name] = getattr(there if names == "theirs" else acc_rl, SETS[names][name])
            self.classes[found[name]] = name
        vars(there).update(found)  # after ours are imported, which are built on theirs
        self.results: dict[str, dict[str, Any]] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        for item in items:
            if concerned := self.concerned(item):
                self.results[item.nodeid] = {"classes": sorted(concerned)}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self.results])
        items[:] = [item for item in items if item.nodeid in self.results]

    def concerned(self, item: Any) -> set[str]:
        """The classes among a test's parameters; where no algorithm is, those that its code names"""
        from stable_baselines3.common.base_class import BaseAlgorithm

        parameters = getattr(item, "callspec", None)
        values = [] if parameters is None else list(_flat(parameters.params.values()))
        algorithms = [each for each in values if isinstance(each, type) and issubclass(each, BaseAlgorithm)]
        if not algorithms:
            named = _names(item.function.__code__)
            algorithms = [vars(item.module)[name] for name in named if isinstance(vars(item.module).get(name), type)]
        return {self.classes[each] for each in algorithms if each in self.classes}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = self.results[report.nodeid]
        if report.when == "call" or report.failed or report.skipped:
            crash = getattr(report.longrepr, "reprcrash", None)
            result["outcome"] = report.outcome
            result["reason"] = "" if crash is None else crash.message.splitlines()[0]


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        yield from _flat(value) if isinstance(value, (list, tuple)) else (value,)


def _names(code: CodeType) -> set[str]:
    """Of globals in a function and in those inside it"""
    inside = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inside)


def run_here(checkout: str, library: str, names: str, only: str, out: str) -> None:
    """In a process of its own, since the libraries are changed in it"""
    plugin = Substitute(library, names)
    options = ["-c", os.devnull, "--rootdir", checkout, "-p", "no:cacheprovider", "-p", "no:xdist", "-q", "--tb=short"]
    options.append("--continue-on-collection-errors")  # some files need packages that are not installed
    code = pytest.main([f"{checkout}/tests", *options, "-k", only], plugins=[plugin])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.exit(int(code))
    run = {test: each for test, each in plugin.results.items() if "outcome" in each}  # --only leaves others out
    Path(out).write_text(json.dumps(run, indent=1))


def run(checkout: Path, library: str, names: str, only: str, keep: Path) -> Results:
    """By the id of the test: the classes that it concerns, its outcome, and why it failed"""
    out = keep.resolve() / f"{library}.{names}.json"
    if not out.exists():
        here = ["--here", str(checkout.resolve()), library, names, "--only", only, "--out", str(out)]
        with tempfile.TemporaryDirectory() as folder:  # some tests write where they are started
            subprocess.run([sys.executable, str(Path(__file__).resolve()), *here], cwd=folder, check=True)
    results: Results = json.loads(out.read_text())
    return results


def passed(results: Results, name: str = "") -> tuple[int, int]:
    """Of the tests that concern the class (any, without a name) and are not skipped"""
    outcomes = [each["outcome"] for each in results.values() if not name or name in each["classes"]]
    return outcomes.count("passed"), len(outcomes) - outcomes.count("skipped")


def counts(results: dict[str, Results]) -> list[str]:
    """Rows of a table: a class of theirs, and how many of its tests pass with which class"""
    rows = ["| their class | with itself | with ours, plain | with ours, calibrated |", "|---|---|---|---|"]
    for name in SETS["theirs"]:
        cells = [f"`{classes[name]}` {_share(*passed(results[names], name))}" for names, classes in SETS.items()]
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    return [*rows, f"| all | {' | '.join(_share(*passed(results[names])) for names in SETS)} |"]


def _share(good: int, total: int) -> str:
    return f"{good} of {total}" + (f" ({100 * good / total:.1f} %)" if 0 < good < total else "")


def failures(results: dict[str, Results]) -> list[str]:
    """Rows of a table: a test that fails, with which classes, and why"""
    found: dict[str, tuple[set[str], str]] = {}
    for names in ("plain", "calibrated"):
        for test, each in results[names].items():
            if each["outcome"] == "failed":
                name = test.rpartition("::")[2].partition("[")[0]
                classes, _ = found.setdefault(name, (set(), REASONS.get(name, each["reason"])))
                classes |= {SETS[names][theirs] for theirs in each["classes"]}
    rows = [f"| `{test}` | {', '.join(sorted(classes))} | {why} |" for test, (classes, why) in sorted(found.items())]
    return ["| test | fails with | reason |", "|---|---|---|", *rows]


def about(checkouts: dict[str, Path]) -> str:
    from acc_rl.runs.provenance import cpu_name, versions

    commits = ", ".join(f"{name} {_commit(path)}" for name, path in checkouts.items())
    installed = ", ".join(f"{name} {number}" for name, number in versions().items() if name != "acc_rl")
    when = time.strftime("%Y-%m-%d")
    return f"`make drop-in`, {when}, {cpu_name()}, {os.cpu_count()} cores; tests of {commits}; installed: {installed}."


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sb3", type=Path, help="a checkout of SB3")
    parser.add_argument("--contrib", type=Path, help="a checkout of sb3-contrib")
    parser.add_argument("--only", default="", help="tests whose names contain this")
    parser.add_argument("--keep", type=Path, help="folder for the outcomes; what is there already is not run again")
    parser.add_argument("--write", type=Path, help="the page whose tables are replaced")
    parser.add_argument("--here", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        run_here(*arguments.here, arguments.only, arguments.out)
        return
    if not (arguments.sb3 and arguments.contrib):
        parser.error("give both checkouts, --sb3 and --contrib")
    if arguments.only and arguments.write:
        parser.error("--write needs all tests: leave --only out")
    checkouts = {"stable_baselines3": arguments.sb3, "sb3_contrib": arguments.contrib}
    results: dict[str, Results] = {}
    with tempfile.TemporaryDirectory() as folder:
        keep = arguments.keep or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        for names in SETS:
            found = [run(path, library, names, arguments.only, keep) for library, path in checkouts.items()]
            results[names] = {f"{i}/{test}": each for i, part in enumerate(found) for test, each in part.items()}
    table = [*counts(results), "", *failures(results), "", about(checkouts)]
    print("\n".join(table))
    if arguments.write:
        before, rest = arguments.write.read_text().split(BEGIN)
        arguments.write.write_text("\n".join([before + BEGIN, *table, END]) + rest.split(END)[1])


if __name__ == "__main__":
    main()
