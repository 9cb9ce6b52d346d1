"""With beta where the plain algorithm stands, an update equals that of SB3: same weights, minibatches and noise."""

from contextlib import contextmanager
from itertools import cycle

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch as th
from stable_baselines3.common.logger import Logger

import acc_rl
from acc_rl.algos.policies import DeterministicPolicy

ARCH = {"net_arch": [24, 20]}
STEPS, BATCH = 7, 32


def fill(buffer, env, rng):
    for _ in range(300):
        obs, next_obs = rng.normal(size=(2, 1, *env.observation_space.shape))
        action = np.array([env.action_space.sample()])
        buffer.add(obs, next_obs, action, rng.normal(size=1), rng.random(1) < 0.2, [{}])


def trained(cls, env_id, *order, start=None, **kwargs):
    """``STEPS`` gradient steps from the weights ``start``, on minibatches that only depend on the seed."""
    env = gym.make(env_id)
    model = cls(
        "MlpPolicy", env, seed=0, buffer_size=1000, batch_size=BATCH, device="cpu", policy_kwargs=dict(ARCH), **kwargs
    )
    env.action_space.seed(0)
    fill(model.replay_buffer, env, np.random.default_rng(0))
    model.set_logger(Logger(None, []))
    for name, value in (start or {}).items():
        views(model)[name].copy_(value)
    before = copies(model)
    np.random.seed(1)  # noqa: NPY002 (SB3 draws its minibatches from it)
    th.manual_seed(1)
    with noise(*order):
        model.train(STEPS, BATCH)
    return before, copies(model)


def copies(model):
    return {name: value.clone() for name, value in views(model).items()}


def views(model):
    """The weights under SB3's names."""
    weights = {}
    for name, value in model.policy.state_dict().items():
        if name.endswith(".theta"):
            weights |= unstacked(model.policy, name.removesuffix(".theta"))
        else:
            weights[name] = value
    if getattr(model, "log_ent_coef", None) is not None:
        weights["log_ent_coef"] = model.log_ent_coef.detach()
    return weights


def unstacked(policy, path):
    """The nets of an ensemble, one by one."""
    ensemble, owner = policy.get_submodule(path), path.split(".")[0]
    parts = ensemble.parts(ensemble.theta.data)
    *hidden, last = zip(parts[::2], parts[1::2], strict=True)
    weights = {}
    for net in range(ensemble.n_nets):
        nets = f"qf{net}" if "critic" in owner else "mu" if isinstance(policy, DeterministicPolicy) else "latent_pi"
        for layer, (weight, bias) in enumerate([*hidden, last]):
            parts = {"weight": weight[net], "bias": bias[net, :, 0]}
            for kind, value in parts.items():
                if nets == "latent_pi" and layer == len(hidden):  # means, then logarithms of standard deviations
                    weights |= zip((f"actor.mu.{kind}", f"actor.log_std.{kind}"), value.chunk(2), strict=True)
                else:
                    weights[f"{owner}.{nets}.{2 * layer}.{kind}"] = value
    return weights


def assert_same(theirs, ours):
    (their_start, their_end), (our_start, our_end) = theirs, ours
    assert set(their_start) == set(our_start)
    for name, value in their_start.items():
        assert th.equal(value, our_start[name]), name
    for name, value in their_end.items():
        moved = (value - their_start[name]).abs().max().item()
        assert moved > 0, name
        # float32 sums in another order: a few units in the last place, and what steps of Adam make of them
        atol = 2e-3 * moved + 4 * np.finfo(np.float32).eps * value.abs().max().item()
        np.testing.assert_allclose(our_end[name], value, rtol=0, atol=atol, err_msg=name)


ACTOR, NEXT = 0, 1


@contextmanager
def noise(*order):
    """Normal draws that depend on what they are for, not on their order: SB3 draws the actor's first, we last."""
    real, streams, uses = th.randn, [th.Generator().manual_seed(seed) for seed in (11, 12)], cycle(order)

    def draw(shape):
        return real(shape, generator=streams[next(uses)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(th, "randn", lambda *shape, device: draw(shape))
        patch.setattr(th.distributions.Normal, "rsample", lambda self: self.loc + self.scale * draw(self.loc.shape))
        yield


@pytest.mark.parametrize("kwargs", [{}, {"ent_coef": 0.1}, {"ent_coef": "auto_0.3", "target_entropy": -2.0}])
def test_sac(kwargs):
    theirs = trained(sb3.SAC, "Pendulum-v1", ACTOR, NEXT, **kwargs)
    ours = trained(acc_rl.SAC, "Pendulum-v1", NEXT, ACTOR, start=theirs[0], **kwargs)
    assert_same(theirs, ours)


@pytest.mark.parametrize("kwargs", [{}, {"policy_delay": 3}, {"target_policy_noise": 0.4}])
def test_td3(kwargs):
    theirs = trained(sb3.TD3, "Pendulum-v1", **kwargs)
    ours = trained(acc_rl.TD3, "Pendulum-v1", start=theirs[0], **kwargs)
    assert_same(theirs, ours)


def test_ddpg_with_beta_at_zero():
    theirs = trained(sb3.DDPG, "Pendulum-v1")
    ours = trained(acc_rl.ACCDDPG, "Pendulum-v1", start=theirs[0])
    assert_same(theirs, ours)


@pytest.mark.parametrize(("plain", "ours"), [(sb3.DQN, acc_rl.DQN), (sb3_contrib.QRDQN, acc_rl.QRDQN)])
def test_discrete(plain, ours):
    theirs, ours = (trained(cls, "CartPole-v1", learning_rate=1e-3) for cls in (plain, ours))
    for weights in (*theirs, *ours):
        for name in [name for name in weights if "target" in name]:
            del weights[name]  # the target network only follows after thousands of steps
    assert_same(theirs, ours)
