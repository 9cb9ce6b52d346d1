"""The two rules of ACC in a closed loop whose answer is known: which beta makes the bias zero, and how fast."""

import numpy as np
import pytest
from scipy import stats

from acc_rl.core.controller import Calibrating, Evidence, student
from acc_rl.core.settings import PAPER

EPISODES = 6
"""an episode stays for so many updates, as with pairs_kept=5000 and episodes of 1000 steps"""


def closed_loop(rule, n=100, truth=None, lever=4.0, lag=10.0, noise=1.0, seed=0):
    """d over n updates. Q - R is lever * (beta - truth), which the critic follows with a lag of so many updates; 0
    whatever beta is where truth is None. Returns of episodes are noisy."""
    rng, controller, seen, path = np.random.default_rng(seed), Calibrating(), [], []
    controller.begin(PAPER.merged({"start": 2.5, "range": (0, 5), "lr": 0.1, "rule": rule}))
    bias = 0.0 if truth is None else lever * (2.5 - truth)
    for step in range(n):
        seen = [*seen, rng.normal(0, noise)][-EPISODES:]
        error = np.std(seen, ddof=1) / len(seen) ** 0.5 if len(seen) > 1 else np.nan
        controller.measured(Evidence(np.mean(seen) - bias, error, step, clusters=len(seen), lever=lever))
        if truth is not None:
            bias += (lever * (controller.beta - truth) - bias) / lag
        path.append(controller.beta)
    return np.array(path)


def ends(rule, **how):
    return np.array([closed_loop(rule, seed=seed, **how)[-1] for seed in range(200)])


@pytest.mark.parametrize("lever", [0.01, 0.3, 1.0, 30.0])
def test_pure_noise_does_not_move_the_confident_rule_far(lever):
    assert ends("paper", lever=lever).std() > 1.4
    assert ends("confident", lever=lever).std() < 0.5


@pytest.mark.parametrize("lag", [1.0, 5.0, 20.0])
@pytest.mark.parametrize("truth", [0.5, 4.0])
def test_a_real_gap_is_closed_no_slower_and_more_quietly(lag, truth):
    times, spreads = {}, {}
    for rule in ("paper", "confident"):
        paths = np.array([closed_loop(rule, 150, truth, lag=lag, seed=seed) for seed in range(40)])
        off = np.abs(paths - truth)
        assert (off < 0.3).any(axis=1).all()
        times[rule], spreads[rule] = np.median(np.argmax(off < 0.3, axis=1)), off[:, 75:].mean()
    assert times["confident"] <= times["paper"]
    assert spreads["confident"] < spreads["paper"]


@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize("rule", ["paper", "confident"])
def test_the_unit_of_rewards_does_not_matter(rule, factor):
    path = closed_loop(rule, truth=4.0)
    scaled = closed_loop(rule, truth=4.0, lever=4.0 * factor, noise=factor)
    assert scaled == pytest.approx(path, abs=1e-6)


def measured(gap, error=0.0, clusters=30, lever=10.0):
    controller = Calibrating()
    controller.begin(PAPER.merged({"start": 2.5, "range": (0, 5), "lr": 0.1, "rule": "confident"}))
    controller.measured(Evidence(gap, error, 0, clusters=clusters, lever=lever))
    return controller.beta


def test_confident_steps_by_hand():
    assert measured(5.0) == pytest.approx(2.5 + 0.2 * 5 / 10)  # a fifth of what would close the gap
    assert measured(-5.0) == pytest.approx(2.4)
    assert measured(500.0) == pytest.approx(2.7)  # at most two steps of lr = 0.1
    # five episodes: t = 2.776, so that noise is half the gap, and three quarters of the step are left
    assert measured(5.552, error=1.0, clusters=5) == pytest.approx(2.5 + 0.75 * 0.2 * 5.552 / 10)
    assert measured(5.0, error=3.0) == 2.5  # not significant


def test_the_confident_rule_waits_until_it_knows_something():
    assert measured(5.0, error=float("nan"), clusters=1) == 2.5
    assert measured(5.0, lever=0.0) == 2.5
    assert measured(5.0, lever=float("nan")) == 2.5


def test_quantiles_are_those_of_students_distribution():
    for freedom in (1, 2, 5, 10, 11, 20, 100, 1000):
        assert student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=0.015)
    assert student(0) == np.inf
