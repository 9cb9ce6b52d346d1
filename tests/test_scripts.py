"""What examples and benchmarks take from the package is there."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted([*ROOT.glob("examples/*.py"), *ROOT.glob("benchmarks/*.py")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_names_of_the_package_exist(script):
    imports = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.ImportFrom)]
    for node in imports:
        if node.module is None or node.module.split(".")[0] != "acc_rl":
            continue
        module = importlib.import_module(node.module)
        for each in node.names:
            there = hasattr(module, each.name) or importlib.util.find_spec(f"{node.module}.{each.name}")
            assert there, f"{node.module} has no {each.name}"
