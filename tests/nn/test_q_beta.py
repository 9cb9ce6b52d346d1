import pytest
import torch as th
from hypothesis import given
from hypothesis import strategies as st

from acc_rl.nn.q_beta import double_mix, dropped_per_net, mix_with_min, shift, truncate


def test_truncate_by_hand():
    z = th.tensor([[[1.0, 5.0]], [[4.0, 2.0]]])  # two nets, one sample
    assert truncate(z, 0).tolist() == [[1, 2, 4, 5]]
    assert truncate(z, 0.5).tolist() == [[1, 2, 4]]
    assert truncate(z, 1).tolist() == [[1, 2]]


def test_a_half_rounds_to_even_as_in_the_official_code():
    assert truncate(th.zeros(5, 1, 25), 2.5).shape == (1, 125 - 12)


@given(st.integers(1, 6), st.integers(1, 30), st.floats(0, 1, exclude_max=True), st.integers(0, 99))
def test_counts_and_kept_atoms_are_exact(n_nets, n_atoms, share, seed):
    d = share * n_atoms
    if round(d * n_nets) == n_nets * n_atoms:
        return
    z = th.randn(n_nets, 3, n_atoms, generator=th.Generator().manual_seed(seed))
    kept = truncate(z, d)
    n_kept = n_nets * n_atoms - round(d * n_nets)
    assert kept.shape == (3, n_kept)
    for sample in range(3):
        assert kept[sample].tolist() == sorted(z[:, sample].flatten().tolist())[:n_kept]


@given(st.integers(1, 6), st.integers(6, 12), st.floats(0, 5), st.floats(0, 5), st.integers(0, 99))
def test_the_estimate_grows_with_beta(n_nets, n_atoms, one, other, seed):
    z = th.randn(n_nets, 2, n_atoms, generator=th.Generator().manual_seed(seed), dtype=th.double)
    low, high = sorted([one, other])
    q_low, q_high = (truncate(z, dropped_per_net(beta, d_max=5)).mean(1) for beta in (low, high))
    assert (q_low <= q_high + 1e-12).all()


def test_dropping_everything_is_refused():
    with pytest.raises(AssertionError, match="leaves 0"):
        truncate(th.zeros(2, 1, 3), 3)


def test_mix_with_min_by_hand():
    q = th.tensor([[[1.0], [8.0]], [[3.0], [4.0]]])  # two critics, two samples
    assert mix_with_min(q, 0.0).squeeze(2).tolist() == [[1, 4], [1, 4]]
    assert mix_with_min(q, 0.5).squeeze(2).tolist() == [[1, 6], [2, 4]]
    assert mix_with_min(q, 1.0).squeeze(2).tolist() == [[1, 8], [3, 4]]


def test_shift_by_hand():
    assert shift(th.tensor([200.0, -200.0]), 10.0).tolist() == pytest.approx([220, -180])
    assert shift(th.tensor([200.0, -200.0]), -5.0).tolist() == pytest.approx([190, -210])


def test_double_mix_by_hand():
    target, online = th.tensor([[1.0, 5.0, 3.0]]), th.tensor([[0.0, 1.0, 2.0]])
    assert double_mix(target, online, 0.0).tolist() == [[3.0]]  # the online network's choice
    assert double_mix(target, online, 1.0).tolist() == [[5.0]]  # the largest
    assert double_mix(target, online, 0.5).tolist() == [[4.0]]


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
    target, online = th.randn(2, 5, n, generator=th.Generator().manual_seed(seed), dtype=th.double)
    assert (double_mix(target, online, low) <= double_mix(target, online, high) + 1e-12).all()
