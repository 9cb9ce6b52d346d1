from pathlib import Path

import numpy as np
import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st

from acc_rl.nn.losses import ascending, count_below, quantile_huber_loss

DATA = Path(__file__).parents[1] / "data"


def pairwise(z, targets):
    """The definition, with the tensor of all pairs."""
    n_atoms = z.shape[2]
    tau = (2 * th.arange(1, n_atoms + 1, dtype=z.dtype) - 1) / (2 * n_atoms)
    u = targets[None, :, None, :] - z[..., None]
    huber = th.where(u.abs() > 1, u.abs() - 0.5, 0.5 * u**2)
    return ((tau[None, None, :, None] - (u < 0).to(z.dtype)).abs() * huber).mean()


def test_by_hand():
    """One atom at 0 (tau = 1/2), targets -2 and 0.5: (1/2 * 1.5 + 1/2 * 0.125) / 2; gradient (1/2 - 1/2 * 0.5) / 2."""
    z = th.zeros(1, 1, 1, requires_grad=True)
    loss = quantile_huber_loss(z, th.tensor([[-2.0, 0.5]]))
    loss.backward()
    assert loss.item() == pytest.approx(0.40625)
    assert z.grad.item() == pytest.approx(0.125)


@pytest.mark.parametrize("name", ["golden_tqc_1q", "golden_tqc_2q"])
@pytest.mark.parametrize("scale", [0, 1, 2])
def test_official_loss_and_gradient(name, scale):
    golden = np.load(DATA / f"{name}.npz")
    z = th.tensor(golden[f"loss{scale}/atoms"]).transpose(0, 1).contiguous().requires_grad_()
    loss = quantile_huber_loss(z, th.tensor(golden[f"loss{scale}/targets"]))
    loss.backward()
    assert loss.item() == pytest.approx(golden[f"loss{scale}/value"].item(), rel=1e-5)
    expected = golden[f"loss{scale}/grad"]
    np.testing.assert_allclose(z.grad.transpose(0, 1), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@st.composite
def atoms_and_targets(draw):
    n_nets, batch, n_atoms, n_targets = (draw(st.integers(1, high)) for high in (4, 3, 6, 12))
    scale = draw(st.sampled_from([0.1, 1.0, 30.0, 1e4]))
    # a coarse grid makes ties, and differences of exactly -1, 0 and 1, common
    grid = draw(st.sampled_from([0.0, 0.5, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    centre = draw(st.sampled_from([0.0, -1e4, 1e4]))

    def values(*shape):
        x = rng.uniform(-scale, scale, shape)
        return th.tensor(np.round(x / grid) * grid if grid else x) + centre

    z, targets = values(n_nets, batch, n_atoms), values(batch, n_targets)
    if draw(st.booleans()):
        targets[...] = targets[0, 0]
    if draw(st.booleans()):
        z[...] = targets[0, 0]
    return z.float(), targets.float().sort(dim=1).values


@settings(max_examples=300)
@given(atoms_and_targets())
def test_equals_the_pairwise_definition(case):
    z, targets = case
    exact, fast = z.double().requires_grad_(), z.clone().requires_grad_()
    expected, loss = pairwise(exact, targets.double()), quantile_huber_loss(fast, targets)
    expected.backward()
    (3.0 * loss).backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-9)
    largest = exact.grad.abs().max().item()
    np.testing.assert_allclose(fast.grad, 3 * exact.grad, rtol=0, atol=1e-5 * largest + 1e-12)


def test_unsorted_targets_would_be_noticed():
    """The loss trusts its caller to sort; this shows that a forgotten sort changes the numbers."""
    z, targets = th.randn(2, 8, 5), th.randn(8, 9)
    expected = pairwise(z, targets)
    assert quantile_huber_loss(z, targets.sort(1).values).item() == pytest.approx(expected.item(), rel=1e-5)
    assert quantile_huber_loss(z, targets).item() != pytest.approx(expected.item(), rel=1e-2)


@given(st.integers(1, 20), st.integers(1, 9), st.integers(0, 999))
def test_counts_are_those_of_searchsorted(n, queries, seed):
    generator = th.Generator().manual_seed(seed)
    y = ascending(th.randint(-4, 5, (3, n), generator=generator).double())  # with ties
    c = th.randint(-6, 7, (3, queries), generator=generator).double() / 2
    assert th.equal(count_below(y, c), th.searchsorted(y, c))


def test_sorting_leaves_its_argument_and_puts_nan_last():
    x = th.tensor([[2.0, th.nan, -1.0], [0.0, 3.0, 1.0]])
    th.testing.assert_close(ascending(x), th.tensor([[-1.0, 2.0, th.nan], [0.0, 1.0, 3.0]]), equal_nan=True)
    assert x[0, 0] == 2
    x = th.tensor([[2.0, 1.0]], requires_grad=True)
    ascending(x)[0, 1].backward()
    assert x.grad.tolist() == [[1.0, 0.0]]
