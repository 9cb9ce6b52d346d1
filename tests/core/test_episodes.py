import numpy as np
import pytest
from critic import Critic
from hypothesis import given
from hypothesis import strategies as st

from acc_rl.core.episodes import Episodes, clustered, discounted_bonus, discounted_returns


def test_discounted_returns_by_hand():
    assert discounted_returns([1, 1, 1], 0.5).tolist() == [1.75, 1.5, 1.0]
    assert discounted_returns([1, 1], 0.5, final=4.0).tolist() == [2.5, 3.0]
    assert discounted_returns([], 0.5).tolist() == []


@given(st.lists(st.floats(-1e3, 1e3), max_size=30), st.floats(0, 1), st.floats(-1e3, 1e3))
def test_discounted_returns_are_the_sums_of_the_definition(rewards, gamma, final):
    n = len(rewards)
    naive = [sum(gamma ** (i - t) * rewards[i] for i in range(t, n)) + gamma ** (n - t) * final for t in range(n)]
    np.testing.assert_allclose(discounted_returns(rewards, gamma, final), naive, rtol=1e-9, atol=1e-7)


def test_bonuses_by_hand():
    # n = 1: 0.5 * (2 + 0.5 * 3), 0.5 * 3, nothing after the last
    assert discounted_bonus([1, 2, 3], 0.5).tolist() == [1.75, 1.5, 0.0]
    # n = 2: only every second bonus is in the target
    assert discounted_bonus([1, 2, 3], 0.5, n_steps=10**9).tolist() == [0.0, 0.0, 0.0]
    assert discounted_bonus([1, 2, 3, 4, 5], 0.5, n_steps=2).tolist() == [0.25 * (3 + 0.25 * 5), 1.0, 1.25, 0.0, 0.0]
    assert discounted_bonus([1], 0.5, n_steps=3).tolist() == [0.0]


def test_the_standard_error_is_that_of_the_means_of_equally_long_episodes():
    rng = np.random.default_rng(0)
    values, episode = rng.normal(size=60) + np.repeat(rng.normal(size=6), 10), np.repeat(np.arange(6), 10)
    means = values.reshape(6, 10).mean(axis=1)
    mean, error = clustered(values, episode)
    assert mean == pytest.approx(means.mean())
    assert error == pytest.approx(means.std(ddof=1) / np.sqrt(6))
    assert clustered(values, episode, 0.5) == pytest.approx((2 * mean, 2 * error))
    assert np.isnan(clustered(values, np.zeros(60, int))[1])


def play(episodes, rewards, truncated=False, start=0):
    """One episode of one env; observations count from ``start``."""
    for t, reward in enumerate(rewards):
        ended = t == len(rewards) - 1
        obs = np.array([[start + t]], dtype=np.float32)
        final = {0: np.array([start + t + 1], dtype=np.float32)} if ended else {}
        episodes.add(obs, np.array([[0.1 * t]]), np.array([reward]), [ended], [truncated and ended], final)


def first(observations):
    return observations[:, 0]


def test_plain_returns_ignore_how_the_episode_ended():
    episodes = Episodes(1, 0.5)
    play(episodes, [1, 1, 1], truncated=True)
    play(episodes, [2, 0], start=10)
    pairs = episodes.pairs(Critic(first, bonus=first, tail=first))
    assert pairs.returns().tolist() == [1.75, 1.5, 1.0, 2.0, 0.0]
    assert pairs.estimates.tolist() == [0, 1, 2, 10, 11]
    assert pairs.episode.tolist() == [0, 0, 0, 1, 1]
    assert pairs.weight.tolist() == [0.125, 0.25, 0.5, 0, 0]


def test_bootstrap_adds_the_value_of_the_state_at_the_time_limit_only():
    episodes = Episodes(1, 0.5)
    play(episodes, [1, 1], truncated=True)
    play(episodes, [1, 1], truncated=False, start=10)
    pairs = episodes.pairs(Critic(tail=lambda final: 100.0 * final[:, 0]))  # s_T = 2
    assert pairs.returns(bootstrap=True).tolist() == [1.5 + 50, 1 + 100, 1.5, 1.0]


def test_soft_adds_the_bonus_of_every_step_after_the_first():
    episodes = Episodes(1, 0.5)
    play(episodes, [1, 1, 1], truncated=True)
    play(episodes, [1], start=10)
    pairs = episodes.pairs(Critic(bonus=lambda s: 8.0 + s[:, 0], tail=lambda s: 100 + 0 * s[:, 0]))
    # R_0 = 1.75 + 0.5 * 9 + 0.25 * 10, R_1 = 1.5 + 0.5 * 10; nothing comes after the last step
    assert pairs.returns(soft=True).tolist() == [1.75 + 4.5 + 2.5, 1.5 + 5.0, 1.0, 1.0]
    # the value at the time limit contains the bonus there, 8 + 3
    both = pairs.returns(soft=True, bootstrap=True)
    assert both.tolist() == [8.75 + 111 / 8, 6.5 + 111 / 4, 1.0 + 111 / 2, 1.0]


@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_soft_returns_are_the_fixed_point_of_the_n_step_target(n_steps):
    """Q(s_t) = sum gamma^j r + gamma^n (b_{t+n} + Q(s_{t+n})), bootstrapped where the time limit cuts"""
    gamma, rewards, bonus, tail = 0.9, [1.0, 2.0, 3.0, 4.0, 5.0], np.arange(6.0), 50.0
    episodes = Episodes(1, gamma, n_steps)
    play(episodes, rewards, truncated=True)
    pairs = episodes.pairs(Critic(bonus=lambda s: bonus[s[:, 0].astype(int)], tail=lambda s: np.full(len(s), tail)))
    q = np.append(pairs.returns(soft=True, bootstrap=True), tail)
    for t in range(5):
        n = min(n_steps, 5 - t)
        target = sum(gamma**j * rewards[t + j] for j in range(n)) + gamma**n * (bonus[t + n] + q[t + n])
        assert q[t] == pytest.approx(target)


def test_drop_leaves_out_the_end_of_cut_episodes_only():
    episodes = Episodes(1, 0.5)
    play(episodes, [1, 1, 1], truncated=True)
    play(episodes, [5])
    play(episodes, [7], truncated=True)
    assert episodes.pairs(Critic()).without_tail(2).returns().tolist() == [1.75, 5.0]
    assert len(episodes.pairs(Critic()).without_tail(9)) == 1


def test_nothing_to_compare():
    assert Episodes(1, 0.5).pairs(Critic()) is None


def test_rewards_are_scaled_before_they_are_summed():
    episodes = Episodes(1, 0.5)
    play(episodes, [1, 1, 1])
    assert episodes.pairs(Critic(scale=2.0)).returns().tolist() == [3.5, 3.0, 2.0]


def test_estimates_of_the_time_of_collection():
    episodes = Episodes(1, 0.5)
    (episode,) = episodes.add(np.zeros((1, 1)), np.zeros((1, 1)), [1.0], [True], [False], {0: np.zeros(1)}, [7.0])
    assert episode.estimates.tolist() == [7.0]
    assert episodes.pairs(Critic(first), estimate=False).estimates.tolist() == [7.0]
    assert episodes.pairs(Critic(first)).estimates.tolist() == [0.0]


def test_trim_drops_whole_oldest_episodes():
    episodes = Episodes(1, 0.5)
    for length in (3, 2, 2, 1):
        play(episodes, [length] * length)
    episodes.trim(5)
    assert [len(e) for e in episodes.episodes] == [2, 2, 1]
    play(episodes, [0] * 6)  # longer than what is kept
    episodes.trim(5)
    assert episodes.n_pairs == 0


@given(st.integers(1, 4), st.data())
def test_parallel_envs_equal_separate_ones(n_envs, data):
    """Any interleaving of episodes gives each env's returns as if it had run alone."""
    steps = data.draw(st.integers(1, 25))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    rewards, ended = rng.normal(size=(steps, n_envs)), rng.random((steps, n_envs)) < 0.3
    together = Episodes(n_envs, 0.9)
    alone = [Episodes(1, 0.9) for _ in range(n_envs)]
    for t in range(steps):
        obs = np.stack([np.array([t, i]) for i in range(n_envs)])
        final = {i: obs[i] for i in np.flatnonzero(ended[t]).tolist()}
        done = together.add(obs, obs, rewards[t], ended[t], ended[t], final)
        assert len(done) == ended[t].sum()
        for i in range(n_envs):
            here = slice(i, i + 1)
            alone[i].add(obs[here], obs[here], rewards[t, here], ended[t, here], ended[t, here], {0: obs[i]})
    critic = Critic(lambda s: s[:, 0] + 100 * s[:, 1])  # says which pair it is
    expected = [(q, r) for a in alone if (p := a.pairs(critic)) for q, r in zip(p.estimates, p.returns(), strict=True)]
    pairs = together.pairs(critic)
    got = [] if pairs is None else list(zip(pairs.estimates, pairs.returns(), strict=True))
    assert sorted(got) == sorted(expected)


def test_dictionary_observations_and_envs_that_reuse_their_memory():
    episodes = Episodes(2, 0.5)
    obs = {"a": np.zeros((2, 3)), "b": np.zeros((2, 1))}
    for t in range(2):
        obs["a"][:] = t
        obs["b"][:] = [[10 * t], [20 * t]]
        ended = [t == 1, False]
        final = {0: {"a": np.full(3, 9.0), "b": np.full(1, 9.0)}} if t == 1 else {}
        episodes.add(obs, np.zeros((2, 1)), np.ones(2), ended, ended, final)
    obs["a"][:] = -1
    critic = Critic(lambda s: s["a"].sum(axis=1) + s["b"][:, 0], tail=lambda final: final["b"][:, 0])
    pairs = episodes.pairs(critic)
    assert pairs.estimates.tolist() == [0, 13]
    assert pairs.returns(bootstrap=True).tolist() == [1.5 + 2.25, 1 + 4.5]
    other = Episodes(2, 0.5)
    other.load_state_dict(episodes.state_dict())
    assert other.pairs(critic).estimates.tolist() == [0, 13]


def step(episodes, reward, ended=False):
    episodes.add(np.zeros((1, 1)), np.zeros((1, 1)), np.array([reward]), [ended], [False], {0: np.zeros(1)})


def test_open_episodes_survive_saving_and_are_forgotten_at_a_reset():
    one, two = Episodes(1, 0.5), Episodes(1, 0.5)
    play(one, [1, 2])
    step(one, 4.0)
    two.load_state_dict(one.state_dict())
    for episodes in (one, two):
        play(episodes, [8])
        assert [e.rewards.tolist() for e in episodes.episodes] == [[1, 2], [4, 8]]
    step(one, 4.0)
    one.forget_open(1)
    play(one, [3])
    assert one.episodes[-1].rewards.tolist() == [3]


def test_another_number_of_envs_starts_with_fresh_episodes():
    one, two = Episodes(1, 0.5), Episodes(3, 0.5)
    play(one, [1, 2])
    step(one, 4.0)
    two.load_state_dict(one.state_dict())
    finals = dict.fromkeys(range(3), np.zeros(1))
    two.add(np.zeros((3, 1)), np.zeros((3, 1)), np.ones(3), [True] * 3, [False] * 3, finals)
    assert [len(e) for e in two.episodes] == [2, 1, 1, 1]


def test_cut_closes_an_open_episode_as_truncated():
    episodes = Episodes(1, 0.5)
    step(episodes, 4.0)
    episodes.cut(0, np.ones(1))
    episodes.cut(0, np.ones(1))  # nothing is open
    assert [(len(e), e.truncated) for e in episodes.episodes] == [(1, True)]


@pytest.mark.parametrize("kept", [1, 4, 5000])
def test_what_remains_is_at_most_pairs_kept(kept):
    episodes = Episodes(1, 0.5)
    for _ in range(7):
        play(episodes, [1, 1])
    episodes.trim(kept)
    assert episodes.n_pairs == min(14, kept - kept % 2)


def test_open_episodes_count_up_to_now_and_go_on():
    episodes = Episodes(2, 0.5)
    finals = {1: np.array([9.0])}
    for t in range(3):  # env 1 ends at its second step
        obs = np.array([[t], [10.0 + t]])
        episodes.add(obs, obs, [1.0, 2.0], [False, t == 1], [False, False], finals)
    now = np.array([[3.0], [13.0]])
    critic = Critic(first, tail=lambda s: 100 * s[:, 0])
    pairs = episodes.pairs(critic, episodes.recent(3, now))
    assert pairs.estimates.tolist() == [10, 11, 0, 1, 2, 12]
    # env 0 is at 3 and env 1 at 13: the critic says what follows
    expected = [3, 2, 1.75 + 300 / 8, 1.5 + 300 / 4, 1 + 300 / 2, 2 + 1300 / 2]
    assert pairs.returns(bootstrap=True).tolist() == expected
    two = episodes.pairs(critic, episodes.recent(2, now))
    assert two.estimates.tolist() == [11, 1, 2, 12]
    assert [len(e) for e in episodes.recent(2)] == [1]
    other = Episodes(2, 0.5)
    other.load_state_dict(episodes.state_dict())
    assert other.pairs(critic, other.recent(2, now)).estimates.tolist() == [11, 1, 2, 12]
    episodes.add(now, now, [5.0, 2.0], [True, False], [False, False], {0: now[0]})
    assert [e.rewards.tolist() for e in episodes.episodes] == [[2, 2], [1, 1, 1, 5]]


def test_a_bootstrapped_return_ends_before_the_first_action_that_is_not_greedy():
    episodes = Episodes(1, 0.5)
    play(episodes, [1, 2, 4, 8], truncated=True)  # actions 0, 0.1, 0.2, 0.3
    play(episodes, [1, 2, 4], start=10)
    greedy = {0: 9.0, 1: 0.1, 2: 9.0, 3: 0.1 * 3, 10: 0.0, 11: 0.1, 12: 0.2}
    critic = Critic(tail=lambda s: 100 * s[:, 0], greedy=lambda s: [greedy[int(x)] for x in s[:, 0]])
    pairs = episodes.pairs(critic)
    # at s = 2 another action was taken: Q(2) = 200; the first pair's own action may be any
    expected = [1 + 2 / 2 + 200 / 4, 2 + 200 / 2, 4 + 8 / 2 + 400 / 4, 8 + 400 / 2, 3, 4, 4]
    assert pairs.returns(bootstrap=True).tolist() == expected
    assert pairs.returns().tolist() == [4, 6, 8, 8, 3, 4, 4]
    assert pairs.weight.tolist() == [0.25, 0.5, 0.25, 0.5, 0, 0, 0]


@pytest.mark.parametrize("n", [1, 3, 20, 100])
def test_residuals_on_a_ring_give_the_error_of_the_critic_for_every_n(n):
    """Four states in a ring, rewards 1, 2, 3, 4, an episode that never ends: Q = V + c has a gap of -c"""
    gamma, c = 0.9, 5.0
    rewards = np.array([1.0, 2.0, 3.0, 4.0])
    value = np.linalg.solve(np.eye(4) - gamma * np.roll(np.eye(4), 1, axis=1), rewards)
    critic = Critic(lambda s: value[s[:, 0].astype(int)] + c, tail=lambda s: value[s[:, 0].astype(int)] + c)
    episodes = Episodes(1, gamma)
    for t in range(400):
        state = np.array([[t % 4]])
        episodes.add(state, np.zeros((1, 1)), rewards[state[0]], [False], [False], {})
    pairs = episodes.pairs(critic, episodes.recent(200, np.array([[0]]))).within(n, gamma)
    assert len(pairs) == 200
    gap, _ = clustered(pairs.returns(bootstrap=True) - pairs.estimates, pairs.episode, 1 - pairs.weight.mean())
    assert gap == pytest.approx(-c)


def test_soft_residuals_by_hand():
    """gamma = 0.5, n = 2: R_0 = 1 + 0.5 * (1 + b_1) + 0.25 * (b_2 + Q_2), with b = 8 + s and Q = 100 + s"""
    episodes = Episodes(1, 0.5)
    play(episodes, [1, 1, 1, 1])
    critic = Critic(lambda s: 100.0 + s[:, 0], bonus=lambda s: 8.0 + s[:, 0], tail=lambda s: s[:, 0])
    pairs = episodes.pairs(critic).within(2, 0.5)
    assert pairs.returns(soft=True, bootstrap=True).tolist() == [
        1 + 0.5 * (1 + 9) + 0.25 * (10 + 102),
        1 + 0.5 * (1 + 10) + 0.25 * (11 + 103),
        1 + 0.5 * (1 + 11),  # the episode terminates before two steps are over
        1.0,
    ]
    assert pairs.weight.tolist() == [0.25, 0.25, 0, 0]


def test_what_is_kept_of_an_episode_that_never_ends_is_bounded():
    episodes = Episodes(1, 0.5)
    for t in range(1000):
        step(episodes, float(t))
        if t % 100 == 0:
            episodes.keep(50)
    assert len(episodes._open[0]) <= 150
