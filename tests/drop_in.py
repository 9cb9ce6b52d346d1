"""The tests of SB3 and sb3-contrib with the classes of this package in the place of theirs.

python tests/drop_in.py --sb3 CHECKOUT --contrib CHECKOUT [--only TEXT] [--write docs/from_sb3.md]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
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
    options += ["--continue-on-collection-errors"]
    pytest.main([f"{checkout}/tests", *options, "-k", only], plugins=[plugin])
    Path(out).write_text(json.dumps(plugin.results))


def run(checkout: Path, library: str, names: str, only: str) -> Results:
    """By the id of the test: the classes that it concerns, its outcome, and why it failed"""
    with tempfile.TemporaryDirectory() as folder:  # some tests write where they are started
        out = Path(folder) / "results.json"
        here = ["--here", str(checkout.resolve()), library, names, "--only", only, "--out", str(out)]
        subprocess.run([sys.executable, str(Path(__file__).resolve()), *here], cwd=folder, check=True)
        results: Results = json.loads(out.read_text())
        return results


def passed(results: Results, name: str) -> tuple[int, int]:
    """Of the tests that concern the class and are not skipped"""
    outcomes = [each["outcome"] for each in results.values() if name in each["classes"]]
    return outcomes.count("passed"), len(outcomes) - outcomes.count("skipped")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sb3", type=Path)
    parser.add_argument("--contrib", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--here", nargs=3)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if arguments.here:
        return run_here(*arguments.here, arguments.only, arguments.out)
    checkouts = {"stable_baselines3": arguments.sb3, "sb3_contrib": arguments.contrib}
    for library, checkout in checkouts.items():
        if checkout is None:
            continue
        for names in arguments.sets:
            results = run(checkout, library, names, arguments.only)
            if arguments.out:
                Path(f"{arguments.out}.{library}.{names}.json").write_text(json.dumps(results, indent=1))
            for name in LIBRARIES[library]:
                print(name, SETS[names][name], names, "%d of %d" % passed(results, name), flush=True)


if __name__ == "__main__":
    main()
