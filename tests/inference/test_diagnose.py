"""Verdicts on critics of SB3 and sb3-contrib, and what is refused."""

import base64
import io
import json
import pickle
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch as th

from acc_rl.algos.registry import find
from acc_rl.inference.diagnose import FOREIGN, Diagnosis, diagnose, load_model


class Constant(gym.Env):
    """Reward 1 for 30 steps, then the task ends (or, if asked, a time limit comes)."""

    observation_space = gym.spaces.Box(-1, 1, (2,))

    def __init__(self, discrete, cut):
        self.action_space = gym.spaces.Discrete(3) if discrete else gym.spaces.Box(-1, 1, (1,))
        self.cut = cut

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        over = self.t == 30
        return np.zeros(2, np.float32), 1.0, over and not self.cut, over and self.cut, {}


for discrete in (False, True):
    for cut in (False, True):
        gym.register(
            f"Constant-{discrete}-{cut}-v0",
            entry_point=Constant,
            max_episode_steps=1000,
            kwargs={"discrete": discrete, "cut": cut},
        )


def model_that_says(algo, value, cut=True):
    env_id = f"Constant-{algo in ('dqn', 'qrdqn')}-{cut}-v0"
    kwargs = {"ent_coef": 0.1} if algo in ("sac", "tqc") else {}
    model = FOREIGN[algo](
        "MlpPolicy", gym.make(env_id), policy_kwargs={"net_arch": [8]}, buffer_size=10, seed=0, **kwargs
    )
    nets = {"dqn": "q_net", "qrdqn": "quantile_net"}.get(algo, "critic")
    for module in getattr(model, nets).modules():
        if isinstance(module, th.nn.Sequential):
            module[-1].weight.data.zero_()
            module[-1].bias.data.fill_(value)
    return model, env_id


@pytest.mark.parametrize("algo", ["td3", "ddpg", "dqn", "qrdqn"])
def test_a_perfect_critic_has_no_bias_and_others_have_the_one_they_were_given(algo):
    model, env_id = model_that_says(algo, 100.0)  # 1 / (1 - 0.99), looking through the time limit
    bias, low, high = diagnose(model, env_id, episodes=3).interval()
    assert (bias, low, high) == pytest.approx((0, 0, 0), abs=1e-4)
    # where the task itself ends, nothing comes after
    model, env_id = model_that_says(algo, 50.0, cut=False)
    mean_return = np.mean([(1 - 0.99 ** (30 - t)) / 0.01 for t in range(30)])
    bias, _, _ = diagnose(model, env_id, episodes=3).interval()
    assert bias == pytest.approx(50 / mean_return - 1, rel=1e-4)


@pytest.mark.parametrize("algo", ["sac", "tqc"])
def test_soft_critics_are_compared_with_soft_returns(algo):
    model, env_id = model_that_says(algo, 0.0)
    with th.no_grad():
        log_prob = model.actor.action_log_prob(th.zeros(100_000, 2))[1].mean().item()
    model, env_id = model_that_says(algo, 100.0 + 99 * 0.1 * -log_prob)
    bias, _, _ = diagnose(model, env_id, episodes=50).interval()
    assert abs(99 * 0.1 * log_prob) > 2
    assert bias == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("algo", FOREIGN)
def test_weights_alone_give_the_same_model(algo, tmp_path):
    env_id = "CartPole-v1" if algo in ("dqn", "qrdqn") else "Pendulum-v1"
    kwargs = {"net_arch": [9, 7], "activation_fn": th.nn.Tanh}
    model = FOREIGN[algo]("MlpPolicy", env_id, policy_kwargs=kwargs, gamma=0.9, buffer_size=10, seed=3)
    model.save(tmp_path / "model.zip")
    plain = load_model(tmp_path / "model.zip", algo, env_id)
    trusted = load_model(tmp_path / "model.zip", algo, env_id, trust_pickle=True)
    assert plain.gamma == trusted.gamma == 0.9
    results = [diagnose(each, env_id, episodes=2, seed=1) for each in (plain, trusted)]
    for a, b in zip(results[0].estimates, results[1].estimates, strict=True):
        np.testing.assert_array_equal(a, b)


def test_verdicts_in_words():
    rng = np.random.default_rng(0)

    def verdict(factor, noise):
        returns = [100 + noise * rng.normal(size=50) for _ in range(20)]
        return Diagnosis([factor * np.full(50, 100.0) for _ in returns], returns).verdict()

    assert verdict(1.34, 5).startswith("overestimates by 34 % [3")
    assert verdict(0.5, 5).startswith("underestimates by 50 % [")
    assert verdict(1.0, 5).startswith("shows no bias that could be told from zero: ")


class Canary:
    def __reduce__(self):
        return (open, ("canary", "w"))


def saved(content):
    file = io.BytesIO()
    th.save(content, file)
    return file.getvalue()


def hostile(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"data": "{}", "policy.pth": pickle.dumps(Canary())}, "policy.pth holds more than weights"),
        ({"data": "nothing"}, "no model that SB3 saved"),
        ({"policy.pth": b""}, "no model that SB3 saved"),
        ({"data": json.dumps({"a": 1})}, "policy.pth"),
        ({"data": "{}", "policy.pth": saved([])}, "policy.pth holds no weights by name"),
        (
            {"data": "{}", "policy.pth": saved({})},
            "does not fit a sac model on Pendulum-v1: it has no weights of critic",
        ),
        ({"data": '{"gamma": null}', "policy.pth": saved({})}, "its gamma is None, but must be a number"),
    ],
)
def test_hostile_and_damaged_files(files, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hostile(tmp_path / "model.zip", files)
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path / "model.zip", "sac", "Pendulum-v1")
    assert not (tmp_path / "canary").exists()


def test_pickled_objects_beside_the_weights_are_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sb3.SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, learning_rate=1e-3).save(tmp_path / "good.zip")
    with zipfile.ZipFile(tmp_path / "good.zip") as good, zipfile.ZipFile(tmp_path / "bad.zip", "w") as bad:
        for name in good.namelist():
            content = good.read(name)
            if name == "data":
                data = json.loads(content)
                payload = base64.b64encode(pickle.dumps(Canary())).decode()
                data["lr_schedule"] = {":type:": "x", ":serialized:": payload}
                content = json.dumps(data).encode()
            bad.writestr(name, content)
    load_model(tmp_path / "bad.zip", "sac", "Pendulum-v1")
    assert not (tmp_path / "canary").exists()


def test_own_features_extractors_need_trust(tmp_path):
    model = sb3_contrib.TQC("MlpPolicy", "Pendulum-v1", buffer_size=10)
    model.policy.actor.features_extractor.extra = th.nn.Linear(1, 1)
    model.save(tmp_path / "model.zip")
    with pytest.raises(ValueError, match="features extractor is only told in pickled code"):
        load_model(tmp_path / "model.zip", "tqc", "Pendulum-v1")


def test_unknown_algorithm_and_missing_file(tmp_path):
    with pytest.raises(ValueError, match="did you mean sac"):
        load_model(tmp_path / "model.zip", "sacc", "Pendulum-v1")
    with pytest.raises(ValueError, match="No such file"):
        load_model(tmp_path / "model.zip", "sac", "Pendulum-v1")


@pytest.fixture(scope="module")
def zips(tmp_path_factory):
    """A SAC of SB3 and one of this package, which have the same name"""
    folder = tmp_path_factory.mktemp("zips")
    for name in ("sb3", "sac", "td3", "tqc", "acc"):
        make = sb3.SAC if name == "sb3" else find(name).make
        model = make("MlpPolicy", "Pendulum-v1", buffer_size=10, policy_kwargs={"net_arch": [8]})
        model.save(folder / f"{name}.zip")
    return folder


@pytest.mark.parametrize("name", ["sac", "td3", "tqc", "acc"])
def test_models_of_this_package(name, zips):
    model = load_model(zips / f"{name}.zip", name, "Pendulum-v1", trust_pickle=True)
    assert type(model) is find(name).load()
    assert len(diagnose(model, "Pendulum-v1", episodes=2).returns) == 2
    with pytest.raises(ValueError, match="a model of this package can only be read with --trust-pickle"):
        load_model(zips / f"{name}.zip", name, "Pendulum-v1")


@pytest.mark.parametrize(
    ("file", "algo", "env_id", "trust", "message"),
    [
        ("sb3", "td3", "Pendulum-v1", False, "does not fit a td3 model on Pendulum-v1: it has no weights of actor.mu"),
        ("sb3", "dqn", "Pendulum-v1", False, "it has no weights of q_net.q_net"),
        ("sb3", "sac", "CartPole-v1", False, "does not fit a sac model on CartPole-v1: .*action"),
        ("sb3", "sac", "MountainCarContinuous-v0", False, "does not fit a sac model on MountainCarContinuous-v0"),
        ("sb3", "dqn", "Pendulum-v1", True, "does not fit a dqn model on Pendulum-v1"),
        ("sb3", "sac", "CartPole-v1", True, "does not fit a sac model on CartPole-v1: Observation spaces do not match"),
        ("sb3", "acc", "Pendulum-v1", True, "no acc model: it was not saved by this package"),
        ("acc", "ddpg", "Pendulum-v1", True, "a model of this package, which has no ddpg; did you mean acc-ddpg?"),
        ("acc", "td3", "Pendulum-v1", True, "does not fit a td3 model on Pendulum-v1"),
    ],
)
def test_wrong_algorithm_or_env(file, algo, env_id, trust, message, zips):
    with pytest.raises(ValueError, match=message):
        load_model(zips / f"{file}.zip", algo, env_id, trust)
