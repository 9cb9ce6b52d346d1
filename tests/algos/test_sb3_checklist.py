"""Everything that SB3's off-policy algorithms can do, with ours in their place."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from small import ADAPTIVE, ALSO, BIAS, CONTINUOUS, KINDS, OWN, SOFT, env_class, make
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.callbacks import CallbackList, CheckpointCallback, EvalCallback, StopTrainingOnMaxEpisodes
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv, FakeImageEnv, SimpleMultiObsEnv
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from acc_rl.algos.estimates import ModelEstimator
from acc_rl.algos.registry import find
from acc_rl.core.errors import AccError
from acc_rl.runs.callbacks import ValueErrorCallback

every_algorithm = pytest.mark.parametrize("name", OWN)


def weights(model):
    return {name: value.clone() for name, value in model.policy.state_dict().items()}


def assert_learned(model, before):
    """All nets moved, to finite values, and the gap was measured."""
    for name, value in model.policy.state_dict().items():
        assert value.isfinite().all(), name
        assert not th.equal(value, before[name]), f"{name} did not change"
    assert np.isfinite(model.calibration.measured["gap"])
    assert model.calibration.last_update > 0


ANY = {
    "default": {},
    "train_freq": {"train_freq": 4, "gradient_steps": 2},
    "as many updates as steps": {"train_freq": (3, "step"), "gradient_steps": -1},
    "per episode": {"train_freq": (1, "episode"), "gradient_steps": -1},
    "n-step": {"n_steps": 3},
    "schedule": {"learning_rate": lambda progress: 1e-3 * progress},
    "sizes": {"policy_kwargs": {"net_arch": [8, 9]}},
    "activation": {"policy_kwargs": {"activation_fn": th.nn.Tanh}},
    "optimizer": {"policy_kwargs": {"optimizer_class": th.optim.RMSprop, "optimizer_kwargs": {"eps": 1e-5}}},
    "plain Adam": {"policy_kwargs": {"optimizer_kwargs": {"fused": False}}},
    "memory": {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}},
    "bootstrapped tail": {"bias": {**BIAS, "tail": "bootstrap"}},
    "dropped tail": {"bias": {**BIAS, "tail": ("drop", 5)}},
}
ACTOR_CRITIC = {
    "different sizes": {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [8, 9, 10]}}},
    "linear critics": {"policy_kwargs": {"net_arch": {"pi": [8], "qf": []}}},
    "normal noise": {"action_noise": NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))},
    "correlated noise": {"action_noise": OrnsteinUhlenbeckActionNoise(np.zeros(1), 0.1 * np.ones(1))},
    "activation with parameters": {"policy_kwargs": {"activation_fn": th.nn.PReLU}},
    "more critics": {"n_critics": 3},
    "more critic updates": {"critic_updates": 3},
}
SOFT_ONLY = {
    "gSDE": {"use_sde": True, "sde_sample_freq": 4, "use_sde_at_warmup": True},
    "fixed temperature": {"ent_coef": 0.05},
    "temperature starts at 0.1": {"ent_coef": "auto_0.1", "target_entropy": -2.0},
    "rare target updates": {"target_update_interval": 3},
    "soft returns": {"bias": {**BIAS, "returns": "soft"}},
    "soft returns and bootstrapped tail": {"bias": {**BIAS, "returns": "soft", "tail": "bootstrap"}},
}
DETERMINISTIC_ONLY = {"rare actor updates": {"policy_delay": 3}, "no exploration": {"exploration_noise": 0.0}}
WHOLE = {**BIAS, "tail": "none"}
"""whole episodes are kept; a bootstrapped tail cuts the oldest"""
OPTIONS = {
    # one algorithm of each file for all options: the others differ in their bias rule alone
    "acc": ANY | ACTOR_CRITIC | SOFT_ONLY,
    "acc-sac": ANY | ACTOR_CRITIC | SOFT_ONLY,
    "acc-td3": ANY | ACTOR_CRITIC | DETERMINISTIC_ONLY,
    "acc-x": {
        **{option: ANY[option] for option in ("default", "n-step", "per episode", "bootstrapped tail")},
        **{option: SOFT_ONLY[option] for option in ("gSDE", "fixed temperature", "soft returns")},
        "more critics": {"n_critics": 3},
        "plain": {"normalize_observations": False, "reward_scaling": False},
    },
    "acc-dqn": ANY,
    "acc-qrdqn": ANY,
    "acc-ddpg": {"default": {}, "more critic updates": {"critic_updates": 3}},
}


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        pytest.param(name, kwargs, id=f"{name}: {option}")
        for name in OWN | ALSO
        for option, kwargs in OPTIONS.get(name, {"default": {}}).items()
    ],
)
def test_options(name, kwargs):
    model = make(name, env_class(name)(), seed=1, **kwargs)
    before = weights(model)
    model.learn(160)
    assert_learned(model, before)


@pytest.mark.parametrize("name", ["acc", "sac", "td3"])
def test_sizes_that_are_not_given_stay_at_their_defaults(name):
    default = find(name).load().policy_aliases["MlpPolicy"].default_arch
    for part, other in (("pi", "qf"), ("qf", "pi")):
        policy = make(name, env_class(name)(), policy_kwargs={"net_arch": {part: [8]}}).policy
        assert policy.net_arch == {part: [8], other: default[other]}


class Matrices(gym.Wrapper):
    """The pendulum pushed by the mean of a matrix"""

    def __init__(self):
        super().__init__(gym.wrappers.TimeLimit(gym.make("Pendulum-v1").unwrapped, 20))
        self.action_space = gym.spaces.Box(-2, 2, (2, 2))

    def step(self, action):
        assert action.shape == (2, 2)
        return self.env.step(action.mean(keepdims=True)[0])


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("n_envs", [1, 2])
def test_actions_that_are_matrices(name, n_envs):
    model = make(name, DummyVecEnv([Matrices] * n_envs), seed=1)
    before = weights(model)
    model.learn(200, ValueErrorCallback())
    assert_learned(model, before)


@every_algorithm
def test_learning_rate_schedule_reaches_every_optimizer(name):
    model = make(name, env_class(name)(), learning_rate=lambda progress: progress)
    model.learn(100)
    optimizers = model.optimizers() if name in CONTINUOUS else [model.policy.optimizer]
    assert len(optimizers) == (3 if name in SOFT else 2 if name in CONTINUOUS else 1)
    assert {group["lr"] for optimizer in optimizers for group in optimizer.param_groups} == {0.0}


@pytest.mark.parametrize(("name", "vec_env"), [*((name, DummyVecEnv) for name in OWN), ("acc", SubprocVecEnv)])
def test_several_envs(name, vec_env):
    env = make_vec_env(env_class(name), n_envs=3, vec_env_cls=vec_env)
    model = make(name, env, train_freq=1, gradient_steps=-1)
    before = weights(model)
    model.learn(300)
    assert_learned(model, before)
    # 300 steps are 5 whole episodes in each of the three envs
    assert model._episode_num == 15
    assert {len(e) for e in model.calibration.episodes.episodes} == {20}
    assert all(e.truncated for e in model.calibration.episodes.episodes)
    env.close()


@every_algorithm
def test_images(name):
    env = FakeImageEnv(screen_height=40, screen_width=40, n_channels=1, discrete=name not in CONTINUOUS)
    model = make(
        name, env, "CnnPolicy", seed=0, train_freq=8, policy_kwargs={"features_extractor_kwargs": {"features_dim": 64}}
    )
    before = weights(model)
    model.learn(300)
    assert_learned(model, before)


@pytest.mark.parametrize(
    ("name", "share"), [*((name, False) for name in OWN), *((name, True) for name in ("acc", "acc-td3"))]
)
def test_dictionaries(name, share):
    env = SimpleMultiObsEnv(discrete_actions=name not in CONTINUOUS, channel_last=False)
    kwargs = {"features_extractor_kwargs": {"cnn_output_dim": 64}}
    if share:
        kwargs["share_features_extractor"] = True
    model = make(name, env, "MultiInputPolicy", seed=0, train_freq=8, policy_kwargs=kwargs)
    before = weights(model)
    model.learn(300)
    assert_learned(model, before)
    obs, _ = env.reset()
    assert env.action_space.contains(model.predict(obs)[0])


def test_shared_features_are_left_to_the_actors_loss():
    env = SimpleMultiObsEnv(discrete_actions=False, channel_last=False)
    model = make("acc", env, "MultiInputPolicy", seed=0, policy_kwargs={"share_features_extractor": True})
    obs, _ = model.policy.obs_to_tensor(env.reset(seed=0)[0])
    model.critic(obs, th.zeros(1, *env.action_space.shape)).sum().backward()
    assert model.critic.ensemble.theta.grad.any()
    assert all(weight.grad is None for weight in model.critic.features_extractor.parameters())


def test_shared_features_rest_while_td3s_actor_does():
    env = SimpleMultiObsEnv(discrete_actions=False, channel_last=False)
    model = make("td3", env, "MultiInputPolicy", seed=0, policy_kwargs={"share_features_extractor": True})
    model.learn(100)
    moved = []
    for _ in range(4):  # the actor is updated in every second step
        before = [weight.clone() for weight in model.actor.features_extractor.parameters()]
        model.train(1, 16)
        after = model.actor.features_extractor.parameters()
        moved.append(any(not th.equal(a, b) for a, b in zip(before, after, strict=True)))
    assert sorted(moved) == [False, False, True, True]


@every_algorithm
def test_hindsight(name):
    model = make(
        name,
        BitFlippingEnv(n_bits=4, continuous=name in CONTINUOUS, max_steps=8),
        "MultiInputPolicy",
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 2, "goal_selection_strategy": "future"},
    )
    before = weights(model)
    model.learn(200)
    assert_learned(model, before)


@every_algorithm
def test_normalised_observations_and_rewards_are_compared_on_the_critics_scale(name):
    env = VecNormalize(make_vec_env(env_class(name), n_envs=1), norm_obs=True, norm_reward=True, clip_reward=1e9)
    model = make(name, env, learning_starts=10_000, gamma=0.9, bias=WHOLE)
    model.learn(400)
    raw = np.concatenate([e.rewards for e in model.calibration.episodes.episodes])
    assert raw.min() < -3  # the tracker keeps what the env gave
    seen = []
    model.value_estimate = lambda obs, actions: seen.append(obs) or th.zeros(len(obs))
    model.estimator = ModelEstimator(model)
    model.calibration.measure(model.estimator)
    scale = np.sqrt(env.ret_rms.var + env.epsilon)
    by_hand = [
        sum(0.9**k * r for k, r in enumerate(e.rewards[t:])) / scale
        for e in model.calibration.episodes.episodes
        for t in range(20)
    ]
    assert model.calibration.measured["mean_return"] == pytest.approx(np.mean(by_hand), rel=1e-5)
    assert th.cat(seen).abs().max() <= env.clip_obs
    assert abs(th.cat(seen).mean()) < 0.5  # normalised, as the critic sees them


@every_algorithm
def test_callbacks_evaluation_tensorboard_and_progress_bar(name, tmp_path):
    model = make(name, env_class(name)(), tensorboard_log=str(tmp_path / "tb"))
    callbacks = CallbackList(
        [
            EvalCallback(
                make_vec_env(env_class(name)), n_eval_episodes=2, eval_freq=100, log_path=str(tmp_path), verbose=0
            ),
            CheckpointCallback(100, str(tmp_path / "checkpoints")),
            StopTrainingOnMaxEpisodes(10),
        ]
    )
    with pytest.warns(match="rich is experimental"):
        model.learn(100_000, callback=callbacks, log_interval=2, progress_bar=True)
    assert model.num_timesteps == 200
    assert np.load(tmp_path / "evaluations.npz")["results"].shape == (2, 2)
    assert len(list((tmp_path / "checkpoints").glob("*.zip"))) == 2
    assert list((tmp_path / "tb" / f"{type(model).__name__}_1").glob("events*"))


@every_algorithm
def test_what_the_log_shows(name):
    model = make(name, env_class(name)())
    logged = {}

    class Memory(KVWriter):
        def write(self, key_values, key_excluded, step=0):
            logged.update(key_values)

        def close(self):
            pass

    model.set_logger(Logger(None, [Memory()]))
    model.learn(200, log_interval=1)
    expected = {"beta", "gap", "gap_error", "gap_full", "gap_full_error", "mean_q", "mean_return"}
    truncated = KINDS[name] == "tqc" or name.endswith("qrdqn")
    expected |= {"dropped_per_net"} if truncated else {"pessimism"} if KINDS[name] == "x" else set()
    expected |= {"scale", "at_limit"} if name in ADAPTIVE else set()
    expected |= {"gap_soft", "gap_soft_error"} if name in SOFT else set()
    assert {key.removeprefix("bias/") for key in logged if key.startswith("bias/")} == expected
    assert logged["bias/gap"] == pytest.approx(logged["bias/mean_return"] - logged["bias/mean_q"])
    if truncated:
        assert logged["bias/dropped_per_net"] == pytest.approx(model.calibration.knob.d_max - logged["bias/beta"])
    losses = {"critic_loss", "actor_loss"} if name in CONTINUOUS else {"loss"}
    losses |= {"ent_coef", "ent_coef_loss"} if name in SOFT else set()
    assert {key for key in logged if key.startswith("train/")} == {
        "train/learning_rate",
        "train/n_updates",
        "train/target",
        *(f"train/{loss}" for loss in losses),
    }
    assert all(np.isfinite(logged[key]) for key in logged if key.startswith(("bias/", "train/")))


def calibration(model):
    return th.utils._pytree.tree_flatten(model.calibration.state_dict())[0]


def assert_same_state(one, other):
    assert one.beta == other.beta
    assert one.calibration.controller.state_dict() == other.calibration.controller.state_dict()
    assert len(one.calibration.episodes.episodes) == len(other.calibration.episodes.episodes) > 0
    for a, b in zip(calibration(one), calibration(other), strict=True):
        assert th.equal(a.nan_to_num(-1.5), b.nan_to_num(-1.5))
    for key, value in one.policy.state_dict().items():
        assert th.equal(value, other.policy.state_dict()[key]), key
    if hasattr(one, "log_ent_coef"):
        assert th.equal(one.log_ent_coef, other.log_ent_coef)


@every_algorithm
def test_save_and_load_keep_everything(name, tmp_path):
    env = env_class(name)()
    model = make(name, env, seed=0)
    model.learn(207)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = type(model).load(tmp_path / "model", env=env)
    assert_same_state(model, loaded)
    assert loaded.num_timesteps == model.num_timesteps
    assert loaded._n_updates == model._n_updates
    assert loaded.bias == model.bias
    obs = np.array([1.0, 0.0, 0.5], dtype=np.float32)
    np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])
    loaded.load_replay_buffer(tmp_path / "buffer")
    assert loaded.replay_buffer.size() == model.replay_buffer.size()
    episodes = len(loaded.calibration.episodes.episodes)
    loaded.learn(40, reset_num_timesteps=False)
    assert loaded.num_timesteps == model.num_timesteps + 40
    # the seven steps of the unfinished episode are gone with the env's reset
    assert {len(e) for e in loaded.calibration.episodes.episodes[episodes:]} <= {20}


@every_algorithm
def test_load_without_env_predicts_and_can_take_new_bias_settings(name, tmp_path):
    model = make(name, env_class(name)())
    model.learn(200)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", bias={"update_interval": 77})
    assert loaded.calibration.settings == replace(model.bias, update_interval=77)
    assert loaded.beta == model.beta
    assert loaded.action_space.contains(loaded.predict(np.zeros(3))[0])


@pytest.mark.parametrize(("before", "after"), [(1, 2), (3, 1)])
@every_algorithm
def test_load_with_another_number_of_envs(name, before, after, tmp_path):
    model = make(name, make_vec_env(env_class(name), n_envs=before), bias=WHOLE)
    model.learn(207)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=make_vec_env(env_class(name), n_envs=after))
    loaded.learn(80, reset_num_timesteps=False)
    assert {len(e) for e in loaded.calibration.episodes.episodes} == {20}


def saved(path, name, **kwargs):
    model = make(name, env_class(name)(), **kwargs)
    model.learn(120)
    model.save(path / "model")
    return lambda **changes: type(model).load(path / "model", env=env_class(name)(), **changes)


def test_load_with_another_number_of_dropped_atoms(tmp_path):
    load = saved(tmp_path, "tqc", dropped_per_net=2)
    assert dict(load(dropped_per_net=5).bias_metrics())["dropped_per_net"] == 5
    assert dict(load(bias={"range": (0.0, 6.0)}).bias_metrics())["dropped_per_net"] == 2


def test_load_with_a_range_that_beta_has_left(tmp_path):
    model = saved(tmp_path, "acc", bias={**BIAS, "start": 4.5})(bias={"start": 1.0, "range": (0.0, 2.0)})
    assert model.beta == 2.0
    model.learn(60, reset_num_timesteps=False)


@pytest.mark.parametrize("scaled", [True, False])
def test_load_with_and_without_reward_scaling(scaled, tmp_path):
    loaded = saved(tmp_path, "acc-x", reward_scaling=not scaled)(reward_scaling=scaled)
    loaded.learn(60, reset_num_timesteps=False)
    assert (loaded.reward_scale != 1) == scaled


@pytest.mark.parametrize(("before", "after"), [("acc", "top"), ("top", "acc"), ("gpl", "top"), ("fixed", "gpl")])
def test_load_with_another_controller(before, after, tmp_path):
    loaded = saved(tmp_path, "acc-x", controller=before)(controller=after)
    loaded.learn(60, reset_num_timesteps=False)
    assert 0 <= loaded.beta <= 1


@pytest.mark.parametrize(
    ("name", "made", "given", "message"),
    [
        ("acc-x", {}, {"n_critics": 5}, "n_critics is 5, but the model was made with 2"),
        ("acc-x", {}, {"n_atoms": 51}, "n_atoms is 51, but the model was made with 21"),
        ("acc-x", {}, {"normalize_observations": False}, "normalize_observations is False, .* made with True"),
        ("sac", {}, {"normalize_observations": True}, "normalize_observations is True, .* made with False"),
    ],
)
def test_load_with_other_nets_is_refused(name, made, given, message, tmp_path):
    load = saved(tmp_path, name, **made)
    with pytest.raises(AccError, match=message):
        load(**given)
    there = {"n_critics": 2, "normalize_observations": name == "acc-x"}
    assert load(**there).policy_kwargs["n_critics"] == 2


def test_load_with_another_exploration(tmp_path):
    load = saved(tmp_path, "td3")
    assert load(exploration_noise=0.4).action_noise._sigma == 0.4
    assert load(exploration_noise=0.0).action_noise is None
    given = saved(tmp_path, "td3", action_noise=NormalActionNoise(np.zeros(1), np.ones(1)))
    assert given(exploration_noise=0.4).action_noise._sigma == 1.0


def test_load_with_other_n_step_returns(tmp_path):
    load = saved(tmp_path, "sac", n_steps=3)
    buffer = load(n_steps=5, gamma=0.5).replay_buffer
    assert (buffer.n_steps, buffer.gamma) == (5, 0.5)
    assert load(n_steps=1).learn(60, reset_num_timesteps=False).num_timesteps == 180


def test_learning_again_marks_no_end_that_is_none():
    model = make("sac", env_class("sac")(), optimize_memory_usage=True)
    model.learn(70)
    model.learn(10, reset_num_timesteps=False)
    assert not model.replay_buffer.dones[69]  # within an episode of 20 steps


@every_algorithm
def test_parameters_are_those_of_nets_and_optimizers(name):
    one, other = make(name, env_class(name)(), seed=0), make(name, env_class(name)(), seed=1)
    one.learn(200)
    assert "calibration" not in one.get_parameters()
    other.set_parameters(one.get_parameters())
    assert other.calibration.clock == 0
    other.set_parameters(one.state_dicts())
    if name in SOFT:  # SB3 does not count it as a parameter
        other.log_ent_coef.data = one.log_ent_coef.data
    assert_same_state(one, other)
    with pytest.raises(ValueError, match="Names of parameters do not match"):
        other.set_parameters({"policy": one.policy.state_dict()})


@every_algorithm
def test_policy_saves_and_loads_alone(name, tmp_path):
    model = make(name, env_class(name)())
    model.policy.save(tmp_path / "policy.pth")
    loaded = type(model.policy).load(tmp_path / "policy.pth")
    assert loaded.predict(np.zeros(3), deterministic=True)[0] == model.predict(np.zeros(3), deterministic=True)[0]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_actor_saves_and_loads_alone(name, tmp_path):
    options = {"normalize_observations": True} if name == "acc-x" else {}
    model = make(name, env_class(name)(), policy_kwargs={"activation_fn": th.nn.Tanh, "nets": "layernorm"}, **options)
    model.learn(60)
    model.actor.save(tmp_path / "actor.pth")
    loaded = type(model.actor).load(tmp_path / "actor.pth")
    obs = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)
    np.testing.assert_array_equal(loaded.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])


class BatchNormExtractor(FlattenExtractor):
    def __init__(self, observation_space):
        super().__init__(observation_space)
        self.norm = th.nn.BatchNorm1d(self.features_dim)

    def forward(self, observations):
        return self.norm(super().forward(observations))


@pytest.mark.parametrize("critic_updates", [1, 2])
@pytest.mark.parametrize("name", ["acc", "sac", "td3"])
def test_targets_have_the_statistics_of_batch_normalisation(name, critic_updates):
    """after the actor's update, in which the critics see one more batch"""
    policy_kwargs = {"features_extractor_class": BatchNormExtractor}
    model = make(name, env_class(name)(), policy_kwargs=policy_kwargs, tau=0.0, critic_updates=critic_updates)
    model.learn(120)
    online, target = (each.features_extractor.norm for each in (model.critic, model.critic_target))
    assert online.running_mean.abs().max() > 0.01
    for statistic in ("running_mean", "running_var"):
        assert th.equal(getattr(online, statistic), getattr(target, statistic))


@every_algorithm
def test_set_env_and_learning_again(name):
    model = make(name, env_class(name)(), train_freq=1, bias=WHOLE)
    model.learn(205)
    model.set_env(env_class(name)())
    model.learn(45, reset_num_timesteps=False)
    assert {len(e) for e in model.calibration.episodes.episodes} == {20}
    last = model.calibration.last_update
    assert last > 200
    model.learn(60)  # SB3 counts from zero, the calibration goes on
    assert model.num_timesteps == 60
    assert model.calibration.clock == 310
    assert model.calibration.last_update > last


@pytest.mark.skipif(not th.cuda.is_available(), reason="no CUDA device")
@every_algorithm
def test_cuda(name):
    model = make(name, env_class(name)(), device="cuda")
    before = weights(model)
    model.learn(200)
    assert_learned(model, before)
