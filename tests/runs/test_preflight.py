"""How much memory there is."""

import psutil
import pytest

from acc_rl.runs import preflight


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [("max", "5", 8000), ("5000", "1000", 4000), ("20000", "1000", 8000), (None, None, 8000)],
)
def test_the_limit_of_a_container_counts(limit, used, expected, tmp_path, monkeypatch):
    class Memory:
        available = 8000

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    monkeypatch.setattr(preflight, "CONTAINER", tmp_path)
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit + "\n")
        (tmp_path / "memory.current").write_text(used + "\n")
    assert preflight.memory_available() == expected
