import numpy as np
import pytest
import torch as th
from hypothesis import given
from hypothesis import strategies as st

from acc_rl.nn.scaling import Normalizer, RewardScale


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(0, 99))
def test_statistics_are_those_of_all_rows(batches, seed):
    rng = np.random.default_rng(seed)
    normalizer, rows = Normalizer(3), []
    for n in batches:
        rows.append(th.tensor(rng.normal(5.0, 2.0, (n, 3))))
        normalizer.add(rows[-1])
    everything = th.cat(rows)
    th.testing.assert_close(normalizer.mean, everything.mean(0), rtol=1e-12, atol=1e-12)
    th.testing.assert_close(normalizer.var, everything.var(0, correction=0), rtol=1e-10, atol=1e-12)
    assert normalizer.count == len(everything)


def test_the_mean_follows_after_a_million_rows():
    normalizer = Normalizer(1)
    normalizer.load_state_dict({"mean": th.tensor([10.0]), "var": th.tensor([0.01]), "count": th.tensor(1e6)})
    for _ in range(10_000):
        normalizer.add(th.full((1, 1), 10.4))
    assert normalizer.mean.item() == pytest.approx((10.0 * 1e6 + 10.4 * 1e4) / 1.01e6, rel=1e-6)
    assert normalizer(th.full((1, 1), 10.0)).item() == pytest.approx(-0.00396 / normalizer.var.item() ** 0.5, rel=1e-2)


def test_normalised_rows_have_mean_zero_and_variance_one():
    rows, normalizer = 3 + 2 * th.randn(500, 2), Normalizer(2)
    for row in rows:
        normalizer.add(row[None])
    out = normalizer(rows)
    assert out.mean(0).abs().max() < 1e-3
    assert (out.var(0) - 1).abs().max() < 1e-2


def test_the_scale_of_rewards_by_hand():
    """gamma = 0.5, rewards 2, 2, then the end, then 4: G = 2, 3, 4"""
    scale = RewardScale(0.5, bound=2.0)
    assert scale.value == 1.0  # nothing is known
    for reward, ended in ((2.0, False), (2.0, True), (4.0, False)):
        scale.add(np.array([reward]), np.array([ended]))
    assert scale.mean == pytest.approx(3.0)
    assert scale.var == pytest.approx(2 / 3)
    assert scale.value == 2.0  # max|G| / bound = 4 / 2 > 0.8
    assert scale.open.tolist() == [4.0]


def test_several_envs_and_saving():
    rng = np.random.default_rng(0)
    one, two = RewardScale(0.9, 5.0), RewardScale(0.9, 5.0)
    steps = [(rng.normal(size=3), rng.random(3) < 0.2) for _ in range(40)]
    for step in steps[:20]:
        one.add(*step)
    two.load_state_dict(one.state_dict())
    for step in steps[20:]:
        one.add(*step)
        two.add(*step)
    assert one.count == 120
    assert one.value == two.value
    np.testing.assert_array_equal(one.open, two.open)


def test_a_dimension_that_has_not_varied_does_not_outweigh_the_others():
    normalizer = Normalizer(2)
    normalizer.add(th.tensor([[0.0, 0.0], [2.0, 0.0]]))
    assert normalizer(th.tensor([[3.0, -1.0]])).tolist() == [[pytest.approx(2.0), -10.0]]
