"""The demo leaves a run, its curves and three commands that work."""

import importlib.util
import sys
from pathlib import Path

import pytest

from acc_rl.commands.main import main as acc

FILE = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """The script as a module, in a folder of its own"""
    module_spec = importlib.util.spec_from_file_location("demo", FILE)
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    return module


def test_the_demo(demo, tmp_path, monkeypatch, capsys):
    words = ["--env", "Pendulum-v1", "--steps", "200", "--out", "out", "--no-video"]
    monkeypatch.setattr(sys, "argv", ["demo", *words])
    demo.main()
    told = capsys.readouterr().out
    assert (tmp_path / "out" / "curves.png").stat().st_size > 10_000
    commands = [line.split() for line in told.split("try next:\n")[1].splitlines()]
    assert [words[1] for words in commands] == ["eval", "report", "train"]
    for words in commands[:2]:
        assert Path(words[0]).name == "acc"
        assert acc(words[1:]) == 0
    assert (tmp_path / "out" / "report" / "index.html").exists()
    parse = importlib.import_module("acc_rl.commands.train").parse_train
    assert parse(commands[2][2:]) is not None


def test_where_nothing_can_be_rendered(demo, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FILE.parents[1]))
    told = demo.film(tmp_path / "not-there", tmp_path / "video.mp4")
    assert told.startswith("no video, rendering failed here: ")
    assert "not-there" in told
    assert not (tmp_path / "video.mp4").exists()
