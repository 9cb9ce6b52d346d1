"""Models that 0.1 saved are refused with a line that names the version."""

import re
import zipfile

import pytest
from small import ShortPendulum, make

from acc_rl import ACC


@pytest.mark.parametrize("given", [str, lambda path: path, lambda path: str(path.with_suffix(""))])
def test_a_model_of_the_first_version_is_refused(given, tmp_path):
    """Its data has no ``_bias_given``, and names classes that are gone"""
    path = tmp_path / "model.zip"
    make("acc", ShortPendulum()).save(path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content["data"] = re.sub(rb'"_bias_given"', b'"bias_rule"', content["data"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    with pytest.raises(ValueError, match=r"model\.zip was saved by acc_rl 0\.1"):
        ACC.load(given(path))
