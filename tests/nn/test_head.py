import numpy as np
import pytest
import torch as th
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from acc_rl.nn.head import Categorical, Law, Quantiles, Scalar
from acc_rl.nn.knob import PoolOrMin


def test_the_loss_of_numbers_by_hand():
    z, y = th.tensor([[[1.0], [2.0]], [[0.0], [4.0]]], requires_grad=True), th.tensor([[1.0], [0.0]])
    loss = Scalar(factor=0.5).loss(z, Law(y))
    assert loss.item() == 0.5 * ((0 + 4) / 2 + (1 + 16) / 2)
    loss.backward()
    assert z.grad.flatten().tolist() == [0, 1, -0.5, 2]
    each = th.tensor([[[1.0], [2.0]], [[1.0], [3.0]]])  # a target for each net
    assert Scalar().loss(z, Law(each)).item() == (0 + 0) / 2 + (1 + 1) / 2
    assert Scalar(huber=True).loss(z[1:], Law(y)).item() == (0.5 + 3.5) / 2


def test_quantiles_take_the_atoms_of_several_laws_together():
    z, y = th.randn(2, 3, 5), th.randn(2, 3, 4)
    together = y.transpose(0, 1).flatten(1).sort().values
    th.testing.assert_close(Quantiles(5).loss(z, Law(y)), Quantiles(5).loss(z, Law(together)))
    th.testing.assert_close(Quantiles(5, factor=5).loss(z, Law(y)), 5 * Quantiles(5).loss(z, Law(together)))


def naive_projection(atoms, weights, bound, n):
    """C51, atom by atom"""
    width, result = 2 * bound / (n - 1), np.zeros(n)
    for atom, weight in zip(atoms, weights, strict=True):
        place = (min(max(atom, -bound), bound) + bound) / width
        low = min(int(np.floor(place)), n - 2)
        result[low] += weight * (1 - (place - low))
        result[low + 1] += weight * (place - low)
    return result


def test_atoms_of_a_target_need_no_order():
    rng = th.Generator().manual_seed(0)
    z, y = th.randn(2, 5, 3, generator=rng), th.randn(5, 4, generator=rng)
    losses = [Quantiles(3).loss(z, Law(each)) for each in (y, y.sort(-1).values, y.flip(-1))]
    assert losses[0] == losses[1] == losses[2] == Quantiles(3).loss(z, Law(y.sort(-1).values, ascending=True))


@given(st.integers(2, 11), st.floats(0.5, 10), st.integers(0, 999))
def test_the_projection_equals_the_naive_loop(n, bound, seed):
    generator = th.Generator().manual_seed(seed)
    head = Categorical(n, bound)
    law = head.law(th.randn(2, 4, n, generator=generator, dtype=th.double))
    rewards, discounts = 3 * th.randn(2, 4, 1, generator=generator, dtype=th.double)
    target = law.bellman(rewards, discounts.sigmoid())
    projected = head.project(target)
    for net in range(2):
        for sample in range(4):
            expected = naive_projection(target.atoms[sample], target.weights[net, sample], bound, n)
            np.testing.assert_allclose(projected[net, sample], expected, atol=1e-12)
    th.testing.assert_close(projected.sum(-1), th.ones(2, 4, dtype=th.double))


def test_the_projection_keeps_the_mean_of_what_lies_in_the_support():
    head = Categorical(101, 5.0)
    law = head.law(th.randn(1, 8, 101, dtype=th.double))
    target = law.bellman(th.full((8, 1), 0.013, dtype=th.double), th.full((8, 1), 0.9, dtype=th.double))
    projected = (head.project(target) * head.support(target.weights)).sum(-1)
    th.testing.assert_close(projected, target.mean())
    th.testing.assert_close(target.mean(), 0.013 + 0.9 * law.mean())


def test_the_cross_entropy_is_torchs():
    head, z = Categorical(7), th.randn(2, 5, 7, requires_grad=True)
    y = th.rand(5, 7).softmax(-1)
    loss = head.loss(z, Law(head.support(y), y))
    expected = sum(F.cross_entropy(z[net], head.project(Law(head.support(y), y))) for net in range(2))
    th.testing.assert_close(loss, expected)
    th.testing.assert_close(head.values(z), (z.softmax(-1) * head.support(z)).sum(-1))


@given(st.floats(0, 1), st.integers(1, 4), st.integers(0, 99))
def test_the_mean_of_pool_or_min_is_the_mix_of_mean_and_minimum(beta, n_nets, seed):
    head = Categorical(9)
    law = head.law(th.randn(n_nets, 6, 9, generator=th.Generator().manual_seed(seed), dtype=th.double))
    mixed, values = PoolOrMin()(law, beta), law.mean()
    th.testing.assert_close(mixed.mean(), beta * values.mean(0) + (1 - beta) * values.amin(0))
    th.testing.assert_close(mixed.weights.sum(-1), th.ones(6, dtype=th.double))


def test_pool_or_min_is_shown_as_pessimism_and_stays_within_its_range():
    knob = PoolOrMin()
    assert (knob.shown_as, knob.shown(1.0), knob.shown(0.25)) == ("pessimism", 0.0, 0.75)
    with pytest.raises(ValueError, match=r"range=\(0, 2\)"):
        knob.check(0.0, 2.0)
