import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acc_rl.core.bias import BiasSettings
from acc_rl.core.episodes import ReturnTracker, discounted_returns


def test_discounted_returns_by_hand():
    assert discounted_returns([1, 1, 1], 0.5).tolist() == [1.75, 1.5, 1.0]
    assert discounted_returns([1, 1], 0.5, final=4.0).tolist() == [2.5, 3.0]
    assert discounted_returns([], 0.5).tolist() == []


@given(st.lists(st.floats(-1e3, 1e3), max_size=30), st.floats(0, 1), st.floats(-1e3, 1e3))
def test_discounted_returns_are_the_sums_of_the_definition(rewards, gamma, final):
    n = len(rewards)
    naive = [sum(gamma ** (i - t) * rewards[i] for i in range(t, n)) + gamma ** (n - t) * final for t in range(n)]
    np.testing.assert_allclose(discounted_returns(rewards, gamma, final), naive, rtol=1e-9, atol=1e-7)


def not_needed(observations):
    raise AssertionError("called without need")


def play(tracker, env, rewards, truncated=False, start=0):
    """One episode in env ``env`` of one; observations count from ``start``."""
    for t, reward in enumerate(rewards):
        ended = t == len(rewards) - 1
        obs = np.array([[start + t]], dtype=np.float32)
        final = {0: np.array([start + t + 1], dtype=np.float32)} if ended else {}
        tracker.add(obs, np.array([[0.1 * t]]), np.array([reward]), [ended], [truncated and ended], final)


def tracker_with(**settings):
    return ReturnTracker(1, 0.5, BiasSettings(**settings))


def test_plain_returns_ignore_how_the_episode_ended():
    tracker = tracker_with()
    play(tracker, 0, [1, 1, 1], truncated=True)
    play(tracker, 0, [2, 0], start=10)
    pairs = tracker.pairs(not_needed, not_needed)
    assert pairs.returns.tolist() == [1.75, 1.5, 1.0, 2.0, 0.0]
    assert pairs.observations[:, 0].tolist() == [0, 1, 2, 10, 11]
    np.testing.assert_allclose(pairs.actions[:, 0], [0, 0.1, 0.2, 0, 0.1])


def test_bootstrap_adds_the_value_of_the_state_at_the_time_limit_only():
    tracker = tracker_with(tail="bootstrap")
    play(tracker, 0, [1, 1], truncated=True)
    play(tracker, 0, [1, 1], truncated=False, start=10)
    pairs = tracker.pairs(not_needed, lambda final: 100.0 * final[:, 0])  # s_T = 2
    assert pairs.returns.tolist() == [1.5 + 50, 1 + 100, 1.5, 1.0]


def test_soft_adds_the_bonus_of_every_step_after_the_first():
    tracker = tracker_with(returns="soft")
    play(tracker, 0, [1, 1, 1])
    play(tracker, 0, [1], start=10)
    pairs = tracker.pairs(lambda obs: 8.0 + obs[:, 0], not_needed)
    # R_0 = 1.75 + 0.5 * 9 + 0.25 * 10, R_1 = 1.5 + 0.5 * 10; nothing comes after the last step
    assert pairs.returns.tolist() == [1.75 + 4.5 + 2.5, 1.5 + 5.0, 1.0, 1.0]


def test_drop_leaves_out_the_end_of_cut_episodes_only():
    tracker = tracker_with(tail=("drop", 2))
    play(tracker, 0, [1, 1, 1], truncated=True)
    play(tracker, 0, [5])
    play(tracker, 0, [7], truncated=True)
    assert tracker.pairs(not_needed, not_needed).returns.tolist() == [1.75, 5.0]


def test_nothing_to_compare():
    tracker = tracker_with(tail=("drop", 9))
    assert tracker.pairs(not_needed, not_needed) is None
    play(tracker, 0, [1, 1], truncated=True)
    assert tracker.pairs(not_needed, not_needed) is None


def test_rewards_are_scaled_before_they_are_summed():
    tracker = tracker_with()
    play(tracker, 0, [1, 1, 1])
    assert tracker.pairs(not_needed, not_needed, lambda r: 2 * r).returns.tolist() == [3.5, 3.0, 2.0]


def test_trim_drops_whole_oldest_episodes():
    tracker = tracker_with(pairs_kept=5)
    for length in (3, 2, 2, 1):
        play(tracker, 0, [length] * length)
    tracker.trim()
    assert [len(e) for e in tracker.episodes] == [2, 2, 1]
    play(tracker, 0, [0] * 6)  # longer than what is kept
    tracker.trim()
    assert tracker.n_pairs == 0


@given(st.integers(1, 4), st.data())
def test_parallel_envs_equal_separate_ones(n_envs, data):
    """Any interleaving of episodes gives each env's returns as if it had run alone."""
    steps = data.draw(st.integers(1, 25))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    rewards, ended = rng.normal(size=(steps, n_envs)), rng.random((steps, n_envs)) < 0.3
    together = ReturnTracker(n_envs, 0.9)
    alone = [ReturnTracker(1, 0.9) for _ in range(n_envs)]
    for t in range(steps):
        obs = np.stack([np.array([t, i]) for i in range(n_envs)])
        final = {i: obs[i] for i in np.flatnonzero(ended[t]).tolist()}
        result = together.add(obs, obs, rewards[t], ended[t], ended[t], final)
        assert result == ended[t].any()
        for i in range(n_envs):
            here = slice(i, i + 1)
            alone[i].add(obs[here], obs[here], rewards[t, here], ended[t, here], ended[t, here], {0: obs[i]})
    expected = sorted(
        (*o, r) for a in alone if (p := a.pairs(None, None)) for o, r in zip(p.observations, p.returns, strict=True)
    )
    pairs = together.pairs(None, None)
    got = [] if pairs is None else sorted((*o, r) for o, r in zip(pairs.observations, pairs.returns, strict=True))
    assert got == expected


def test_dictionary_observations_and_envs_that_reuse_their_memory():
    tracker = ReturnTracker(2, 0.5, BiasSettings(tail="bootstrap"))
    obs = {"a": np.zeros((2, 3)), "b": np.zeros((2, 1))}
    for t in range(2):
        obs["a"][:] = t
        obs["b"][:] = [[10 * t], [20 * t]]
        ended = [t == 1, False]
        final = {0: {"a": np.full(3, 9.0), "b": np.full(1, 9.0)}} if t == 1 else {}
        tracker.add(obs, np.zeros((2, 1)), np.ones(2), ended, ended, final)
    obs["a"][:] = -1
    pairs = tracker.pairs(not_needed, lambda final: final["b"][:, 0])
    assert pairs.observations["a"].tolist() == [[0, 0, 0], [1, 1, 1]]
    assert pairs.observations["b"].tolist() == [[0], [10]]
    assert pairs.returns.tolist() == [1.5 + 2.25, 1 + 4.5]


def test_open_episodes_survive_saving_and_are_forgotten_at_a_reset():
    one, two = tracker_with(), tracker_with()
    play(one, 0, [1, 2])
    one.add(np.zeros((1, 1)), np.zeros((1, 1)), np.array([4.0]), [False], [False], {})
    two.load_state_dict(one.state_dict())
    for tracker in (one, two):
        play(tracker, 0, [8])
        assert [e.rewards.tolist() for e in tracker.episodes] == [[1, 2], [4, 8]]
    one.add(np.zeros((1, 1)), np.zeros((1, 1)), np.array([4.0]), [False], [False], {})
    one.forget_open(1)
    play(one, 0, [3])
    assert one.episodes[-1].rewards.tolist() == [3]


def test_another_number_of_envs_starts_with_fresh_episodes():
    one, two = tracker_with(), ReturnTracker(3, 0.5)
    play(one, 0, [1, 2])
    one.add(np.zeros((1, 1)), np.zeros((1, 1)), np.array([4.0]), [False], [False], {})
    two.load_state_dict(one.state_dict())
    two.add(
        np.zeros((3, 1)), np.zeros((3, 1)), np.ones(3), [True] * 3, [False] * 3, dict.fromkeys(range(3), np.zeros(1))
    )
    assert [len(e) for e in two.episodes] == [2, 1, 1, 1]


@pytest.mark.parametrize("kept", [1, 4, 5000])
def test_what_remains_is_at_most_pairs_kept(kept):
    tracker = tracker_with(pairs_kept=kept)
    for _ in range(7):
        play(tracker, 0, [1, 1])
    tracker.trim()
    assert tracker.n_pairs <= kept
    assert tracker.n_pairs == min(14, kept - kept % 2)
