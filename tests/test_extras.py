"""What is not installed is named in one line with the extra that brings it; the core needs none of it."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import acc_rl
from acc_rl.algos.registry import find
from acc_rl.commands.main import EXIT_ERROR, main
from acc_rl.core.errors import AccError, MissingExtra

try:
    import tomllib
except ImportError:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
HIDDEN = (
    *("altair", "imageio", "jinja2", "matplotlib", "metaworld", "mujoco", "onnx", "onnxruntime", "orjson", "pandas"),
    *("ray", "sb3_contrib", "scipy", "tensorboard", "tqdm", "vl_convert"),
)


def hide(monkeypatch, *names):
    """As if they were not installed; modules that have imported them forget it until the test ends."""
    for name in [each for each in sys.modules if each.partition(".")[0] in names]:
        monkeypatch.delitem(sys.modules, name)
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)
    for name in list(sys.modules):
        if name.startswith(("acc_rl.report", "acc_rl.theory", "acc_rl.inference", "acc_rl.algos.qrdqn")):
            monkeypatch.delitem(sys.modules, name)


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A short run with Pendulum"""
    out = tmp_path_factory.mktemp("runs")
    return acc_rl.train(acc_rl.RunSpec("Pendulum-v1", algo="acc-x", steps=1, eval_episodes=1), out)


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("altair", "report", "report {run}"),
        ("orjson", "report", "report {run}"),
        ("scipy", "report", "theorem"),
        ("altair", "report", "diagnose model.zip --env Pendulum-v1"),
        ("sb3_contrib", "contrib", "train CartPole-v1 --algo qrdqn --steps 10"),
        ("mujoco", "mujoco", "train Hopper --steps 10"),
        ("metaworld", "metaworld", "train metaworld/push-v3 --steps 10"),
        ("onnxruntime", "onnx", "export {run} policy.onnx"),
        ("imageio_ffmpeg", "video", "play {run} --video policy.mp4"),
        ("ray", "ray", "study quick --ray local"),
    ],
)
def test_a_command_names_the_extra(package, extra, command, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    hide(monkeypatch, package)
    if package == "mujoco":
        for name in [each for each in sys.modules if each.startswith("gymnasium.envs.mujoco")]:
            monkeypatch.delitem(sys.modules, name)
    assert main(command.format(run=run).split()) == EXIT_ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert f"pip install 'acc_rl[{extra}]'" in line


def test_the_extras_of_errors_exist():
    named = {
        each for path in (ROOT / "acc_rl").rglob("*.py") for each in re.findall(r"needs\(\"(\w+)\"", path.read_text())
    }
    assert named >= {"contrib", "report", "onnx", "video", "ray", "metaworld", "tensorboard"}
    assert named <= set(EXTRAS)


def test_from_python_the_error_is_an_import_error_too(monkeypatch):
    hide(monkeypatch, "sb3_contrib")
    with pytest.raises(ImportError, match=r"acc_rl\[contrib\]") as error:
        acc_rl.QRDQN  # noqa: B018
    assert isinstance(error.value, (AccError, MissingExtra))
    find("dqn").load()  # the neighbour is there


def test_the_core_needs_no_extra(tmp_path):
    """In a process that cannot import any of them: train, resume, evaluate, load."""
    code = f"""
import sys
sys.modules |= dict.fromkeys({HIDDEN!r})
from pathlib import Path
import numpy as np
import acc_rl
from acc_rl.commands.main import main
tiny = "--n-critics 2 --qf 8 8 --learning-starts 100 --eval-episodes 1".split()
for steps in ("150", "200"):
    assert main(["train", "Pendulum-v1", "--steps", steps, *tiny]) == 0
(run,) = Path("runs").iterdir()
assert acc_rl.load_policy(run)(np.zeros(3, np.float32)).shape == (1,)
assert main(["eval", str(run), "--episodes", "1"]) == 0
for name in set(acc_rl.__all__) - {{"QRDQN", "ACCQRDQN"}}:
    getattr(acc_rl, name)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "acc_rl[tensorboard]" in done.stdout + done.stderr


def test_every_import_is_declared():
    """Top-level names that the package imports belong to a requirement of the core or of an extra."""
    names = {
        name
        for path in (ROOT / "acc_rl").rglob("*.py")
        for name in re.findall(r"^\s*(?:import|from) (\w+)", path.read_text(), flags=re.MULTILINE)
    }
    theirs = {"stable_baselines3": "stable-baselines3", "vl_convert": "vl-convert-python", "sb3_contrib": "sb3-contrib"}
    theirs |= {"imageio_ffmpeg": "imageio-ffmpeg", "typing_extensions": "typing-extensions"}
    declared = {Requirement(each).name for part in (PROJECT["dependencies"], *EXTRAS.values()) for each in part}
    others = {theirs.get(name, name) for name in names - set(sys.stdlib_module_names) - {"acc_rl"}}
    assert others - declared == {"markupsafe"}  # a part of Jinja's interface


def test_constraints_fit_the_bounds_and_pythons():
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            pin = Requirement(line)
            pins[pin.name.lower().replace("_", "-")] = pin
    for part in (PROJECT["dependencies"], *EXTRAS.values()):
        for wanted in map(Requirement, part):
            if wanted.name != "acc_rl" and (wanted.marker is None or wanted.marker.evaluate()):
                (exact,) = pins[wanted.name.lower().replace("_", "-")].specifier
                assert exact.version in wanted.specifier, wanted
    for name, pin in pins.items():
        try:
            pythons = SpecifierSet(metadata(name).get("Requires-Python") or "")
        except PackageNotFoundError:
            continue
        needs_311 = not pythons.contains("3.10.99")
        assert (str(pin.marker) == 'python_version >= "3.11"') == needs_311, f"{name} needs Python {pythons}"
