"""What ``help`` and completion show, and the names of SB3's users."""

import inspect
from functools import partial

import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch as th
from small import DiscretePendulum, ShortPendulum, make

import acc_rl
from acc_rl.algos.arguments import ARGUMENTS
from acc_rl.algos.registry import find
from acc_rl.core.errors import SettingError
from acc_rl.runs.model import make_model
from acc_rl.runs.spec import RunSpec

DISCRETE = ("DQN", "ACCDQN", "QRDQN", "ACCQRDQN")
CLASSES = ("ACC", "TQC", "ACCX", "XMin", "XMean", "SAC", "ACCSAC", "TD3", "ACCTD3", "DDPG", "ACCDDPG", *DISCRETE)
SMALL = {"buffer_size": 10, "device": "cpu"}


def env_of(name):
    return DiscretePendulum() if name in DISCRETE else ShortPendulum()


@pytest.mark.parametrize("name", CLASSES)
def test_every_argument_has_its_default_and_a_line(name):
    cls = getattr(acc_rl, name)
    parameters = inspect.signature(cls).parameters
    assert {"policy", "env", "buffer_size", "gamma", "bias", "controller", "policy_kwargs"} <= set(parameters)
    for each in parameters.values():
        assert each.kind is not each.VAR_KEYWORD
        default = "" if each.default is each.empty else f" ({each.default!r})"
        assert f"\n    {each.name}{default}: {ARGUMENTS[each.name]}\n" in cls.__doc__


@pytest.mark.parametrize("name", CLASSES)
def test_the_defaults_are_those_in_effect(name):
    cls = getattr(acc_rl, name)
    shown = {
        key: each.default for key, each in inspect.signature(cls).parameters.items() if key not in ("policy", "env")
    }
    plain = cls("MlpPolicy", env_of(name), **SMALL)
    given = cls("MlpPolicy", env_of(name), **{**shown, **SMALL})
    assert vars(plain.bias) == vars(given.bias)
    assert plain.policy_kwargs == given.policy_kwargs
    assert type(plain.calibration.controller) is type(given.calibration.controller)
    for key, default in shown.items():
        if isinstance(default, (int, float)) and hasattr(plain, key) and key not in SMALL:
            assert getattr(plain, key) == getattr(given, key), key
            if key != "train_freq":  # becomes a pair
                assert getattr(plain, key) == default, key


def test_what_is_not_an_argument_is_refused():
    with pytest.raises(TypeError, match="learning_raet"):
        acc_rl.ACC("MlpPolicy", ShortPendulum(), learning_raet=1e-3)


def test_a_class_of_ones_own_shows_its_own_argument():
    class Mine(acc_rl.ACC):
        """Mine."""

        def __init__(self, policy, env, learning_rate=1e-2, *, curiosity=0.5, **kwargs):
            super().__init__(policy, env, learning_rate, **kwargs)

    parameters = inspect.signature(Mine).parameters
    assert (parameters["curiosity"].default, parameters["learning_rate"].default) == (0.5, 1e-2)
    assert parameters["n_critics"].default == 5


def test_public_names_are_listed():
    assert dir(acc_rl) == sorted([*acc_rl.__all__, "__version__"])
    assert all(hasattr(acc_rl, name) for name in dir(acc_rl))


@pytest.mark.parametrize("name", ["SAC", "TD3", "DDPG", "TQC"])
def test_defaults_that_differ_from_the_peers(name):
    """as docs/from_sb3.md lists them; all others are the same"""
    peer = getattr(sb3_contrib if name == "TQC" else sb3, name)
    ours, theirs = (inspect.signature(cls).parameters for cls in (getattr(acc_rl, name), peer))
    shared = [key for key in theirs if key in ours and key not in ("policy", "env")]
    differ = {key for key in shared if ours[key].default != theirs[key].default}
    assert differ - {"top_quantiles_to_drop_per_net"} == {"learning_starts"} | (
        {"batch_size"} if name in ("TD3", "DDPG") else set()
    )
    assert set(theirs) - set(ours) == {"_init_setup_model"}
    assert (ours["learning_starts"].default, theirs["learning_starts"].default) == (5000, 100)


# --- names of sb3-contrib ---


def test_n_quantiles_is_n_atoms():
    model = acc_rl.ACC("MlpPolicy", ShortPendulum(), policy_kwargs={"n_quantiles": 7, "n_critics": 3}, **SMALL)
    assert (model.head.n_outputs, model.critic.ensemble.n_nets) == (7, 3)
    with pytest.raises(SettingError, match="n_quantiles is 7, but n_atoms, which is the same, 8"):
        acc_rl.ACC("MlpPolicy", ShortPendulum(), policy_kwargs={"n_atoms": 8, "n_quantiles": 7}, **SMALL)
    with pytest.raises(SettingError, match="n_atoms is 8, but policy_kwargs has 7"):
        acc_rl.ACC("MlpPolicy", ShortPendulum(), n_atoms=8, policy_kwargs={"n_quantiles": 7}, **SMALL)


def test_top_quantiles_to_drop_per_net_is_dropped_per_net(tmp_path):
    model = acc_rl.TQC("MlpPolicy", ShortPendulum(), top_quantiles_to_drop_per_net=3, **SMALL)
    assert model.dropped_per_net == dict(model.bias_metrics())["dropped_per_net"] == 3
    with pytest.raises(SettingError, match="top_quantiles_to_drop_per_net is 3, but dropped_per_net"):
        acc_rl.TQC("MlpPolicy", ShortPendulum(), dropped_per_net=2, top_quantiles_to_drop_per_net=3, **SMALL)
    model.save(tmp_path / "model")
    assert acc_rl.TQC.load(tmp_path / "model", top_quantiles_to_drop_per_net=1).dropped_per_net == 1
    assert acc_rl.TQC.load(tmp_path / "model").dropped_per_net == 3


def test_acc_starts_from_it(tmp_path):
    model = make("acc", ShortPendulum(), top_quantiles_to_drop_per_net=1)
    assert (model.dropped_per_net, model.beta) == (1, 4)
    model.save(tmp_path / "model")
    assert acc_rl.ACC.load(tmp_path / "model").dropped_per_net == 1
    assert make("acc", ShortPendulum()).dropped_per_net == 2.5
    with pytest.raises(SettingError, match=r"top_quantiles_to_drop_per_net is 6, .*\[0, 5\]"):
        make("acc", ShortPendulum(), top_quantiles_to_drop_per_net=6)


# --- loading with the arguments that the model was made with ---


@pytest.mark.parametrize("name", ["acc", "sac", "td3", "acc-dqn"])
def test_load_with_the_policy_kwargs_it_was_made_with(name, tmp_path):
    env = env_of("DQN") if name == "acc-dqn" else ShortPendulum()
    model = make(name, env, policy_kwargs={"net_arch": [8]})
    model.save(tmp_path / "model")
    load = type(model).load
    for given in ({"net_arch": [8]}, dict(model.policy_kwargs)):
        assert load(tmp_path / "model", policy_kwargs=given).policy_kwargs == model.policy_kwargs
    for wrong in ({"net_arch": [9]}, {}, {"net_arch": [8], "n_critics": 9}, {"net_arch": [8], "share": True}):
        with pytest.raises(ValueError, match="policy_kwargs are"):
            load(tmp_path / "model", policy_kwargs=wrong)


def test_hidden_sizes_of_one_part_leave_the_other_as_the_algorithm_has_it():
    for kwargs in ({"policy_kwargs": {"net_arch": {"pi": [8]}}}, {"policy_kwargs": {"net_arch": {"qf": [9]}}}):
        model = find("acc-compact").make("MlpPolicy", "Pendulum-v1", buffer_size=10, **kwargs)
        assert model.policy.net_arch == {"pi": [256, 256], "qf": [256, 256], **kwargs["policy_kwargs"]["net_arch"]}
    model = make_model(RunSpec("Pendulum-v1", "acc-compact", settings={"pi": (8,), "buffer_size": 10}))
    assert model.policy.net_arch == {"pi": [8], "qf": [256, 256]}


@pytest.mark.parametrize("d", [0, 4.5])
def test_a_fixed_d_is_the_one_that_is_given(d):
    model = find("acc").make(
        "MlpPolicy", "Pendulum-v1", buffer_size=10, controller="fixed", top_quantiles_to_drop_per_net=d
    )
    assert model.dropped_per_net == d


def test_a_subclass_may_order_its_arguments_otherwise():
    class Mine(acc_rl.ACC):
        def __init__(self, env, policy="MlpPolicy", **kwargs):
            super().__init__(policy, env, **kwargs)

    assert list(inspect.signature(Mine).parameters)[:2] == ["env", "policy"]
    assert Mine("Pendulum-v1", **SMALL).learning_rate == 3e-4


@pytest.mark.parametrize("kwargs", [{"foreach": True}, {"differentiable": True}])
def test_arguments_of_adam_that_exclude_fused(kwargs):
    model = make("sac", "Pendulum-v1", policy_kwargs={"optimizer_kwargs": kwargs})
    assert not model.critic.optimizer.param_groups[0]["fused"]


def test_an_optimizer_may_be_any_callable():
    model = make("sac", "Pendulum-v1", policy_kwargs={"optimizer_class": partial(th.optim.Adam, eps=1e-5)})
    assert model.critic.optimizer.param_groups[0]["eps"] == 1e-5


def test_d_is_the_one_in_effect(tmp_path):
    model = make("tqc", "Pendulum-v1", bias={"start": 0.0})
    assert model.dropped_per_net == 5
    model.save(tmp_path / "model")
    assert acc_rl.TQC.load(tmp_path / "model", bias={"start": 1.5}).dropped_per_net == 3.5


@pytest.mark.parametrize("given", [0.3, "auto"])
def test_another_temperature_than_the_saved_one_is_refused(given, tmp_path):
    make("sac", "Pendulum-v1", ent_coef=given).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"ent_coef is 0\.1, but the model was made with"):
        acc_rl.SAC.load(tmp_path / "model", ent_coef=0.1)
    assert acc_rl.SAC.load(tmp_path / "model", ent_coef=given).ent_coef == given
