import pytest
import torch as th
from hypothesis import assume, given
from hypothesis import strategies as st

from acc_rl.core.controller import Calibrating, Evidence
from acc_rl.core.settings import PAPER
from acc_rl.nn.head import Law
from acc_rl.nn.knob import MixWithMin, Shift, Truncate, mix_with_min, shift, truncated


def test_truncate_by_hand():
    z = th.tensor([[[1.0, 5.0]], [[4.0, 2.0]]])  # two nets, one sample
    assert truncated(z, 0).tolist() == [[1, 2, 4, 5]]
    assert truncated(z, 0.5).tolist() == [[1, 2, 4]]
    assert truncated(z, 1).tolist() == [[1, 2]]


def test_a_half_rounds_to_even_as_in_the_official_code():
    assert truncated(th.zeros(5, 1, 25), 2.5).shape == (1, 125 - 12)


@given(st.integers(1, 6), st.integers(1, 30), st.floats(0, 1, exclude_max=True), st.integers(0, 99))
def test_counts_and_kept_atoms_are_exact(n_nets, n_atoms, share, seed):
    d = share * n_atoms
    assume(round(d * n_nets) < n_nets * n_atoms)
    z = th.randn(n_nets, 3, n_atoms, generator=th.Generator().manual_seed(seed))
    kept = truncated(z, d)
    n_kept = n_nets * n_atoms - round(d * n_nets)
    assert kept.shape == (3, n_kept)
    for sample in range(3):
        assert kept[sample].tolist() == sorted(z[:, sample].flatten().tolist())[:n_kept]


@given(st.integers(1, 6), st.integers(6, 12), st.floats(0, 5), st.floats(0, 5), st.integers(0, 99))
def test_the_estimate_grows_with_beta(n_nets, n_atoms, one, other, seed):
    z = th.randn(n_nets, 2, n_atoms, generator=th.Generator().manual_seed(seed), dtype=th.double)
    low, high = sorted([one, other])
    q_low, q_high = (Truncate.of(n_nets, n_atoms)(Law(z), beta).mean() for beta in (low, high))
    assert (q_low <= q_high + 1e-12).all()


def test_dropping_everything_is_refused():
    with pytest.raises(AssertionError, match="leaves none"):
        truncated(th.zeros(2, 1, 3), 3)


def test_mix_with_min_by_hand():
    q = th.tensor([[[1.0], [8.0]], [[3.0], [4.0]]])  # two critics, two samples
    assert mix_with_min(q, 0.0).squeeze(2).tolist() == [[1, 4], [1, 4]]
    assert mix_with_min(q, 0.5).squeeze(2).tolist() == [[1, 6], [2, 4]]
    assert mix_with_min(q, 1.0).squeeze(2).tolist() == [[1, 8], [3, 4]]


def test_shift_by_hand():
    assert shift(th.tensor([200.0, -200.0]), 10.0).tolist() == pytest.approx([220, -180])
    assert shift(th.tensor([200.0, -200.0]), -5.0).tolist() == pytest.approx([190, -210])


@given(st.floats(-10, 10), st.floats(-10, 10), st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=9))
def test_shift_grows_with_beta_and_keeps_the_order_of_values(one, other, values):
    low, high = sorted([one, other])
    q = th.tensor(sorted(values), dtype=th.double)
    assert (shift(q, low) <= shift(q, high)).all()
    assert (shift(q, low).diff() >= -1e-9).all()


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 4), st.integers(0, 99))
def test_mixes_grow_with_beta(one, other, n, seed):
    low, high = sorted([one, other])
    q = th.randn(n, 5, 1, generator=th.Generator().manual_seed(seed), dtype=th.double)
    assert (mix_with_min(q, low) <= mix_with_min(q, high) + 1e-12).all()


@pytest.mark.parametrize("knob", [Truncate.of(2, 3), MixWithMin(), Shift.of(0.99), Shift.of(0.99, each=True)])
def test_weighted_atoms_are_refused(knob):
    z = th.randn(2, 4, 3)
    with pytest.raises(ValueError, match="have weights"):
        knob(Law(z, th.full_like(z, 1 / 3)), 0.0)


def test_negative_d_drops_the_smallest():
    z = th.tensor([[[1.0, 5.0]], [[4.0, 2.0]]])
    assert truncated(z, -0.5).tolist() == [[2, 4, 5]]
    assert Truncate.of(2, 2, d_max=1.0)(Law(z), beta=2.0).atoms.tolist() == [[4, 5]]


def test_d_is_counted_from_a_fixed_end():
    knob = Truncate.of(5, 25)
    assert (knob.range, knob.start, knob.step, knob.plain) == ((0.0, 5.0), 2.5, 0.1, 3.0)
    assert [knob.shown(beta) for beta in (0.0, 2.5, 5.0, 10.0)] == [5.0, 2.5, 0.0, -5.0]
    knob.check(0.0, 10.0)
    with pytest.raises(ValueError, match=r"range=\(0, 40\): .* would reach -35, but there are only n_atoms=25"):
        knob.check(0.0, 40.0)


@pytest.mark.parametrize("n_steps", [1, 5])
def test_the_default_range_of_the_shift_is_a_contraction(n_steps):
    discount = 0.99**n_steps
    knob = Shift.of(discount)
    assert knob.range[1] == pytest.approx(0.8 * 100 * (1 / discount - 1))
    for beta in knob.range:
        low, high = (knob(Law(th.full((1, 1, 1), q)), beta).atoms.item() for q in (-1000.0, 1000.0))
        assert discount * (high - low) / 2000 < 1
        assert discount * max(abs(low), abs(high)) < 1000
    knob.check(*knob.range)
    with pytest.raises(ValueError, match=r"range=\(-10, 10\), but with a discount of .* \|beta\| < "):
        Shift.of(0.99).check(-10.0, 10.0)


def test_a_shift_without_discount_is_refused():
    with pytest.raises(ValueError, match="gamma is 1"):
        Shift.of(1.0).check(-1.0, 1.0)
    with pytest.raises(ValueError, match=r"within \[0, 1\]"):
        MixWithMin().check(0.0, 2.0)


@pytest.mark.parametrize("error", [-0.005, -0.002, 0.002, 0.005])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_shift_settles_where_the_values_are_known(error, noise):
    """Q <- 1 + gamma * (1 + error) * Q_beta, five sweeps per update, Q* = 100: without the shift 20 to 98 % off."""
    gamma, truth, rng = 0.99, 100.0, th.Generator().manual_seed(0)
    knob, rule, q, path = Shift.of(gamma), Calibrating(), th.full((1, 1, 1), 100.0), []
    rule.begin(PAPER.merged(knob.settings(adapts=True)))
    for step in range(600):
        for _ in range(5):
            q = knob(Law((1 + error) * q), rule.beta).bellman(th.ones(1, 1), th.tensor([[gamma]])).atoms[None]
        returns = truth * (1 + noise * th.randn(1, generator=rng).item())
        rule.measured(Evidence(returns - q.item(), 1.0, step))
        path.append(q.item())
    assert max(abs(each - truth) for each in path[100:]) < 0.05 * truth
    assert max(abs(each - truth) for each in path) > (0.08 * truth if abs(error) > 0.003 else 0)
