"""Models of SB3 and sb3-contrib as a start: the same actions and values, and none of their pickles is run."""

import base64
import json
import os
import zipfile

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch as th
from small import DiscretePendulum, ShortPendulum
from stable_baselines3.common.envs import SimpleMultiObsEnv
from stable_baselines3.common.save_util import load_from_zip_file

import acc_rl
from acc_rl.algos.calibrated import Calibrated
from acc_rl.core.errors import AccError

PEERS = {
    "SAC": (sb3.SAC, ["SAC", "ACCSAC"]),
    "TD3": (sb3.TD3, ["TD3", "ACCTD3"]),
    "DDPG": (sb3.DDPG, ["DDPG", "ACCDDPG"]),
    "DQN": (sb3.DQN, ["DQN", "ACCDQN"]),
    "TQC": (sb3_contrib.TQC, ["TQC", "ACC"]),
    "QRDQN": (sb3_contrib.QRDQN, ["QRDQN", "ACCQRDQN"]),
}
DISCRETE = ("DQN", "QRDQN")
ROWS = 64


def saved(path, name, **kwargs):
    """A peer's model in which every net differs from every other"""
    policy_kwargs = {"net_arch": [9, 7], **kwargs.pop("policy_kwargs", {})}
    env = DiscretePendulum() if name in DISCRETE else ShortPendulum()
    model = PEERS[name][0]("MlpPolicy", env, buffer_size=500, seed=0, policy_kwargs=policy_kwargs, **kwargs)
    with th.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(0.1 * th.randn_like(parameter))
        if getattr(model, "log_ent_coef", None) is not None:
            model.log_ent_coef.fill_(-1.5)
    model.num_timesteps = 123
    model.save(path)
    return model


def observations():
    return np.random.default_rng(1).uniform(-1, 1, (ROWS, 3)).astype(np.float32)


def values(model, target=False):
    """Of all nets and atoms, (rows, nets * atoms), or of all actions"""
    obs = th.as_tensor(observations())
    actions = th.as_tensor(np.random.default_rng(2).uniform(-1, 1, (ROWS, 1)).astype(np.float32))
    for name in ("q_net", "quantile_net"):
        if hasattr(model, name):
            return getattr(model, name + "_target" * target)(obs)
    out = (model.critic_target if target else model.critic)(obs, actions)
    if isinstance(out, tuple):
        return th.cat(out, dim=1)
    return (out.transpose(0, 1) if isinstance(model, Calibrated) else out).flatten(1)


def assert_same(ours, theirs):
    obs = observations()
    a, b = (model.predict(obs, deterministic=True)[0] for model in (ours, theirs))
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for target in (False, True):
        with th.no_grad():
            np.testing.assert_allclose(values(ours, target), values(theirs, target), rtol=1e-5, atol=1e-6)


CASES = [(name, own) for name, (_, names) in PEERS.items() for own in names]


@pytest.mark.parametrize(("name", "own"), CASES)
def test_actions_and_values_are_those_of_the_peer(name, own, tmp_path):
    theirs = saved(tmp_path / "peer.zip", name, gamma=0.9, learning_rate=2e-3)
    model = getattr(acc_rl, own).load(tmp_path / "peer")
    assert_same(model, theirs)
    assert type(model).__name__ == own
    assert (model.gamma, model.learning_rate, model.buffer_size, model.num_timesteps) == (0.9, 2e-3, 500, 123)
    if hasattr(model, "log_ent_coef"):
        assert model.log_ent_coef.item() == -1.5
    env = DiscretePendulum() if name in DISCRETE else ShortPendulum()
    model = getattr(acc_rl, own).load(tmp_path / "peer.zip", env=env, learning_starts=10, batch_size=8, train_freq=1)
    assert_same(model, theirs)
    before = values(model).detach().clone()
    model.learn(25)
    assert not th.equal(before, values(model))


@pytest.mark.parametrize(
    ("name", "own", "kwargs"),
    [
        ("TQC", "ACC", {"policy_kwargs": {"n_critics": 3, "n_quantiles": 6, "activation_fn": th.nn.Tanh}}),
        ("TQC", "TQC", {"policy_kwargs": {"net_arch": {"pi": [6], "qf": [5, 8, 4]}}, "ent_coef": 0.03}),
        ("TQC", "TQC", {"top_quantiles_to_drop_per_net": 4}),
        ("SAC", "ACCSAC", {"use_sde": True}),
        ("TD3", "TD3", {"policy_kwargs": {"n_critics": 1}}),
    ],
)
def test_sizes_and_settings(name, own, kwargs, tmp_path):
    theirs = saved(tmp_path / "peer.zip", name, **kwargs)
    model = getattr(acc_rl, own).load(tmp_path / "peer.zip")
    assert_same(model, theirs)
    assert model.dropped_per_net == kwargs.get("top_quantiles_to_drop_per_net", 2) if name == "TQC" else True
    if "ent_coef" in kwargs:
        assert model.ent_coef_tensor.item() == pytest.approx(0.03)


def test_noise_is_drawn_from_the_same_distribution(tmp_path):
    theirs = saved(tmp_path / "peer.zip", "SAC")
    ours = acc_rl.SAC.load(tmp_path / "peer.zip")
    obs = th.as_tensor(observations())
    with th.no_grad():
        mean, log_std, _ = theirs.actor.get_action_dist_params(obs)
        outputs = ours.actor.outputs(obs)
    np.testing.assert_allclose(outputs, th.cat([mean, log_std], dim=1), rtol=1e-5, atol=1e-6)


def rewritten(source, target, change):
    """A copy of a zip with other content of its ``data``"""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, json.dumps(change(json.loads(content))) if name == "data" else content)
    return target


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.makedirs, (str(self.path), 0o777, True)


def test_no_pickle_is_run(tmp_path):
    theirs = saved(tmp_path / "peer.zip", "TQC")
    trap = base64.b64encode(cloudpickle.dumps(Trap(tmp_path / "sprung"))).decode()

    def with_traps(data):
        return {
            k: {**v, ":serialized:": trap} if isinstance(v, dict) and ":serialized:" in v else v
            for k, v in data.items()
        }

    rewritten(tmp_path / "peer.zip", tmp_path / "trap.zip", with_traps)
    assert_same(acc_rl.ACC.load(tmp_path / "trap.zip"), theirs)
    assert not (tmp_path / "sprung").exists()
    load_from_zip_file(tmp_path / "trap.zip")  # as SB3 reads it
    assert (tmp_path / "sprung").exists()  # it is a trap


def test_what_cannot_be_a_start(tmp_path):
    saved(tmp_path / "sac.zip", "SAC")
    with pytest.raises(AccError, match=r"sac\.zip: is a sac model, but ACC starts from models of tqc"):
        acc_rl.ACC.load(tmp_path / "sac.zip")
    with pytest.raises(
        AccError, match=r"sac\.zip: cannot start a SAC: a layer has the shape \(1, 9, 3\), .* \(1, 9, 2\)"
    ):
        acc_rl.SAC.load(tmp_path / "sac.zip", env=gym.make("MountainCarContinuous-v0"))
    with pytest.raises(AccError, match="bias: unknown setting 'rnage'"):
        acc_rl.SAC.load(tmp_path / "sac.zip", bias={"rnage": (0, 1)})

    def untold(data):
        return {**data, "observation_space": {**data["observation_space"], "low": "[-1. ... -8.]"}}

    rewritten(tmp_path / "sac.zip", tmp_path / "untold.zip", untold)
    with pytest.raises(AccError, match="observation space is only told in pickled code"):
        acc_rl.SAC.load(tmp_path / "untold.zip")
    acc_rl.SAC.load(tmp_path / "untold.zip", env=ShortPendulum())


def test_features_extractors_are_refused_and_dictionaries_need_the_env(tmp_path):
    env = SimpleMultiObsEnv(discrete_actions=False, channel_last=False, random_start=False)
    model = sb3.SAC("MultiInputPolicy", env, buffer_size=10, policy_kwargs={"net_arch": [4]})
    model.save(tmp_path / "images.zip")
    with pytest.raises(AccError, match="features extractor is only told in pickled code"):
        acc_rl.SAC.load(tmp_path / "images.zip", env=env)
