"""Specs and settings from files that are not what they should be: one line that names the file."""

import json
import os

import pytest

from acc_rl.runs.config import read_spec, read_toml
from acc_rl.store.records import RecordError


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "is no plain file"),
        (lambda path: path.symlink_to("/dev/zero"), "is no plain file"),
        (lambda path: path.symlink_to(path), "symbolic links"),
        (lambda path: path.mkdir(), "is no plain file"),
        (lambda path: (path.touch(), os.truncate(path, 1 << 40)), "not at most"),
        (lambda path: path.write_text("a = " + "[" * 10**5), "recursion|nested"),
        (lambda path: path.write_bytes(b"a = '\xff'"), "codec"),
    ],
)
def test_a_config_that_is_none(tmp_path, make, told):
    make(tmp_path / "run.toml")
    with pytest.raises(ValueError, match=rf"config .*run\.toml: .*({told})"):
        read_toml(tmp_path / "run.toml")


def test_a_config_may_be_a_link(tmp_path):
    (tmp_path / "there.toml").write_text("steps = 5")
    (tmp_path / "run.toml").symlink_to("there.toml")
    assert read_toml(tmp_path / "run.toml") == {"steps": 5}


@pytest.mark.parametrize(("key", "value"), [("steps", 0), ("seed", -1), ("settings", []), ("nonsense", 1)])
def test_a_spec_that_no_run_has(tmp_path, key, value):
    (tmp_path / "spec.json").write_text(json.dumps({"env": "Hopper-v5", key: value}))
    with pytest.raises(RecordError, match=rf"spec\.json: .*{key}"):
        read_spec(tmp_path)
