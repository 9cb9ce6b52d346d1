import numpy as np
import pytest
from critic import Critic

from acc_rl.core.controller import Calibrating, Constant, Evidence
from acc_rl.core.episodes import Episodes
from acc_rl.core.settings import PAPER
from acc_rl.theory.tabular import (
    ALGORITHMS,
    SETTINGS,
    START,
    Task,
    grid_world,
    mean_and_error,
    optimal_q,
    policy_q,
    walk,
)

GRID = grid_world()


def test_the_grid_by_hand():
    right, down, left, up = range(4)
    assert GRID.following[0].tolist() == [1, 3, 0, 0]
    assert GRID.following[5].tolist() == [5, 8, 4, 2]
    assert GRID.following[8].tolist() == [9] * 4  # the goal leads to the end
    q, g = optimal_q(GRID), 0.95
    assert q[8].tolist() == [5] * 4
    assert q[5, down] == pytest.approx(-1 + g * 5)
    assert q[5, right] == pytest.approx(-1 + g * (-1 + g * 5))  # a wall costs a step
    assert q[START].max() == pytest.approx(-1 - g - g**2 - g**3 + g**4 * 5)
    assert q[START, left] == q[START, up] == pytest.approx(-1 + g * q[START].max())


def test_policy_values_by_hand():
    always_left = np.tile(np.eye(4)[2], (10, 1))
    q = policy_q(GRID, always_left)
    assert q[START, 2] == pytest.approx(-1 / (1 - 0.95))  # -1 for ever
    assert q[8, 0] == pytest.approx(5)
    assert q[5, 1] == pytest.approx(-1 + 0.95 * 5)


def test_the_value_of_the_best_policy_is_the_optimal_value():
    best = optimal_q(GRID)
    greedy = np.eye(4)[best.argmax(axis=1)]
    both = policy_q(GRID, np.stack([greedy, np.full((10, 4), 0.25)]))
    np.testing.assert_allclose(both[0], best, atol=1e-10)
    assert (both[1] <= best + 1e-10).all()
    assert both[1, START].max() < best[START].max() - 5  # walking about costs 1 per step


def test_policy_values_are_mean_returns():
    """a random policy, played"""
    rng = np.random.default_rng(0)
    state, total, discount = np.full(4000, 4), np.zeros(4000), 1.0
    while (state != GRID.end).any() and discount > 1e-6:
        action = rng.integers(4, size=4000)
        noise = rng.choice([-1, 1], 4000) * GRID.noise[state, action]
        total += discount * (GRID.mean[state, action] + noise)
        state, discount = GRID.following[state, action], discount * GRID.gamma
    truth = policy_q(GRID, np.full((10, 4), 0.25))[4].mean()
    assert abs(total.mean() - truth) < 4 * total.std() / np.sqrt(4000)


def read_off_the_pseudocode(algorithm, draws, settings):
    """Algorithm 1 for one seed with plain loops and the library's tracker; the value of the start over time"""
    tables, visits = np.zeros((2, 10, 4)), np.zeros((2, 10, 4))
    seen, state, values = np.zeros(10), START, []
    beta = {"Q-learning": 1.0, "double Q-learning": 0.0}.get(algorithm)
    rule = Calibrating() if beta is None else Constant()
    rule.begin(settings if beta is None else settings.merged({"start": beta}))
    episodes, last = Episodes(1, GRID.gamma), 0
    for step, (chance, choice, sign, coin) in enumerate(draws, start=1):
        one = 0 if algorithm == "Q-learning" else int(coin < 0.5)
        other = 0 if algorithm == "Q-learning" else 1 - one
        both = tables[0] if algorithm == "Q-learning" else (tables[0] + tables[1]) / 2
        seen[state] += 1
        action = int(4 * choice) if chance < 1 / np.sqrt(seen[state]) else int(both[state].argmax())
        reward = GRID.mean[state, action] + (GRID.noise[state, action] if sign >= 0.5 else -GRID.noise[state, action])
        new = GRID.following[state, action]
        best = tables[one, new].argmax()
        target = rule.beta * tables[one, new, best] + (1 - rule.beta) * tables[other, new, best]
        visits[one, state, action] += 1
        error = reward + GRID.gamma * target - tables[one, state, action]
        tables[one, state, action] += error / visits[one, state, action] ** 0.8
        both = tables[0] if algorithm == "Q-learning" else (tables[0] + tables[1]) / 2
        ended = new == GRID.end
        episodes.add(np.array([state]), np.array([action]), np.array([reward]), [ended], [False], {0: np.array(new)})
        if ended and settings.due(step, last):
            where = np.array(
                [(s, a) for e in episodes.episodes for s, a in zip(e.observations, e.actions, strict=True)]
            )
            returns = episodes.pairs(Critic()).returns()
            rule.measured(Evidence((returns - both[where[:, 0], where[:, 1]]).mean(), float("nan"), step))
            last = step
            episodes.trim(settings.pairs_kept)
        state = START if ended else new
        values.append((both[START].max(), rule.beta))
    return np.array(values)


def test_the_walk_is_algorithm_1():
    changes = {"start": 0.5, "range": (0, 1), "lr": 0.1, "update_interval": 20, "start_step": 50, "pairs_kept": 40}
    settings = PAPER.merged(changes)
    steps, seeds = 800, 3
    result = walk(GRID, steps, seeds, np.random.default_rng(5), settings, times=20)
    draws = np.random.default_rng(5).random((steps, 4, seeds))
    assert result.steps.tolist() == list(range(40, 801, 40))
    for k, algorithm in enumerate(ALGORITHMS):
        for seed in range(seeds):
            values, betas = read_off_the_pseudocode(algorithm, draws[:, :, seed], settings)[39::40].T
            np.testing.assert_allclose(result.estimate[k, :, seed], values, atol=1e-10)
            np.testing.assert_allclose(result.beta[k, :, seed], betas, atol=1e-10)
    assert np.ptp(result.beta[2]) > 0.2


def test_random_numbers_are_drawn_in_parts():
    long = walk(GRID, 1200, 2, np.random.default_rng(0), times=3)
    short = walk(GRID, 400, 2, np.random.default_rng(0), times=1)
    np.testing.assert_array_equal(long.estimate[:, 0], short.estimate[:, 0])


def test_the_signs_of_the_biases():
    """Q-learning promises too much, double Q-learning too little, ACC lies between them and is the nearest to Q*."""
    seen = []
    result = walk(GRID, 2000, 60, np.random.default_rng(1), times=5, progress=seen.append)
    assert seen == [400, 800, 1200, 1600, 2000]
    single, double, acc = result.bias("optimal")[:, -1]
    for positive in (single, -double, single - acc, acc - double):  # all algorithms met the same random numbers
        mean, error = mean_and_error(positive)
        assert mean > 4 * error
    assert abs(acc.mean()) < min(single.mean(), -double.mean())
    assert result.achieved.max() <= result.optimum + 1e-9
    # and what the theorem speaks of, the policy that made the returns: Q-learning is far above it
    assert result.bias("followed")[0, -1].mean() > 20


def test_overestimation_comes_from_noise():
    quiet = Task(GRID.following, GRID.mean, np.zeros_like(GRID.noise), GRID.gamma)
    result = walk(quiet, 3000, 4, np.random.default_rng(0), SETTINGS, times=1)
    assert (result.bias("optimal") <= 1e-9).all()
    assert (result.bias("optimal")[0] > -0.01).all()


@pytest.mark.parametrize(
    ("steps", "seeds", "message"),
    [(50, 2, "steps is 50, but must be >= 100"), (1000, 1, "walks is 1, but must be >= 2")],
)
def test_wrong_input(steps, seeds, message):
    with pytest.raises(ValueError, match=message):
        walk(GRID, steps, seeds, np.random.default_rng(0))
