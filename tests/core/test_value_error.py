import numpy as np
import pytest
from critic import Critic

from acc_rl.core.value_error import ValueErrorMeter, errors


def test_errors_by_hand():
    result = errors(np.array([3.0, 1.0]), np.array([2.0, 4.0]), np.array([2.0, 3.0]))
    assert result == {
        "bias": -1.0,
        "bias_soft": -0.5,
        "absolute": 2.0,
        "relative": 2 / 3,
        "normalised": 0.625,
        "mean_q": 2.0,
        "mean_return": 3.0,
    }


def test_returns_of_zero_have_no_normalised_error():
    assert errors(np.array([3.0, 1.0]), np.array([0.0, 4.0]))["normalised"] == 0.75
    assert np.isnan(errors(np.ones(2), np.zeros(2))["normalised"])
    assert np.isnan(errors(np.ones(2), np.zeros(2))["relative"])


def test_one_return_near_zero_rules_the_mean_of_ratios_but_not_the_ratio_of_means():
    q, returns = np.full(100, 110.0), np.append(np.full(99, 100.0), 1e-3)
    assert errors(q, returns)["normalised"] > 1000
    assert errors(q, returns)["relative"] == pytest.approx(0.11, abs=0.002)


def add(meter, values, rewards, ended, truncated=None, critic=None):
    n = len(rewards)
    obs, actions = np.zeros((n, 1)), np.zeros((n, 1))
    transition = (obs, actions, rewards, ended, truncated or [False] * n, dict.fromkeys(range(n), np.zeros(1)))
    return meter.add(transition, values, critic or Critic())


def play(meter, values, rewards, truncated=False, critic=None):
    records = []
    for t, (value, reward) in enumerate(zip(values, rewards, strict=True)):
        ended = t == len(values) - 1
        records += add(meter, [value], [reward], [ended], [truncated and ended], critic)
    return records


def test_a_record_by_hand():
    meter = ValueErrorMeter(1, gamma=0.5, per_record=3)
    (record,) = play(meter, [2.0, 2.0, 2.0], [1, 1, 1], critic=Critic(bonus=lambda s: np.full(len(s), 8.0)))
    assert record["pairs"] == 3
    assert record["bias"] == pytest.approx((0.25 + 0.5 + 1) / 3)  # returns 1.75, 1.5, 1
    assert record["bias_soft"] == pytest.approx((0.25 - 6 + 0.5 - 4 + 1) / 3)  # with a bonus of 8: + 6, + 4, + 0
    assert record["normalised"] == pytest.approx((0.25 / 1.75 + 0.5 / 1.5 + 1) / 3)


def test_the_end_of_a_cut_episode_is_left_out_and_that_of_a_finished_one_is_not():
    meter = ValueErrorMeter(1, gamma=0.5, left_out=2, per_record=1)
    assert [r["mean_return"] for r in play(meter, [0] * 3, [1, 1, 1], truncated=True)] == [1.75]
    assert [r["mean_return"] for r in play(meter, [0] * 3, [1, 1, 1])] == [1.75, 1.5, 1.0]
    assert play(meter, [0], [1], truncated=True) == []


def test_records_fill_across_episodes_and_envs():
    meter = ValueErrorMeter(2, gamma=0.9, per_record=5)
    pairs = []
    for t in range(1, 13):
        ended = [t % 3 == 0, t % 4 == 0]
        pairs += [record["pairs"] for record in add(meter, np.zeros(2), np.ones(2), ended)]
    assert pairs == [5, 10, 15, 20]  # 24 pairs collected
    assert len(meter.state_dict()["waiting"]) == 4


def test_state_goes_on_where_it_was_saved():
    rng = np.random.default_rng(0)
    one, two = (ValueErrorMeter(2, gamma=0.9, per_record=7) for _ in range(2))
    steps = [(rng.normal(size=2), rng.normal(size=2), rng.random(2) < 0.2) for _ in range(60)]
    expected = [record for v, r, e in steps for record in add(one, v, r, e)]
    got = [record for v, r, e in steps[:31] for record in add(two, v, r, e)]
    three = ValueErrorMeter(2, gamma=0.9, per_record=7)
    three.load_state_dict(two.state_dict())
    got += [record for v, r, e in steps[31:] for record in add(three, v, r, e)]
    assert got == expected
    assert len(got) > 5
