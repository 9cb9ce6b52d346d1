"""Ready for a GPU, without one: on torch's meta device there are no numbers that the host could wait for."""

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import DictReplayBufferSamples
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from acc_rl.algos.buffers import SharedNStepReplayBuffer, SharedReplayBuffer
from acc_rl.algos.registry import find
from acc_rl.algos.transfer import ALIGN, to_device

META = th.device("meta")
BETWEEN_NUMPY_AND_TORCH = (th.ops.aten.lift_fresh.default, th.ops.aten.detach.default)


class OnDevice(TorchDispatchMode):
    """Counts transfers; an operation that mixes devices, or computes on the host, raises.

    Torch itself lets some pass on meta. Numbers (tensors without dimensions) may stay on the host: Adam counts there.
    """

    def __init__(self):
        super().__init__()
        self.transfers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        inputs = [each for each in tree_leaves((args, kwargs)) if isinstance(each, th.Tensor)]
        result = func(*args, **(kwargs or {}))
        from_host = any(each.device.type == "cpu" and each.dim() for each in inputs)
        if from_host and func is th.ops.aten._to_copy.default and result.device == META:
            self.transfers += 1
        elif from_host and func not in BETWEEN_NUMPY_AND_TORCH:
            raise AssertionError(f"{func} has an input on the CPU")
        return result


def filled(name, **settings):
    """A model on the meta device with 50 made-up transitions"""
    env = "CartPole-v1" if "dqn" in name else "Pendulum-v1"
    model = find(name).make("MlpPolicy", env, device="meta", buffer_size=100, **settings)
    model.set_logger(Logger(None, []))
    fill(model.replay_buffer, 50)
    return model


def fill(buffer, n, seed=0):
    buffer.observation_space.seed(seed)
    buffer.action_space.seed(seed)
    for i in range(n):
        obs, after = (buffer.observation_space.sample() for _ in range(2))
        obs, after = ({k: v[None] for k, v in o.items()} if isinstance(o, dict) else o[None] for o in (obs, after))
        action = np.array([buffer.action_space.sample()]).reshape(1, -1)
        buffer.add(obs, after, action, np.full(1, i / 7), np.array([i % 9 == 8]), [{}])


@pytest.mark.parametrize("name", ["acc", "sac", "acc-x", "acc-sac", "acc-td3", "x-gpl", "acc-dqn", "acc-qrdqn"])
def test_a_training_step_stays_on_the_device(name):
    model = filled(name)
    with OnDevice() as seen:
        model.train(3, batch_size=16)
    assert seen.transfers == 3  # one per minibatch
    assert all(total.device == META for total, _ in model._metrics.values())


@pytest.mark.parametrize("settings", [{"n_steps": 3}, {"critic_updates": 2}, {"reward_scaling": True}])
def test_options_stay_on_the_device_too(settings):
    model = filled("sac", **settings)
    with OnDevice() as seen:
        model.train(2, batch_size=16)
    assert seen.transfers == 2 * settings.get("critic_updates", 1)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x: x.sum().item(),
        lambda x: float(x.mean()),
        lambda x: x[x > 0],
        lambda x: x.cpu(),
        lambda x: x @ th.ones(4, 2),
        lambda x: x.gather(1, th.zeros(3, 1, dtype=th.long)),
        lambda x: x[th.tensor([0, 1])],
        lambda x: x + th.ones(3, 4),
    ],
)
def test_a_mistake_would_raise(mistake):
    x = th.ones(3, 4, device=META)
    with pytest.raises((RuntimeError, NotImplementedError, AssertionError)), OnDevice():
        mistake(x)


SPACES = {
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "image": spaces.Box(0, 255, (3, 5, 5), np.uint8),
    "dict": spaces.Dict({"a": spaces.Box(-1, 1, (7,), np.float32), "b": spaces.Box(0, 255, (5,), np.uint8)}),
}


class Elsewhere:
    """A device that is not the CPU to ``to_device``, and is the CPU to torch: what arrives can be read"""

    type = "elsewhere"


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("actions", [spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)], ids=["box", "discrete"])
def test_what_arrives_is_what_was_sent(name, actions, monkeypatch):
    """Bit by bit, in order, with SB3's own samples on the other side"""
    ours, theirs = SharedReplayBuffer(60, SPACES[name], actions, "cpu"), None
    fill(ours, 50)
    np.random.seed(1)  # noqa: NPY002, as SB3 draws
    there = ours.sample(16)
    to = th.Tensor.to
    monkeypatch.setattr(th.Tensor, "to", lambda self, device, **_: to(self, "cpu"))
    arrived = to_device(there, Elsewhere())
    assert type(arrived) is type(there)
    for one, other in zip(tree_leaves(tuple(there)), tree_leaves(tuple(arrived)), strict=True):
        if one is None:
            assert other is None
            continue
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert th.equal(one, other)
        assert other.data_ptr() % ALIGN == arrived.rewards.data_ptr() % ALIGN
    if name != "dict":
        theirs = ReplayBuffer(60, SPACES[name], actions, "cpu")
        fill(theirs, 50)
        np.random.seed(1)  # noqa: NPY002
        assert th.equal(theirs.sample(16).observations, arrived.observations)


def test_n_step_samples_arrive_too():
    box, actions = SPACES["box"], spaces.Box(-1, 1, (2,), np.float32)
    ours, theirs = SharedNStepReplayBuffer(60, box, actions, "cpu"), NStepReplayBuffer(60, box, actions, "cpu")
    samples = []
    for buffer in (ours, theirs):
        fill(buffer, 50)
        np.random.seed(1)  # noqa: NPY002
        samples.append(buffer.sample(16))
    assert all(th.equal(one, other) for one, other in zip(*samples, strict=True))
    ours.device = META
    with OnDevice() as seen:
        moved = ours.sample(16)
    assert seen.transfers == 1
    assert [(each.device, each.shape, each.dtype) for each in moved] == [
        (META, each.shape, each.dtype) for each in samples[0]
    ]


def test_on_the_cpu_nothing_is_copied():
    batch = DictReplayBufferSamples({"a": th.ones(2)}, th.ones(2), {"a": th.ones(2)}, th.ones(2), th.ones(2))
    assert to_device(batch, th.device("cpu")) is batch
