import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from acc_rl.report import statistics

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from rliable import library, metrics


def rectangle(scores):
    """rliable's (runs, tasks) as ours: (runs * tasks, 1) and the task of each"""
    runs, tasks = scores.shape
    return scores.T.reshape(-1, 1), np.repeat(np.arange(tasks), runs)


PEERS = {"iqm": metrics.aggregate_iqm, "mean": metrics.aggregate_mean, "median": metrics.aggregate_median}


def test_iqm_on_paper():
    # eight values: two are cut off at either end, the mean of 3, 4, 5, 6 is left
    values = np.array([[8.0], [1], [7], [2], [6], [3], [5], [4]])
    assert statistics.iqm(values, np.ones((1, 8), int))[0, 0] == 4.5
    # the 8 drawn eight times
    assert statistics.iqm(values, np.array([[8, 0, 0, 0, 0, 0, 0, 0]]))[0, 0] == 8
    # four times 8 and four times 1: half of the middle is either
    assert statistics.iqm(values, np.array([[4, 4, 0, 0, 0, 0, 0, 0]]))[0, 0] == 4.5


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 5), st.sampled_from(sorted(PEERS)))
def test_point_estimates_equal_rliable(seed, runs, tasks, name):
    scores = np.random.default_rng(seed).normal(size=(runs, tasks)).round(1)
    values, strata = rectangle(scores)
    ours = statistics.aggregate(values, strata, name, np.random.default_rng(0), replicates=2)
    np.testing.assert_allclose(ours.value, [PEERS[name](scores)], rtol=1e-12, atol=1e-12)
    assert ours.runs == [runs * tasks]


@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 4), st.sampled_from(sorted(PEERS)))
def test_every_replicate_equals_rliable_on_the_runs_drawn(seed, runs, tasks, name):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(runs, tasks))
    values, strata = rectangle(scores)
    counts = statistics.draw([runs] * tasks, 3, rng)
    assert (counts.reshape(3, tasks, runs).sum(axis=2) == runs).all()
    group = statistics._slices(strata)
    ours = statistics.STATISTICS[name](values, counts, group)[:, 0]
    drawn = [
        np.stack([np.repeat(scores[:, t], c) for t, c in enumerate(row.reshape(tasks, runs).astype(int))], 1)
        for row in counts
    ]
    np.testing.assert_allclose(ours, [PEERS[name](each) for each in drawn], rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:random_state is deprecated")  # by arch, which rliable calls
@pytest.mark.parametrize("name", PEERS)
def test_intervals_agree_with_rliable(name):
    scores = np.random.default_rng(1).gamma(2.0, size=(10, 6))
    values, strata = rectangle(scores)
    ours = statistics.aggregate(values, strata, name, np.random.default_rng(2), replicates=20_000)
    _, theirs = library.get_interval_estimates(
        {"a": scores}, lambda x: np.array([PEERS[name](x)]), reps=5000, random_state=np.random.RandomState(3)
    )
    low, high = theirs["a"][:, 0]
    # the quantiles of 5000 replicates are themselves uncertain by about 2 % of the interval
    np.testing.assert_allclose([ours.low[0], ours.high[0]], [low, high], atol=0.06 * (high - low))


def test_profiles_equal_rliable():
    scores, levels = np.random.default_rng(0).random((7, 4)), np.linspace(0, 1, 9)
    values, strata = rectangle(scores)
    ours = statistics.profile(values[:, 0], strata, levels, np.random.default_rng(0), 10)
    np.testing.assert_allclose(ours.value, [library.run_score_deviation(scores, level) for level in levels], rtol=1e-12)


def test_probability_of_improvement_equals_rliable_and_scipy():
    rng = np.random.default_rng(0)
    x, y = rng.random((6, 3)).round(1), rng.random((8, 3)).round(1)
    p, low, high = statistics.improvement(dict(enumerate(x.T)), dict(enumerate(y.T)), rng)
    assert p == pytest.approx(metrics.probability_of_improvement(x, y), rel=1e-12)
    by_scipy = [stats.mannwhitneyu(x[:, t], y[:, t]).statistic / 48 for t in range(3)]
    assert p == pytest.approx(np.mean(by_scipy), rel=1e-12)
    assert low < p < high


def test_improvement_counts_shared_tasks_only():
    rng = np.random.default_rng(0)
    assert statistics.improvement({0: np.ones(3), 1: np.ones(2)}, {0: np.zeros(3)}, rng) == (1, 1, 1)
    assert np.isnan(statistics.improvement({0: np.ones(3)}, {1: np.ones(3)}, rng)).all()


def test_a_run_counts_where_it_has_values():
    nan = np.nan
    scores = np.array([[1.0, 1, nan, nan], [3, nan, 3, nan], [5, 5, 5, nan]])
    result = statistics.aggregate(scores, np.array([0, 0, 0]), "mean", np.random.default_rng(0), 50)
    np.testing.assert_array_equal(result.value, [3, 3, 4, nan])
    np.testing.assert_array_equal(result.runs, [3, 2, 2, 0])
    assert np.isnan([result.low[3], result.high[3]]).all()


def test_a_point_needs_every_task():
    nan = np.nan
    scores, tasks = np.array([[1.0, 1, nan], [3, nan, 3], [5, 5, nan]]), np.array([0, 0, 1])
    result = statistics.aggregate(scores, tasks, "mean", np.random.default_rng(0), 50)
    np.testing.assert_array_equal(result.value, [3.5, 3, nan])  # at the last point the second task has no run


def test_tasks_with_unequal_numbers_of_runs():
    scores, tasks = np.array([[0.0], [2], [4], [10]]), np.array([1, 1, 1, 0])
    rng = np.random.default_rng(0)
    assert statistics.aggregate(scores, tasks, "mean", rng, 5).value == [6.0]  # the mean of 2 and 10
    assert statistics.aggregate(scores, tasks, "iqm", rng, 5).value == [3.0]  # one run of four is cut off at either end


def test_seeded():
    scores, tasks = np.random.default_rng(0).random((12, 5)), np.repeat([0, 1], 6)
    first, again = (statistics.aggregate(scores, tasks, "iqm", np.random.default_rng(7), 100) for _ in range(2))
    other = statistics.aggregate(scores, tasks, "iqm", np.random.default_rng(8), 100)
    np.testing.assert_array_equal(first.low, again.low)
    assert (first.low != other.low).any()


COVERED = {2: (0.50, 0.71), 3: (0.75, 0.83), 5: (0.84, 0.89), 10: (0.90, 0.93), 20: (0.92, 0.93)}
"""runs per task -> how often the interval of the mean holds the truth, with one task and with three"""


@pytest.mark.parametrize(
    ("runs", "tasks", "share"), [(n, t, s) for n in COVERED for t, s in zip((1, 3), COVERED[n], strict=True)]
)
def test_how_often_the_interval_covers_the_truth(runs, tasks, share):
    """The table in docs/report.md: 95 % intervals of the mean of normal runs, 4000 studies each"""
    rng = np.random.default_rng(0)
    scores, strata = rng.normal(size=(runs * tasks, 4000)), np.repeat(np.arange(tasks), runs)
    result = statistics.aggregate(scores, strata, "mean", rng, 1000)
    covered = ((result.low <= 0) & (result.high >= 0)).mean()
    assert covered == pytest.approx(share, abs=0.015)


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_the_iqm_of_fewer_than_four_runs_is_their_mean(seed, runs):
    scores = np.random.default_rng(seed).normal(size=(runs, 1))
    assert statistics.iqm(scores, np.ones((1, runs)))[0, 0] == pytest.approx(scores.mean(), rel=1e-9, abs=1e-12)
