"""The gap of critics that are known to be right, too high or too low."""

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch as th
from small import ADAPTIVE, BIAS, KINDS, OWN, SOFT, DiscretePendulum, ShortPendulum, env_class, make
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from toy import ALPHA, GAMMA, LIMIT, Q, agent_that_says, gap, last_layers

import acc_rl
from acc_rl import AnyQ, Controller, ValueErrorCallback
from acc_rl.algos.registry import REGISTRY
from acc_rl.core.controller import Constant
from acc_rl.core.value_error import ValueErrorMeter

OWN, SOFT, ADAPTIVE = ([name for name in names if KINDS[name] != "x"] for names in (OWN, SOFT, ADAPTIVE))
"""whose outputs are values; those of acc-x are logits, see test_x.py"""
# the missing tail of the return at step t is gamma^(LIMIT - t) * Q
MISSING = np.array([GAMMA ** (LIMIT - t) * Q for t in range(LIMIT)])


@pytest.mark.parametrize("name", OWN)
def test_plain_returns_lie_ten_percent_below_a_perfect_critic(name):
    measured = gap(agent_that_says(name, Q, tail="none")) / Q
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
                means.append(model.td_target(batch, float(beta)).mean().mean().item())
        assert means == sorted(means)
        spans.append(means[-1] - means[0])
    assert max(spans) > 0


def test_a_tail_longer_than_the_episodes_says_so_and_keeps_no_more_than_it_may():
    model = make("acc", ShortPendulum(), bias={**BIAS, "tail": ("drop", 20)}, learning_starts=10**6)
    with pytest.warns(UserWarning, match="bias.tail is drop:20, which leaves no pair"):
        model.learn(1000)
    assert model.calibration.episodes.n_pairs <= BIAS["pairs_kept"]
    assert model.beta == model.bias.start


def test_time_limits_that_are_terminals_for_the_critic_have_no_tail():
    returns = []
    for handled in (True, False):
        kwargs = {"handle_timeout_termination": handled}
        model = make("td3", ShortPendulum(), replay_buffer_kwargs=kwargs, bias={**BIAS, "tail": "bootstrap"}, seed=0)
        model.tail_value = lambda obs: th.full((len(obs),), 1000.0)
        model.learn(110)
        returns.append(model.calibration.measured["mean_return"])
    expected = 1000 * np.mean([0.99 ** (20 - t) for t in range(20)])
    assert returns[0] - returns[1] == pytest.approx(expected, rel=1e-4)


def test_any_q_in_front_of_the_tqc_of_sb3_contrib():
    model = type("ShiftedTQC", (AnyQ, sb3_contrib.TQC), {})(
        "MlpPolicy", ShortPendulum(), learning_starts=60, bias=BIAS, policy_kwargs={"net_arch": [16, 16]}
    )
    model.learn(200)
    assert model.calibration.last_update > 0


class StopAt(BaseCallback):
    """Ends ``learn`` at a step, before its transition is stored."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def _on_step(self):
        return self.num_timesteps != self.step


class CountingPendulum(ShortPendulum):
    """Rewards of 1, so that a return shows how long an episode was."""

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 1.0, terminated, truncated, info


@pytest.mark.parametrize("stop", [40, 45])
def test_a_callback_that_ends_learning_does_not_glue_episodes(stop):
    model = make("acc", CountingPendulum(), learning_starts=10**6)
    model.learn(1000, callback=StopAt(stop))
    model.learn(200, reset_num_timesteps=False)
    lengths = [len(e) for e in model.calibration.episodes.episodes]
    assert set(lengths) == {20}
    assert len(lengths) >= 8


def test_value_errors_do_not_glue_episodes_either():
    model, meter = (
        make("acc", CountingPendulum(), learning_starts=10**6, gamma=1.0),
        ValueErrorCallback(left_out=0, per_record=20),
    )
    for _ in range(3):
        model.learn(1000, callback=[meter, StopAt(model.num_timesteps + 30)], reset_num_timesteps=False)
    assert {len(e) for e in model.calibration.episodes.episodes} == {20}
    assert meter.meter.pairs == 60
    assert {len(steps) for steps in meter.meter.episodes._open} == {10}


def test_short_calls_of_learn_calibrate_too_and_keep_no_more_than_they_may():
    model = make("acc", ShortPendulum(), learning_starts=10**6)
    for _ in range(20):
        model.learn(60)  # SB3 counts from zero each time
    assert model.calibration.clock == 1200
    assert model.calibration.last_update > 1000
    assert model.beta != model.bias.start
    assert model.calibration.episodes.n_pairs <= BIAS["pairs_kept"] + 60


def test_another_range_does_not_move_d(tmp_path):
    model = make("acc", ShortPendulum(), bias={**BIAS, "range": (-1.0, 6.0)})
    assert model.dropped_per_net == 2.5
    model.save(tmp_path / "model")
    assert type(model).load(tmp_path / "model", bias={"range": (0.0, 5.5)}).dropped_per_net == 2.5


def test_a_fixed_controller_stands_at_the_plain_algorithm():
    assert make("acc", ShortPendulum(), controller="fixed").dropped_per_net == 2
    assert make("acc", ShortPendulum(), controller="fixed", bias={**BIAS, "start": 1.0}).dropped_per_net == 4
    assert make("td3", ShortPendulum()).beta == make("sac", ShortPendulum()).beta == 0
    assert make("td3", ShortPendulum(), controller="acc").beta == 0.5
    assert make("dqn", DiscretePendulum()).beta == 1
    with pytest.raises(ValueError, match="controller is 'pid'"):
        make("acc", ShortPendulum(), controller="pid")


@pytest.mark.parametrize("name", list(REGISTRY))
def test_the_registry_knows_who_adapts(name):
    entry = REGISTRY[name]
    assert entry.settings.get("controller", entry.load().default_controller) == entry.controller
    assert (entry.load().default_bias.rule or "paper") == entry.rule


class Halving(Controller):
    """A controller of the user's own: beta goes half the way to the end that the gap points to."""

    def measured(self, evidence):
        low, high = self.settings.range
        self.beta = (self.beta + (high if evidence.gap > 0 else low)) / 2


def test_a_controller_of_ones_own(tmp_path):
    model = agent_that_says("acc", 1000.0, controller=Halving())
    assert model.beta == 1.25
    model.save(tmp_path / "model")
    assert type(model).load(tmp_path / "model").beta == 1.25


@pytest.mark.parametrize("name", SOFT)
def test_the_full_gap_is_the_error_of_a_critic_that_is_off_by_a_constant(name):
    """gap_full = -(Q - Q^pi) whatever the time limit hides; plain and soft gaps are not"""
    error = 30.0
    model = agent_that_says(name, Q + soft_part(name) + error)
    found = model.calibration.measured
    assert found["gap_full"] == pytest.approx(-error, abs=0.03 * Q)
    assert abs(found["gap"] + error) > 5
    assert found["gap_soft"] == pytest.approx(-error - MISSING.mean() - soft_part(name) * 0.1, abs=0.03 * Q)
    assert found["gap_error"] != found["gap_error"]  # NaN: one episode says nothing about others


def test_measuring_leaves_the_random_stream_alone():
    states = []
    for name in ("sac", "td3"):
        model = make(name, ShortPendulum(), learning_starts=10**6, seed=0)
        model.learn(110)
        before = th.get_rng_state()
        model.calibration.measure(model.estimator)
        states.append(th.equal(before, th.get_rng_state()))
    assert states == [True, True]


def test_the_end_of_the_range_is_reported_once():
    model = make("acc", ShortPendulum(), learning_starts=10**6, bias={**BIAS, "start": 0.0})
    with th.no_grad():
        for critic in (model.critic, model.critic_target):
            critic.ensemble.parts(critic.ensemble.theta.data)[-1].fill_(1e4)
    with pytest.warns(
        UserWarning, match=r"beta has been at the lower end .*dropped_per_net = 5.* overestimates"
    ) as told:
        model.learn(1500)
    assert len(told) == 1
    assert dict(model.bias_metrics())["at_limit"] == 1


def test_the_end_that_is_reported_is_the_one_where_beta_is():
    bias = {**BIAS, "start": 5.0, "target_bias": 1e6}  # so much overestimation is wanted that this one is too little
    model = make("acc", ShortPendulum(), learning_starts=10**6, bias=bias)
    with th.no_grad():
        model.critic.ensemble.parts(model.critic.ensemble.theta.data)[-1].fill_(1e4)
    with pytest.warns(UserWarning, match=r"beta has been at the upper end .*dropped_per_net = 0.* overestimates"):
        model.learn(1500)


@pytest.mark.parametrize("controller", ["top", "gpl"])
@pytest.mark.parametrize("name", ["acc", "acc-x", "td3", "dqn"])
def test_rivals_turn_any_knob_and_the_gap_is_still_measured(name, controller):
    model = make(name, env_class(name)(), controller=controller, seed=0)
    model.learn(200)
    assert model.beta != model.bias.start
    assert np.isfinite(dict(model.bias_metrics())["gap"])
    low, high = model.bias.range
    assert model.beta in (low, high) if controller == "top" else low <= model.beta <= high


class Told(Constant):
    """What a controller is told of episodes"""

    returns = ()

    def ended(self, episode_return, step):
        self.returns = (*self.returns, episode_return)


@pytest.mark.parametrize("n_envs", [1, 3])
def test_a_controller_is_told_returns_of_whole_episodes(n_envs):
    """Of one that began with random actions too, and where fewer steps than an episode's are kept"""
    told, bias = Told(), {"warm_up": "skip", "tail": "bootstrap", "start_step": 0, "update_interval": 5}
    env = make_vec_env(ShortPendulum, n_envs=n_envs)
    model = make("acc-x", env, controller=told, learning_starts=30, bias={**bias, "pairs_kept": 6})
    model.learn(n_envs * 90)
    episodes = [each["r"] for each in model.ep_info_buffer][-len(told.returns) :]
    assert len(episodes) == n_envs * 4 - (1 if n_envs == 1 else 0)
    np.testing.assert_allclose(told.returns, episodes, rtol=1e-4)


class Endless(ShortPendulum):
    """No episode ever ends."""

    def step(self, action):
        observation, reward, *_ = self.env.unwrapped.step(action)
        return observation, reward, False, False, {}


@pytest.mark.parametrize("name", ["acc", "acc-x", "td3"])
def test_a_task_that_never_ends_is_calibrated_by_its_steps(name):
    bias = {**BIAS, "evidence": "steps", "evidence_steps": 20}
    model = make(name, Endless(), bias=bias, seed=0)
    model.learn(700)
    assert model.calibration.last_update > 600
    assert np.isfinite(model.calibration.measured["gap"])
    assert len(model.calibration.episodes._open[0]) <= BIAS["pairs_kept"] + BIAS["update_interval"]


@pytest.mark.parametrize("n", [20, 300])
def test_steps_measure_a_constant_error_exactly(n):
    """Through the time limit that plain returns do not see through"""
    model = agent_that_says("td3", Q + 30.0, evidence="steps", evidence_steps=n)
    assert gap(model) == pytest.approx(-30.0, rel=1e-3)


def spread(model, kind, *values):
    """Let the critics (online and target) say ``values``, one each"""
    for weight, bias in last_layers(model, kind):
        weight.data.zero_()
        for each, value in zip(bias, values, strict=True):
            each.data.fill_(value)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("acc-td3", 10.0),  # from the smaller critic's 80 to the mean of both, 90
        ("acc-sac", 0.8),  # one per cent of the smaller critic's 80
    ],
)
def test_the_lever_is_what_a_unit_of_beta_does_to_the_target(name, change):
    model = agent_that_says(name, 0.0, rule="confident", warm_up="keep")
    spread(model, KINDS[name], 80.0, 100.0)
    low, high = (model.estimator.targets(np.zeros((3, 1), np.float32), beta).mean() for beta in (0.0, 1.0))
    assert high - low == pytest.approx(change, rel=1e-5)
    model.calibration.measure(model.estimator)
    assert model.calibration.measured["lever"] == pytest.approx(99 * change, rel=1e-4)  # of 80, in single precision


def test_targets_of_truncated_critics_by_hand():
    model = agent_that_says("acc", 0.0)
    spread(model, "tqc", 80.0, 100.0)
    # of seven atoms each, all of the larger critic go with d = 3.5
    targets = [model.estimator.targets(np.zeros((3, 1), np.float32), beta).mean() for beta in (1.5, 3.0, 5.0)]
    assert targets == pytest.approx([80.0, (7 * 80 + 3 * 100) / 10, 90.0])


def test_the_confident_rule_starts_with_the_learned_policy():
    model = make("acc", ShortPendulum(), bias={"rule": "confident"})
    assert (model.bias.start_step, model.bias.warm_up) == (0, "skip")
    assert make("acc", ShortPendulum(), bias={"rule": "confident", "start_step": 7}).bias.start_step == 7
    assert make("acc", ShortPendulum(), bias={}).bias.start_step == 25_000
    with pytest.raises(ValueError, match=r"bias\.rule is 'bold'"):
        make("acc", ShortPendulum(), bias={"rule": "bold"})


@pytest.mark.parametrize("name", ["acc", "acc-td3", "acc-sac", "acc-qrdqn"])
def test_the_confident_rule_turns_every_knob(name):
    model = make(name, env_class(name)(), bias={"rule": "confident", "update_interval": 50}, seed=0)
    before = model.beta
    model.learn(400)
    assert model.calibration.measured["lever"] > 0
    assert model.beta != before


def test_too_few_steps_to_learn_from_are_told():
    model = make("sac", ShortPendulum(), learning_starts=20, verbose=1)
    with pytest.warns(UserWarning, match="20 steps and learning_starts 20: nothing will be learned"):
        model.learn(20)
    model.learn(1, reset_num_timesteps=False)


def test_a_mixin_refuses_a_controller_that_it_cannot_serve():
    kind = type("ShiftedTD3", (AnyQ, sb3.TD3), {})
    with pytest.raises(
        ValueError, match="controller is DualTD, which needs the TD error, but ShiftedTD3 trains by itself"
    ):
        kind("MlpPolicy", "Pendulum-v1", controller="gpl", buffer_size=10)


@pytest.mark.parametrize("kind", [sb3.SAC, acc_rl.SAC])
def test_another_env_begins_another_episode(kind, monkeypatch):
    lengths = []
    compare = ValueErrorMeter._compare
    monkeypatch.setattr(
        ValueErrorMeter,
        "_compare",
        lambda self, critic: (lengths.extend(map(len, self.episodes.episodes)), compare(self, critic))[1],
    )
    env, callback = gym.make("Pendulum-v1", max_episode_steps=20), ValueErrorCallback(left_out=0)
    model = kind("MlpPolicy", env, buffer_size=100, learning_starts=1000, policy_kwargs={"net_arch": [8]})
    model.learn(30, callback)
    model.learn(5, callback, reset_num_timesteps=False)
    model.set_env(gym.make("Pendulum-v1", max_episode_steps=20))
    model.learn(25, callback, reset_num_timesteps=False)
    assert lengths == [20, 20]
