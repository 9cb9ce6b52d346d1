"""The gap of critics that are known to be right, too high or too low."""

import numpy as np
import pytest
import sb3_contrib
import torch as th
from small import ADAPTIVE, BIAS, OWN, SOFT, ShortPendulum, make
from toy import ALPHA, GAMMA, LIMIT, Q, agent_that_says, gap

from acc_rl import AnyQ

# the missing tail of the return at step t is gamma^(LIMIT - t) * Q
MISSING = np.array([GAMMA ** (LIMIT - t) * Q for t in range(LIMIT)])


@pytest.mark.parametrize("name", OWN)
def test_plain_returns_lie_ten_percent_below_a_perfect_critic(name):
    measured = gap(agent_that_says(name, Q)) / Q
    assert measured == pytest.approx(-MISSING.mean() / Q, rel=1e-4)
    assert measured == pytest.approx(-0.10, abs=0.002)


@pytest.mark.parametrize("name", [name for name in OWN if name not in SOFT])
def test_bootstrapping_closes_the_gap_of_a_perfect_critic(name):
    assert gap(agent_that_says(name, Q, tail="bootstrap")) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("name", OWN)
def test_dropping_the_tail_narrows_the_gap_as_predicted(name):
    measured = gap(agent_that_says(name, Q, tail=("drop", 100)))
    assert measured == pytest.approx(-MISSING[: LIMIT - 100].mean(), rel=1e-4)
    assert measured > 0.5 * -MISSING.mean()


def soft_part(name):
    """gamma / (1 - gamma) * alpha * H, the entropy of all steps after the first, of the policy of seed 0"""
    model = agent_that_says(name, Q)
    th.manual_seed(1)
    with th.no_grad():
        log_prob = model.actor.action_log_prob(th.zeros(200_000, 1))[1]
    return GAMMA / (1 - GAMMA) * ALPHA * -log_prob.double().mean().item()


@pytest.mark.parametrize("name", SOFT)
def test_soft_returns_close_the_gap_of_a_perfect_soft_critic(name):
    soft = soft_part(name)
    assert abs(soft) > 1
    perfect = Q + soft
    both = gap(agent_that_says(name, perfect, returns="soft", tail="bootstrap"))
    # the entropy is estimated from one action in each of 1000 steps
    assert both == pytest.approx(0, abs=0.02 * Q)
    without = gap(agent_that_says(name, perfect))
    assert without == pytest.approx(-MISSING.mean() - soft, rel=1e-3)
    assert abs(both) < 0.2 * abs(without)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_beta_follows_a_critic_that_is_too_low_or_too_high(name):
    low, high = agent_that_says(name, 0.0), agent_that_says(name, 1000.0)
    start, step = low.bias.start, low.bias.lr
    assert low.beta == pytest.approx(start + step)
    assert high.beta == pytest.approx(start - step)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_targets_grow_with_beta(name):
    """What would be wrong if the sign of the bias were flipped anywhere."""
    model = agent_that_says(name, Q)
    batch = model.replay_buffer.sample(64)
    spans = []
    for seed in range(5):
        generator = th.Generator().manual_seed(seed)
        for parameter in model.policy.parameters():  # critics that disagree
            parameter.data.add_(th.randn(parameter.shape, generator=generator))
        means = []
        for beta in np.linspace(*model.bias.range, 5):
            th.manual_seed(0)
            with th.no_grad():
                means.append(model.td_target(batch, float(beta)).mean().item())
        assert means == sorted(means)
        spans.append(means[-1] - means[0])
    assert max(spans) > 0


def test_a_tail_longer_than_the_episodes_says_so_and_keeps_no_more_than_it_may():
    model = make("acc", ShortPendulum(), bias={**BIAS, "tail": ("drop", 20)}, learning_starts=10**6)
    with pytest.warns(UserWarning, match=r"bias.tail is \('drop', 20\), which leaves no pair"):
        model.learn(1000)
    assert model.tracker.n_pairs <= BIAS["pairs_kept"]
    assert model.beta == model.bias.start


def test_time_limits_that_are_terminals_for_the_critic_have_no_tail():
    returns = []
    for handled in (True, False):
        kwargs = {"handle_timeout_termination": handled}
        model = make("td3", ShortPendulum(), replay_buffer_kwargs=kwargs, bias={**BIAS, "tail": "bootstrap"}, seed=0)
        model.tail_value = lambda obs: th.full((len(obs),), 1000.0)
        model.learn(110)
        returns.append(model._bias_metrics["mean_return"])
    expected = 1000 * np.mean([0.99 ** (20 - t) for t in range(20)])
    assert returns[0] - returns[1] == pytest.approx(expected, rel=1e-4)


def test_any_q_in_front_of_the_tqc_of_sb3_contrib():
    model = type("ShiftedTQC", (AnyQ, sb3_contrib.TQC), {})("MlpPolicy", ShortPendulum(), learning_starts=60, bias=BIAS)
    model.learn(200)
    assert model.bias_rule.last_update > 0
