"""The examples in the docs run as they stand there."""

import re
from pathlib import Path

import pytest
import torch as th
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from acc_rl import ACCSAC
from acc_rl.nn.head import Law
from acc_rl.runs.state import fingerprints, require_declared

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page, heading=""):
    """The Python examples of a page, or of one of its sections"""
    text = (DOCS / page).read_text()
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0] if heading else text
    return re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)


PAGES = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]
ALL = {f"{page.name}-{i}": block for page in PAGES for i, block in enumerate(blocks(page))}
COMPILED_ALONE = {
    "getting_started.md-0": "needs a trained run",
    "rl_zoo.md-0": "needs RL Zoo",
    "from_sb3.md-1": "needs a model of sb3-contrib's",
    "from_sb3.md-2": "needs a trained run",
    "robot.md-0": "needs a trained run",
    "robot.md-1": "needs a robot",
}
TINY = 100
"""env steps"""


@pytest.mark.parametrize("name", COMPILED_ALONE)
def test_an_example_that_cannot_run_here_compiles(name):
    compile(ALL[name], name, "exec")


@pytest.mark.parametrize(
    "name", sorted(name for name in ALL if not name.startswith("extend.md") and name not in COMPILED_ALONE)
)
def test_an_example_runs(name, tmp_path, monkeypatch):
    """As it stands on its page, but with few steps"""
    learn = OffPolicyAlgorithm.learn

    def short(self, total_timesteps, *args, **kwargs):
        self.learning_starts = TINY - 10
        return learn(self, min(total_timesteps, TINY), *args, **kwargs)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(OffPolicyAlgorithm, "learn", short)
    names = {"__name__": "example"}
    exec(compile(ALL[name], name, "exec"), names)
    if "model" in names:
        assert names["model"].num_timesteps == TINY


def run(block):
    th.manual_seed(0)
    names = {"__name__": "example"}
    exec(block, names)
    return names


def test_value_error_of_sb3s_own_sac(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in blocks("getting_started.md") if "ValueErrorCallback" in block]
    exec(block.replace("10_000", "2_200").replace('"Pendulum-v1",', '"Pendulum-v1", gradient_steps=0,'), {})
    (row,) = (tmp_path / "value_error.jsonl").read_text().splitlines()
    assert '"pairs": 1000' in row


def test_swapping_the_import():
    block, *_ = blocks("from_sb3.md")
    model = run(block.replace("10_000", "102"))["model"]
    assert (model.critic.ensemble.n_nets, model.head.n_outputs, model._n_updates) == (2, 25, 2)
    assert model.dropped_per_net == 2


@pytest.mark.parametrize("block", blocks("extend.md"))
def test_a_part_takes_less_than_30_lines(block):
    assert len(block.splitlines()) < 30


def test_a_controller_of_ones_own(tmp_path):
    (block,) = blocks("extend.md", "A controller")
    names = run(block)
    model, start = names["model"], 2.5
    controller = model.calibration.controller
    assert isinstance(controller, names["Significant"])
    # Pendulum costs at every step and a fresh critic says 0: each of the five updates takes a whole step downwards
    assert controller.steps == 5
    assert model.beta == pytest.approx(start - 5 * 0.1)
    assert model.dropped_per_net == pytest.approx(5 - model.beta)
    before = fingerprints(model)
    controller.measured(type("Evidence", (), {"gap": 1.0, "error": 0.6}))  # within two standard errors
    assert controller.steps == 5
    controller.measured(type("Evidence", (), {"gap": 1.0, "error": 0.4}))
    assert model.beta == pytest.approx(start - 4 * 0.1)
    require_declared(model, before)  # what moved travels with the calibration, so a checkpoint has it
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert (loaded.beta, loaded.calibration.controller.steps) == (model.beta, 6)
    assert type(loaded.calibration.controller).__name__ == "Significant"


def test_a_knob_of_ones_own(tmp_path):
    (block,) = blocks("extend.md", "A knob")
    model = run(block)["model"]
    knob, atoms = model.calibration.knob, th.tensor([[[1.0]], [[4.0]]])
    assert [knob(Law(atoms), beta).atoms.item() for beta in (0.0, 0.5, 1.0)] == [1.0, 1.75, 2.5]
    assert 0 < model.beta < 0.5  # the critic overestimates
    batch = model.replay_buffer.sample(64)
    low, high = (targets(model, batch, beta) for beta in (0.0, 1.0))
    assert (low <= high).all()
    assert (low < high).any()
    model.save(tmp_path / "model")
    plain = type(model).load(tmp_path / "model", controller="fixed")
    sac = ACCSAC.load(tmp_path / "model", controller="fixed", bias={})
    assert plain.beta == sac.beta == 0
    assert th.equal(targets(plain, batch), targets(sac, batch))


def targets(model, batch, beta=None):
    """The means of the targets, with the same noise each time"""
    th.manual_seed(1)
    with th.no_grad():
        return model.td_target(batch, model.beta if beta is None else beta).mean()


def test_a_head_of_ones_own():
    (block,) = blocks("extend.md", "A head")
    model = run(block)["model"]
    batch = model.replay_buffer.sample(64)
    with th.no_grad():
        z = model.critic(batch.observations, batch.actions)
        estimate = model.value_estimate(batch.observations, batch.actions)
        target = model.td_target(batch, 0.0)
    assert z.shape == (2, 64, 2)
    assert estimate.allclose(z[..., 0].mean(dim=0), atol=1e-4)
    assert target.atoms.shape == (64, 2)
    # the two learned numbers are what the likelihood wants: 1/2 ((y - mean) / std)^2 + log std + log(2 pi) / 2
    mean, std = z[..., :1], z[..., 1:].exp()
    expected = (((target.atoms - mean) / std).square() / 2 + std.log() + 0.9189385).mean()
    assert model.head.loss(z, target).item() == pytest.approx(expected.item(), rel=1e-4)
    worse = model.head.loss(z + 5, target), model.head.loss(z - 3, target)
    assert model.head.loss(z, target) < min(worse)
    assert model.calibration.last_update == 400


def test_a_net_of_ones_own(tmp_path):
    (block,) = blocks("extend.md", "A net")
    names = run(block)
    model = names["model"]
    nets = model.critic.ensemble.nets
    assert [type(net) for net in nets] == [names["Fourier"]] * 2
    x = th.randn(3, 4)
    phase = nets[0].projection(x)
    assert th.equal(model.critic.ensemble(x)[0], nets[0].out(th.cat([phase.sin(), phase.cos()], dim=1)))
    # two more critic updates, after the second of which the targets follow
    online, target = (critic.ensemble.nets[0].projection.weight for critic in (model.critic, model.critic_target))
    before, followed = online.detach().clone(), target.detach().clone()
    model.train(2, batch_size=16)
    assert not th.equal(online, before)
    assert target.allclose(followed.lerp(online, model.tau), atol=1e-6)
    assert model.calibration.last_update == 400
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert th.equal(loaded.critic.ensemble(x), model.critic.ensemble(x))


@pytest.mark.parametrize("block", blocks("extend.md", "An algorithm"), ids=["any critic", "other names"])
def test_an_algorithm_of_ones_own(block, tmp_path):
    model = run(block)["model"]
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
