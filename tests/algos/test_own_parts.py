"""A categorical critic fits every actor-critic without touching its file."""

import pytest
import torch as th
from small import BIAS, COMMON, ShortPendulum

from acc_rl import ACC, ACCDQN, ACCSAC, ACCTD3
from acc_rl.nn.head import Head, Law
from acc_rl.nn.knob import Knob, MixWithMin


class Categorical(Head):
    """Weights on a fixed grid; cross-entropy with the target split between the two nearest atoms"""

    n_outputs = 51
    grid = th.linspace(-400.0, 10.0, 51)

    def law(self, z):
        return Law(self.grid.expand_as(z), z.softmax(-1))

    def loss(self, z, target):
        place = ((target.atoms - self.grid[0]) / (self.grid[1] - self.grid[0])).clamp(0, 50)
        share = (1 - (place[..., None] - th.arange(51)).abs()).clamp(min=0)
        wanted = (target.weights[..., None] * share).sum(-2)
        assert wanted.sum(-1).allclose(th.ones(()))
        return -(wanted * z.log_softmax(-1)).sum(-1).mean()


class MeanOrSmallest(MixWithMin):
    """beta * mean_i p_i + (1 - beta) * p of the critic with the smallest mean"""

    def __call__(self, law, beta):
        smallest = law.weights[law.mean().argmin(dim=0), th.arange(law.atoms.shape[1])]
        return Law(law.atoms[0], beta * law.weights.mean(dim=0) + (1 - beta) * smallest)


@pytest.mark.parametrize("base", [ACC, ACCSAC, ACCTD3])
def test_a_categorical_critic(base, tmp_path):
    class Own(base):
        def make_head(self):
            return Categorical()

        def make_knob(self):
            return MeanOrSmallest()

    model = Own("MlpPolicy", ShortPendulum(), **COMMON, n_critics=2, policy_kwargs={"net_arch": [16]}, bias=BIAS)
    model.learn(200)
    batch = model.replay_buffer.sample(32)
    with th.no_grad():
        z = model.critic(batch.observations, batch.actions)
        law = model.head.law(z)
        assert z.shape == (2, 32, 51)
        expected = (z.softmax(-1) * Categorical.grid).sum(-1)
        assert model.value_estimate(batch.observations, batch.actions).allclose(expected.mean(dim=0), rtol=1e-4)
        mixed = model.calibration.target(law, 0.25).mean()
    assert mixed.allclose(0.25 * expected.mean(dim=0) + 0.75 * expected.amin(dim=0), rtol=1e-4)
    assert model.beta != 0.5
    model.save(tmp_path / "model")
    loaded = Own.load(tmp_path / "model")
    assert th.equal(loaded.critic(batch.observations, batch.actions), z)


class OneLaw(Knob):
    """The mean of the estimates, one for all critics"""

    range, start, step, plain = (0.0, 1.0), 0.5, 0.02, 0.0

    def __init__(self):
        pass

    def __call__(self, law, beta):
        return Law(law.atoms.mean(dim=0))


def test_one_law_for_both_estimates_of_dqn_is_a_target_of_each_row():
    model = type("Own", (ACCDQN,), {"make_knob": lambda self: OneLaw()})(
        "MlpPolicy", "CartPole-v1", seed=0, buffer_size=100, learning_starts=20, batch_size=8
    )
    model.learn(60)
    rows = model.replay_buffer.sample(8)
    with th.no_grad():
        q, online = model.q_net_target(rows.next_observations), model.q_net(rows.next_observations)
        both = q.amax(dim=1, keepdim=True) + q.gather(1, online.argmax(dim=1, keepdim=True))
        wanted = rows.rewards + 0.99 * (1 - rows.dones) * both / 2
        assert th.allclose(model.next_law(rows.next_observations, 0.5).atoms, both / 2)
        assert th.allclose(model.td_target(rows, 0.5).mean(), wanted.squeeze(1))
