"""Verdicts on critics of SB3 and sb3-contrib, and what is refused."""

import base64
import io
import json
import os
import pickle
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch as th

from acc_rl.algos.registry import find
from acc_rl.commands.main import main
from acc_rl.inference.diagnose import Diagnosis, diagnose
from acc_rl.inference.saved import FOREIGN, foreign_class, load_model


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
    model = foreign_class(algo)(
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
    model = foreign_class(algo)("MlpPolicy", env_id, policy_kwargs=kwargs, gamma=0.9, buffer_size=10, seed=3)
    model.save(tmp_path / "model.zip")
    plain = load_model(tmp_path / "model.zip", None, env_id)
    trusted = load_model(tmp_path / "model.zip", None, env_id, trust_pickle=True)
    assert type(plain) is type(trusted) is foreign_class(algo)
    assert plain.gamma == trusted.gamma == 0.9
    results = [diagnose(each, env_id, episodes=2, seed=1) for each in (plain, trusted)]
    for a, b in zip(results[0].estimates, results[1].estimates, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore:.*is ignored because a custom .replay_buffer_class.")  # SB3, of its own file
def test_n_step_returns_are_known_without_the_pickle(tmp_path):
    kwargs = {"n_steps": 3, "ent_coef": 3.0, "policy_kwargs": {"net_arch": [8]}}
    sb3.SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, seed=0, **kwargs).save(tmp_path / "model.zip")
    found = []
    for trust in (False, True):
        model = load_model(tmp_path / "model.zip", None, "Pendulum-v1", trust)
        found.append(np.concatenate(diagnose(model, "Pendulum-v1", episodes=2).returns))
    np.testing.assert_array_equal(*found)


def test_verdicts_in_words():
    rng = np.random.default_rng(0)

    def verdict(factor, noise):
        returns = [100 + noise * rng.normal(size=50) for _ in range(20)]
        return Diagnosis([factor * np.full(50, 100.0) for _ in returns], returns).verdict()

    assert verdict(1.34, 5).startswith("overestimates by 34 % [3")
    assert verdict(0.5, 5).startswith("underestimates by 50 % [")
    assert verdict(1.0, 5).startswith("shows no bias that differs from zero: ")


def test_no_verdict_without_numbers():
    good = np.ones(50)
    for estimates, returns in ((good * np.nan, good), (good, good * np.inf), (good, good * 0)):
        with pytest.raises(ValueError, match="NaN or infinite, or returns are 0"):
            Diagnosis([estimates] * 3, [returns] * 3).verdict()


# --- which algorithm it is ---


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A model of each algorithm, and those that are nearest to another one"""
    folder = tmp_path_factory.mktemp("foreign")

    def save(name, algo, policy_kwargs=None, **settings):
        env_id = "CartPole-v1" if algo in ("dqn", "qrdqn") else "Pendulum-v1"
        policy_kwargs = {"net_arch": [8], **(policy_kwargs or {})}
        model = foreign_class(algo)("MlpPolicy", env_id, buffer_size=10, policy_kwargs=policy_kwargs, **settings)
        model.save(folder / f"{name}.zip")

    for algo in FOREIGN:
        save(algo, algo)
    save("tqc of one quantile", "tqc", {"n_quantiles": 1}, top_quantiles_to_drop_per_net=0)
    save("td3 of one critic", "td3", {"n_critics": 1})
    save("ddpg of two critics", "ddpg", {"n_critics": 2})
    save("td3 as ddpg", "td3", {"n_critics": 1}, policy_delay=1, target_noise_clip=0.0)
    return folder


TOLD = {
    **{algo: {algo} for algo in FOREIGN},
    "ddpg": {"ddpg", "td3"},  # SB3's DDPG is its TD3 with other settings
    "tqc of one quantile": {"tqc"},
    "td3 of one critic": {"td3"},
    "ddpg of two critics": {"ddpg", "td3"},
    "td3 as ddpg": {"ddpg", "td3"},
}


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("name", TOLD)
def test_the_file_tells_the_algorithm(name, trust, foreign):
    path = foreign / f"{name}.zip"
    env_id = "CartPole-v1" if TOLD[name] & {"dqn", "qrdqn"} else "Pendulum-v1"
    assert type(load_model(path, None, env_id, trust)) in {foreign_class(algo) for algo in TOLD[name]}
    for algo in FOREIGN:
        if algo in TOLD[name]:
            assert type(load_model(path, algo, env_id, trust)) is foreign_class(algo)
            continue
        with pytest.raises(ValueError, match=rf"is a .*{min(TOLD[name])}.* model, but --algo is {algo}"):
            load_model(path, algo, env_id, trust)


def test_the_command_refuses_another_algorithm_and_leaves_the_plot(foreign, tmp_path, capsys):
    plot = tmp_path / "plot.png"
    plot.write_text("the one before")
    words = ["diagnose", str(foreign / "sac.zip"), "--env", "Pendulum-v1", "--plot", str(plot), "--episodes", "2"]
    assert main([*words, "--algo", "tqc"]) == 2
    told = capsys.readouterr().err
    assert "is a sac model, but --algo is tqc" in told
    assert told.count("\n") == 1
    assert plot.read_text() == "the one before"
    assert main(words) == 0
    assert "(SAC, 400 pairs" in capsys.readouterr().out


# --- sizes are those of the weights ---


def rewritten(path, change, target):
    """The model with other weights"""
    with zipfile.ZipFile(path) as good, zipfile.ZipFile(target, "w") as bad:
        for name in good.namelist():
            content = good.read(name)
            if name == "policy.pth":
                weights = th.load(io.BytesIO(content), weights_only=True)
                change(weights)
                content = saved(weights)
            bad.writestr(name, content)
    return target


def huge(*shape):
    """One number in the file, as many as one likes by its strides"""
    return th.zeros(1).expand(*shape)


def many_critics(weights):
    weights.update({f"critic.qf{i}.0.weight": th.zeros(1, 1) for i in range(2, 500)})


LYING = {
    "stride 0": (lambda w: w.update({"critic.qf0.0.weight": huge(10**9, 4)}), "tensors say they have"),
    "layers that do not meet": (
        lambda w: w.update({"critic.qf0.0.weight": th.zeros(10**5, 1), "critic.qf0.2.weight": th.zeros(10**5, 1)}),
        "layers of critic.qf0 do not fit each other",
    ),
    "more critics by name": (many_critics, "critics differ in their layers"),
    "NaN": (lambda w: w["critic.qf0.0.weight"].fill_(np.nan), "critic.qf0.0.weight is NaN or infinite"),
    "three dimensions": (lambda w: w.update({"actor.latent_pi.0.weight": th.zeros(8, 3, 1)}), "do not fit each other"),
}


@pytest.mark.parametrize("name", LYING)
def test_weights_that_lie_are_refused_before_a_model_is_made(name, foreign, tmp_path, monkeypatch):
    change, message = LYING[name]
    path = rewritten(foreign / "sac.zip", change, tmp_path / "bad.zip")
    monkeypatch.setitem(FOREIGN, "sac", None)  # nothing is built
    with pytest.raises(ValueError, match=message):
        load_model(path, "sac", "Pendulum-v1")


@pytest.mark.parametrize("name", ["ent_coef_tensor", "log_ent_coef"])
@pytest.mark.parametrize("value", [th.tensor([np.nan]), th.zeros(2)])
def test_a_temperature_that_is_none(name, value, foreign, tmp_path):
    with zipfile.ZipFile(foreign / "sac.zip") as good, zipfile.ZipFile(tmp_path / "bad.zip", "w") as bad:
        for each in good.namelist():
            bad.writestr(each, saved({name: value}) if each == "pytorch_variables.pth" else good.read(each))
    with pytest.raises(ValueError, match="does not fit a sac model"):
        load_model(tmp_path / "bad.zip", None, "Pendulum-v1")


def test_a_damaged_zip_is_one_line(foreign, tmp_path):
    content = bytearray((foreign / "sac.zip").read_bytes())
    content[content.index(b"critic.qf0") + 5] ^= 1
    (tmp_path / "bad.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"policy\.pth cannot be read: Bad CRC-32"):
        load_model(tmp_path / "bad.zip", "sac", "Pendulum-v1")


def test_a_model_is_a_plain_file(tmp_path):
    os.mkfifo(tmp_path / "model.zip")
    with pytest.raises(ValueError, match=r"model\.zip: is no plain file"):
        load_model(tmp_path / "model.zip", None, "Pendulum-v1")


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


def deflated(content):
    """The same zip, compressed"""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as plain, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as small:
        for name in plain.namelist():
            small.writestr(name, plain.read(name))
    return file.getvalue()


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
        ({"data": '{"gamma": NaN}', "policy.pth": saved({})}, "its gamma is nan, but must be a number"),
        ({"data": '{"gamma": 1.5}', "policy.pth": saved({})}, "its gamma is 1.5, but must be a number"),
        ({"data": '{"a":' * 10**5, "policy.pth": saved({})}, "no model that SB3 saved"),
        ({"data": "{}", "policy.pth": saved({"a": 1.0})}, "policy.pth holds no weights by name"),
        ({"data": "{}", "policy.pth": deflated(saved({"a": th.zeros(10**6)}))}, "policy.pth .* says it holds"),
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
    with pytest.raises(ValueError, match=r"features extractor.*--trust-pickle"):
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
        ("sb3", "td3", "Pendulum-v1", False, "is a sac model, but --algo is td3"),
        ("sb3", "dqn", "Pendulum-v1", False, "is a sac model, but --algo is dqn"),
        ("sb3", "sac", "CartPole-v1", False, "does not fit a sac model on CartPole-v1: .*action"),
        ("sb3", "sac", "MountainCarContinuous-v0", False, "does not fit a sac model on MountainCarContinuous-v0"),
        ("sb3", "dqn", "Pendulum-v1", True, "is a sac model, but --algo is dqn"),
        ("sb3", "sac", "CartPole-v1", True, "does not fit a sac model on CartPole-v1: Observation spaces do not match"),
        ("sb3", "acc", "Pendulum-v1", True, "no acc model: it was not saved by this package"),
        ("acc", "ddpg", "Pendulum-v1", True, "does not fit a ddpg model on Pendulum-v1"),
        ("acc", "td3", "Pendulum-v1", True, "does not fit a td3 model on Pendulum-v1"),
        ("acc", "sac", "Pendulum-v1", True, "does not fit a sac model on Pendulum-v1"),
        ("acc", None, "Pendulum-v1", True, "does not tell, for instance, acc from tqc: use --algo"),
        ("acc", None, "Pendulum-v1", False, "can only be read with --trust-pickle"),
    ],
)
def test_wrong_algorithm_or_env(file, algo, env_id, trust, message, zips):
    with pytest.raises(ValueError, match=message):
        load_model(zips / f"{file}.zip", algo, env_id, trust)
