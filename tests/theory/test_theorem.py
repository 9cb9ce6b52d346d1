import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acc_rl.theory.theorem import (
    CASES,
    COIN,
    DISTANCE,
    HOLDS,
    INSIDE,
    OUTSIDE,
    RARE_GAIN,
    RARE_LOSS,
    SYMMETRY,
    Case,
    Exponential,
    Normal,
    TwoPoint,
    Uniform,
    biases,
    calibrated,
)

ALL = [Normal(), Uniform(), Exponential(), COIN, RARE_GAIN, RARE_LOSS]


def of(group):
    return [case for case in CASES if case.group == group]


@pytest.mark.parametrize(
    ("returns", "n", "x", "excess"),
    [
        (Normal(), 1, 0.0, 1 / math.sqrt(2 * math.pi)),  # E[max(Z, 0)]
        (Normal(), 4, 0.0, 0.5 / math.sqrt(2 * math.pi)),
        (Uniform(), 1, 0.0, math.sqrt(3) / 4),  # half the time, then sqrt(3) / 2 on average
        (Uniform(), 2, 0.0, math.sqrt(3) / 6),  # a triangle of height 1 / sqrt(3) on [0, sqrt(3)]
        (Uniform(), 3, -2.0, 2.0),
        (Uniform(), 3, 2.0, 0.0),
        (Exponential(), 1, 0.5, math.exp(-1.5)),  # without memory: what is above the wall is exponential again
        (Exponential(), 1, -2.0, 2.0),
        (Exponential(), 2, 0.0, 2 * math.exp(-2)),  # E[max(G - 2, 0)] = 4 e^-2 for the sum of two, halved
        (COIN, 1, 0.5, 0.25),
        (COIN, 2, 0.0, 0.25),  # +1 with probability 1/4
        (RARE_GAIN, 1, 0.5, 0.25),  # 3 with probability 0.1
        (RARE_LOSS, 1, -4.0, 4.0),
    ],
)
def test_excess_by_hand(returns, n, x, excess):
    assert returns.excess(n, x) == pytest.approx(excess, abs=1e-14)


def test_bias_by_hand():
    # -1/3 stays, 3 becomes 1/2: 0.9 * (-1/3) + 0.1 * 0.5
    assert Case("", RARE_GAIN, -0.5, 0.5).bias(1) == pytest.approx(-0.25, abs=1e-14)
    # -1 becomes -1/4, 1 becomes 3/4
    assert Case("", COIN, -0.25, 0.75).bias(1) == pytest.approx(0.25, abs=1e-14)
    # what the lower wall adds, 0.5 - (1 - e^-0.5), less what the upper one cuts off, e^-1.5
    assert Case("", Exponential(), -0.5, 0.5).bias(1) == pytest.approx(math.exp(-0.5) - 0.5 - math.exp(-1.5), abs=1e-14)


@pytest.mark.parametrize("returns", ALL, ids=lambda r: r.name)
@pytest.mark.parametrize("n", [1, 2, 3, 30])
def test_excess_is_that_of_the_drawn_returns(returns, n):
    """mean 0, standard deviation 1, and the closed form: all against draws"""
    drawn = returns.draw(np.random.default_rng(n), (40_000, n))
    assert abs(drawn.mean()) < 4 / math.sqrt(drawn.size)
    assert np.square(drawn).mean() == pytest.approx(1, abs=4 * np.square(drawn).std() / math.sqrt(drawn.size) + 1e-12)
    for x in (-0.6, 0.1, 0.4):
        over = np.maximum(drawn.mean(axis=1) - x, 0)
        assert abs(over.mean() - returns.excess(n, x)) < 4 * over.std() / math.sqrt(len(over)) + 1e-12


def test_uniform_stays_exact_for_many_returns():
    """In floating point the Irwin-Hall sum has lost all digits here; the normal law is near, but not the same."""
    assert Uniform().excess(200, 0.05) == pytest.approx(Normal().excess(200, 0.05), rel=1e-3)
    assert Uniform().excess(200, 0.05) != pytest.approx(Normal().excess(200, 0.05), rel=1e-6)


@given(
    st.sampled_from([Normal(), Uniform(), COIN]),
    st.integers(1, 60),
    st.floats(0, 4),
)
@settings(max_examples=60, deadline=None)
def test_symmetric_returns_and_equal_distances_leave_no_bias(returns, n, distance):
    assert abs(Case("", returns, -distance, distance).bias(n)) < 1e-12


@given(st.floats(0.02, 0.98), st.integers(1, 60), st.floats(0, 2), st.floats(0, 2))
@settings(max_examples=60, deadline=None)
def test_walls_beyond_all_returns_leave_no_bias(p, n, below, above):
    returns = TwoPoint(p, "")
    low, high = returns.points
    assert abs(Case("", returns, low - below, high + above).bias(n)) < 1e-12


@given(st.sampled_from(ALL), st.integers(1, 60), st.floats(-2, 2), st.floats(0, 2))
@settings(max_examples=60, deadline=None)
def test_the_estimate_stays_between_the_walls(returns, n, low, width):
    assert low - 1e-12 <= Case("", returns, low, low + width).bias(n) <= low + width + 1e-12


@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_each_case_shows_what_its_group_says(n):
    for case in of(HOLDS) + of(INSIDE):
        assert abs(case.bias(n)) < 1e-12
    near_below, near_above = of(DISTANCE)
    assert near_below.bias(n) > 0.01  # the nearer wall pushes away
    assert near_above.bias(n) < -0.01
    exponential, rare_gain, rare_loss = of(SYMMETRY)
    assert exponential.bias(n) < -0.01  # the long tail is cut off
    assert rare_gain.bias(n) < -0.01
    assert rare_loss.bias(n) == pytest.approx(-rare_gain.bias(n), abs=1e-12)


def test_more_returns_help_unless_q_lies_outside():
    for case in of(DISTANCE) + of(SYMMETRY):
        assert abs(case.bias(400)) < 1e-6
    (outside,) = of(OUTSIDE)
    assert outside.bias(400) == pytest.approx(outside.low)


def test_simulation_agrees_with_the_exact_value():
    rows = list(biases((1, 3, 10, 40), 20_000, np.random.default_rng(0)))
    assert len(rows) == 4 * len(CASES)
    for row in rows:
        assert abs(row.simulated - row.exact) < 4 * row.error
    again = list(biases((1, 3, 10, 40), 20_000, np.random.default_rng(0)))
    assert rows == again
    assert rows != list(biases((1, 3, 10, 40), 20_000, np.random.default_rng(1)))


def test_simulation_in_parts_uses_every_draw():
    """More numbers than are drawn at once: the parts are those of one long stream."""
    case = Case("", Exponential(), -0.5, 0.5)
    drawn = np.random.default_rng(3).standard_exponential((3000, 700)) - 1
    mean, error = case.simulate(700, 3000, np.random.default_rng(3))
    estimates = np.clip(drawn.mean(axis=1), -0.5, 0.5)
    assert mean == pytest.approx(estimates.mean(), abs=1e-15)
    assert error == pytest.approx(estimates.std(ddof=1) / math.sqrt(3000))


def test_the_clip_is_what_the_best_beta_gives():
    """argmin over a fine grid of beta, for a family that is continuous and increasing but not linear"""
    returns = np.random.default_rng(0).normal(size=(200, 3))
    family = -0.5 + 1.2 * np.linspace(0, 1, 20_001) ** 3  # from -0.5 to 0.7
    best = family[np.abs(family - returns.mean(axis=1, keepdims=True)).argmin(axis=1)]
    np.testing.assert_allclose(calibrated(returns, -0.5, 0.7), best, atol=1e-4)


@pytest.mark.parametrize(
    ("returns", "repeats", "message"),
    [
        ((1, 0), 10, "returns is 0, but must be whole numbers from 1 to 1000"),
        ((2000,), 10, "returns is 2000"),
        ((), 10, "returns is empty"),
        ((1,), 1, "repeats is 1, but must be >= 2"),
    ],
)
def test_wrong_input(returns, repeats, message):
    with pytest.raises(ValueError, match=message):
        biases(returns, repeats, np.random.default_rng(0))
