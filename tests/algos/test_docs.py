"""The examples in the docs run as they stand there."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = re.findall(r"```python\n(.*?)```", (DOCS / "own_algorithm.md").read_text(), flags=re.DOTALL)


def test_value_error_of_sb3s_own_sac(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "getting_started.md").read_text(), flags=re.DOTALL)
    (block,) = [block for block in blocks if "ValueErrorCallback" in block]
    exec(block.replace("10_000", "2_200").replace('"Pendulum-v1",', '"Pendulum-v1", gradient_steps=0,'), {})
    (row,) = (tmp_path / "value_error.jsonl").read_text().splitlines()
    assert '"pairs": 1000' in row


@pytest.mark.parametrize("block", BLOCKS, ids=["any critic", "other names"])
def test_recipe(block, tmp_path):
    names = {"__name__": "recipe"}
    exec(block, names)
    model = names["model"]
    assert model.calibration.controller.scale > 0
    assert model.beta != 0
    # the targets are shifted: beta at its two ends gives two different losses on the same weights and batch
    network, seen = model.target_network(), []
    inputs = (model.policy.obs_to_tensor(model.observation_space.sample())[0],)
    if hasattr(model, "critic"):
        inputs += (model.actor(inputs[0]),)
    ends = model.bias.range
    for beta in (ends[0], 0.0, ends[1]):
        model.calibration.controller.beta = beta
        out = network(*inputs)
        seen.append((out if not isinstance(out, tuple) else out[0]).flatten()[0].item())
    assert seen[0] < seen[1] < seen[2]
    assert seen[2] - seen[1] == pytest.approx(ends[1] / 100 * abs(seen[1]), rel=1e-3)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert loaded.beta == ends[1]
    assert len(block.split("class ")[1].split("\n\n\n")[0].splitlines()) < 30
