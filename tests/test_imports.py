"""Each package knows only the packages below it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "acc_rl"
ORDER = ("core", "nn", "algos", "store", "runs", "inference", "study", "commands")
BELOW = {
    **{package: set(ORDER[: i + 1]) for i, package in enumerate(ORDER)},
    "theory": {"core", "theory", "store.files"},
    "report": {"core", "store.records", "store.files", "runs.spec", "report"},
}
BELOW["commands"] |= {"report", "theory", "", "__version__"}  # the version stands in the package itself
FORBIDDEN = {
    "core": {"torch", "stable_baselines3", "sb3_contrib"},
    "nn": {"stable_baselines3", "sb3_contrib"},
    "report": {"torch", "stable_baselines3", "sb3_contrib"},
    "theory": {"torch", "stable_baselines3", "sb3_contrib"},
}


def imports(tree):
    """The modules that a file names, also inside functions and behind TYPE_CHECKING."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def offences(package, source):
    for name in imports(ast.parse(source)):
        top, _, inside = name.partition(".")
        if top in FORBIDDEN.get(package, set()):
            yield name
        if top == "acc_rl" and not any((inside + ".").startswith(below + ".") for below in BELOW[package]):
            yield name


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_back_edge(path):
    package = path.relative_to(PACKAGE).parts[0]
    assert list(offences(package, path.read_text())) == []


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("core", "import torch.nn"),
        ("core", "from acc_rl.nn import losses"),
        ("nn", "def f():\n    from stable_baselines3 import SAC"),
        ("nn", "import acc_rl.algos.tqc"),
        ("algos", "from acc_rl.runs.spec import RunSpec"),
        ("report", "from acc_rl.runs import train"),
        ("core", "from acc_rl import ACC"),
    ],
)
def test_a_back_edge_would_be_found(package, source):
    assert list(offences(package, source))
