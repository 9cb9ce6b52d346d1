"""acc-x against a plain reference in double precision, and what its parts promise."""

from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from small import ShortPendulum, make
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch import nn

from acc_rl import ACCX, SAC, XMean
from acc_rl.algos.policies import XPolicy
from acc_rl.core.errors import SettingError

BATCH, N_OBS, N_ACT, ATOMS, WIDTH, LR, TAU, GAMMA = 16, 3, 2, 11, 8, 1e-3, 0.005, 0.99


class Shapes(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (N_OBS,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (N_ACT,), np.float32)


def nets_of(ensemble):
    """The nets of a perceptron as torch's own modules, in double precision"""
    parts, nets = ensemble.parts(ensemble.theta.detach()), []
    for net in range(ensemble.n_nets):
        layers = []
        for weight, bias in zip(parts[::2], parts[1::2], strict=True):
            linear = nn.Linear(weight.shape[2], weight.shape[1]).double()
            linear.weight.data, linear.bias.data = weight[net].double(), bias[net, :, 0].double()
            layers += [linear, nn.ReLU()]
        nets.append(nn.Sequential(*layers[:-1]))
    return nn.ModuleList(nets)


class Reference:
    """The update read off the paper formulas: autograd, loops over samples and atoms, double precision"""

    def __init__(self, model):
        self.critics, self.targets = nets_of(model.critic.ensemble), nets_of(model.critic_target.ensemble)
        (self.actor,) = nets_of(model.actor.net)
        self.log_alpha = model.log_ent_coef.detach().double().clone().requires_grad_()
        parameters = (self.critics.parameters(), self.actor.parameters(), [self.log_alpha])
        self.optimizers = [th.optim.Adam(each, LR) for each in parameters]
        self.support = th.linspace(-5, 5, ATOMS).double()

    def act(self, obs, noise):
        mean, log_std = self.actor(obs).chunk(2, dim=1)
        normal = th.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        u = mean + log_std.clamp(-20, 2).exp() * noise
        log_prob = normal.log_prob(u) - th.log1p(-u.tanh().square())
        return u.tanh(), log_prob.sum(1)

    def step(self, i, loss):
        self.optimizers[i].zero_grad()
        loss.backward()
        self.optimizers[i].step()

    def update(self, obs, actions, rewards, next_obs, dones, scale, beta, noise):
        alpha = self.log_alpha.exp().item()
        with th.no_grad():
            next_actions, log_prob = self.act(next_obs, noise[0])
            p = [net(th.cat([next_obs, next_actions], 1)).softmax(1) for net in self.targets]
            y = th.zeros(BATCH, ATOMS).double()
            for b in range(BATCH):
                means = [(each[b] * self.support).sum() for each in p]
                least = p[int(means[1] < means[0])][b]
                mixed = beta * (p[0][b] + p[1][b]) / 2 + (1 - beta) * least
                for j in range(ATOMS):
                    bootstrap = GAMMA * (1 - dones[b, 0]) * (self.support[j] - alpha * log_prob[b])
                    place = ((rewards[b, 0] / scale + bootstrap).clamp(-5, 5) + 5) / 10 * (ATOMS - 1)
                    low = min(int(place), ATOMS - 2)
                    y[b, low] += mixed[j] * (1 - (place - low))
                    y[b, low + 1] += mixed[j] * (place - low)
        x = th.cat([obs, actions], 1)
        self.step(0, sum(-(y * net(x).log_softmax(1)).sum(1).mean() for net in self.critics))
        with th.no_grad():
            for target, online in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target.mul_(1 - TAU).add_(TAU * online)
        actions, log_prob = self.act(obs, noise[1])
        x = th.cat([obs, actions], 1)
        q = sum((net(x).softmax(1) * self.support).sum(1) for net in self.critics) / 2
        self.step(1, (alpha * log_prob - q).mean())
        self.step(2, -(self.log_alpha * (log_prob.detach().mean() - N_ACT)).sum())


def test_updates_equal_a_plain_reference_in_double_precision(monkeypatch):
    sizes = {"pi": [WIDTH], "qf": [WIDTH, WIDTH]}
    kwargs = {"policy_kwargs": {"net_arch": sizes}, "policy_delay": 1}
    model = ACCX("MlpPolicy", Shapes(), buffer_size=1, n_atoms=ATOMS, seed=0, **kwargs)
    model.set_logger(Logger(None, []))
    reference = Reference(model)
    rng = np.random.default_rng(0)
    mean, spread = rng.normal(size=N_OBS), rng.uniform(0.5, 2, N_OBS)
    statistics = {"mean": th.tensor(mean), "var": th.tensor(spread**2), "count": th.tensor(100.0)}
    model.policy.normalizer.load_state_dict(statistics)
    model.scale.largest = 20.0  # rewards are divided by 4
    model.calibration.controller.beta = 0.3
    for _ in range(5):
        obs, next_obs = (mean + spread * rng.normal(size=(2, BATCH, N_OBS))).astype(np.float32)
        actions = rng.uniform(-1, 1, (BATCH, N_ACT)).astype(np.float32)
        rewards, dones = (
            rng.normal(size=(BATCH, 1)).astype(np.float32),
            (rng.random((BATCH, 1)) < 0.2).astype(np.float32),
        )
        noise = rng.normal(size=(2, BATCH, N_ACT)).astype(np.float32)
        batch = ReplayBufferSamples(*map(th.tensor, (obs, actions, next_obs, dones, rewards)))
        draws = iter(th.tensor(noise))
        with monkeypatch.context() as patch:
            patch.setattr(model.replay_buffer, "sample", lambda size, env=None, batch=batch: batch)
            patch.setattr(th, "randn", lambda *shape, device, draws=draws: next(draws))
            model.train(1, BATCH)
        seen = [th.tensor((each - mean) / np.sqrt(spread**2 + 1e-8)) for each in (obs, next_obs)]
        others = [th.tensor(each).double() for each in (actions, rewards, dones)]
        reference.update(seen[0], others[0], others[1], seen[1], others[2], 4.0, 0.3, th.tensor(noise).double())
    for ours, theirs in (
        (model.critic.ensemble, reference.critics),
        (model.critic_target.ensemble, reference.targets),
        (model.actor.net, nn.ModuleList([reference.actor])),
    ):
        for expected, got in zip(theirs, nets_of(ours), strict=True):
            for a, b in zip(expected.parameters(), got.parameters(), strict=True):
                th.testing.assert_close(b, a, rtol=1e-4, atol=2e-5)
    th.testing.assert_close(model.log_ent_coef.double(), reference.log_alpha, rtol=1e-5, atol=1e-6)


def test_the_ends_of_the_knob_are_the_siblings():
    assert make("x-min", ShortPendulum()).beta == 0
    assert XMean("MlpPolicy", ShortPendulum(), buffer_size=10).beta == 1
    assert make("acc-x", ShortPendulum()).beta == 0.5


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_everything_that_is_logged_is_in_units_of_the_envs_rewards(factor):
    """Rewards of another scale: the same actions, and gaps and limits that are scaled alike."""

    class Scaled(ShortPendulum):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, self.factor * reward, *rest

    found = []
    for each in (1.0, factor):
        env = Scaled()
        env.factor = each
        model = make("acc-x", env, seed=0, learning_starts=60, bias=ACCX.default_bias.given() | {"update_interval": 20})
        model.learn(100)
        found.append((model.calibration.measured, model.value_limit(), model.mean_target(), model.reward_scale))
    (one, limit, target, scale), (two, other_limit, other_target, other_scale) = found
    assert other_scale == pytest.approx(factor * scale, rel=1e-4)
    assert other_limit == pytest.approx(factor * limit, rel=1e-2)
    assert other_target == pytest.approx(factor * target, rel=1e-2)
    for name in ("gap", "mean_return", "mean_q"):
        assert two[name] == pytest.approx(factor * one[name], rel=1e-2)


def test_the_warm_up_is_not_compared():
    model = make("acc-x", ShortPendulum(), learning_starts=70, bias=ACCX.default_bias.given() | {"update_interval": 20})
    model.learn(75)
    assert model.calibration.episodes.n_pairs == 0
    assert model.calibration.clock == 75
    model.learn(20, reset_num_timesteps=False)
    assert [len(e) for e in model.calibration.episodes.episodes] == [10]  # from step 70 on


@pytest.mark.parametrize("n_envs", [1, 3])
def test_statistics_of_observations_are_those_of_the_envs(n_envs, tmp_path):
    env = make_vec_env(ShortPendulum, n_envs=n_envs)
    model = make("sac", env, normalize_observations=True, learning_starts=10**6)
    model.learn(60)
    normalizer = model.policy.normalizer
    assert normalizer.count == 60
    assert model.actor.normalizer is model.critic.normalizer is model.critic_target.normalizer is normalizer
    assert 0.01 < normalizer.var.min() < normalizer.var.max() < 60
    model.save(tmp_path / "model")
    loaded = SAC.load(tmp_path / "model")
    assert th.equal(loaded.policy.normalizer.mean, normalizer.mean)
    obs = ShortPendulum().reset(seed=0)[0]
    assert loaded.predict(obs, deterministic=True)[0] == model.predict(obs, deterministic=True)[0]


class Own(FlattenExtractor):
    """As wide as the observations, and of other values"""

    def forward(self, observations):
        return 100 * super().forward(observations) + 50


class Seen(gym.ObservationWrapper):
    """The short pendulum in a space of another kind"""

    def __init__(self, space):
        super().__init__(ShortPendulum())
        self.observation_space = space

    def observation(self, observation):
        return self.observation_space.sample()


NOT_NORMALISED = [
    ({"use_sde": True}, None, "gSDE"),
    ({"policy_kwargs": {"features_extractor_class": Own}}, None, "features of Own"),
    ({}, gym.spaces.Discrete(5), r"observations Discrete\(5\), not a Box of one dimension"),
    ({}, gym.spaces.Box(-1, 1, (2, 2)), "not a Box of one dimension"),
    ({}, gym.spaces.MultiBinary(3), "not a Box of one dimension"),
]


@pytest.mark.parametrize(("settings", "space", "why"), NOT_NORMALISED)
def test_normalisation_is_refused_where_it_has_no_meaning_and_left_out_by_default(settings, space, why):
    env = ShortPendulum() if space is None else Seen(space)
    with pytest.raises(SettingError, match=rf"normalize_observations is True, but there are .*{why}"):
        make("acc-x", env, normalize_observations=True, **settings)
    model = make("acc-x", env, **settings)
    assert not model.policy.normalize_observations
    model.learn(60)


def test_whole_numbers_as_observations_are_normalised():
    model = make("acc-x", Seen(gym.spaces.Box(0, 255, (4,), np.uint8)))
    model.learn(80)
    assert model.policy.normalizer.count == 80
    assert (model.policy.normalizer.mean > 60).all()
    assert (model.policy.normalizer.mean < 200).all()


def test_the_default_of_normalisation_is_the_same_for_the_class_of_a_policy():
    assert make("acc-x", ShortPendulum(), policy=XPolicy).policy.normalize_observations


def test_the_running_sum_of_rewards_begins_anew_with_the_envs():
    model = make("acc-x", ShortPendulum())
    model.learn(15)  # within an episode
    assert model.scale.open[0] < -20
    model.learn(1)
    assert -17 < model.scale.open[0] < 0  # one reward


@pytest.mark.parametrize("atoms", [1, 0, 2.5])
def test_a_categorical_critic_has_two_atoms_or_more(atoms):
    with pytest.raises(SettingError, match=rf"n_atoms is {atoms}, but must be an integer >= 2"):
        make("acc-x", ShortPendulum(), n_atoms=atoms)


@pytest.mark.parametrize("name", ["sac", "acc", "acc-x"])
def test_the_actor_is_updated_after_every_so_many_critic_updates(name):
    model = make(name, ShortPendulum(), policy_delay=3, learning_starts=5, seed=0)
    actors = []
    model.train = lambda *args, **kwargs: (type(model).train(model, *args, **kwargs), actors.append(theta(model)))
    model.learn(5 + 7)
    changed = [not th.equal(a, b) for a, b in pairwise(actors)]
    assert changed == [False, True, False, False, True, False]


def theta(model):
    return model.actor.net.theta.detach().clone()


def test_batch_norm_sees_both_sides_of_a_transition():
    nets = {"net_arch": [16], "nets": "batchnorm"}
    model = make("acc-x", ShortPendulum(), policy_kwargs=nets, n_steps=1, normalize_observations=False, seed=0)
    model.learn(60)
    batch = model.replay_buffer.sample(32)
    model.policy.set_training_mode(True)
    statistics = [net.ensemble.layers[0].module.mean for net in (model.critic, model.critic_target)]
    before = [each.clone() for each in statistics]
    th.manual_seed(0)
    with th.no_grad():
        next_actions = model.next_actions(batch.next_observations)[0]
    th.manual_seed(0)
    model.update_critic(batch)
    now = th.cat([batch.observations, batch.actions], dim=1)
    both = th.cat([now, th.cat([batch.next_observations, next_actions], dim=1)])
    for after, each in zip(statistics, before, strict=True):
        th.testing.assert_close(after, 0.99 * each + 0.01 * both.mean(0))
    after = [each.clone() for each in statistics]
    model.update_actor(batch)
    th.testing.assert_close(statistics, after)


def test_batch_norm_needs_a_batch():
    with pytest.raises(ValueError, match="batch_size is 1, but nets='batchnorm'"):
        make("sac", ShortPendulum(), policy_kwargs={"nets": {"qf": "batchnorm"}}, batch_size=1)


def test_the_target_actors_batch_norm_follows_the_actors():
    model = make("td3", ShortPendulum(), policy_kwargs={"nets": "batchnorm"}, tau=0.5, seed=0)
    model.learn(150)
    online, target = (net.net.layers[0].module.mean for net in (model.actor, model.actor_target))
    assert online.abs().max() > 1e-3
    th.testing.assert_close(target, online, rtol=0.2, atol=0.01)
