import pytest
import synthetic


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """Two tasks, four algorithms, three seeds, with one run missing, one cut off, and one with gaps."""
    path = tmp_path_factory.mktemp("studies") / "small"
    synthetic.write_study(
        path, ["HalfCheetah-v5", "Hopper-v5"], ["acc", "acc-2q", "sac", "td3"], range(3), steps=40_000
    )
    missing, cut, gaps = (path / f"Hopper-v5_{name}" for name in ("sac_seed1", "td3_seed1", "acc_seed2"))
    for folder in (missing, cut):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    synthetic.write_run(path, synthetic.spec("Hopper-v5", "td3", 1, steps=40_000), until=20_000)
    lines = (gaps / "evaluations.jsonl").read_text().splitlines(keepends=True)
    (gaps / "evaluations.jsonl").write_text("".join(lines[:10] + lines[15:]))
    return path
