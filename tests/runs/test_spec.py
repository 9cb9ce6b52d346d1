import pytest

from acc_rl.runs.records import json_like
from acc_rl.runs.spec import RunSpec, Settings, from_dict


def test_whole_numbers_are_numbers():
    assert from_dict({"env": "Hopper", "settings": {"gamma": 1}, "bias": {"range": [0, 5]}}).settings.gamma == 1


def test_round_trip_through_json():
    spec = RunSpec("Hopper", algo="acc-n2", settings=Settings(pi=(64, 64), gamma=0.9))
    assert from_dict(json_like(spec.as_dict())) == spec
    assert spec.env == "Hopper-v5"


def test_id_is_stable_and_depends_on_every_setting():
    assert RunSpec("Hopper").id == RunSpec("Hopper-v5").id == "bc927596"
    others = {RunSpec("Hopper", seed=1).id, RunSpec("Hopper", settings=Settings(gamma=0.9)).id, RunSpec("Ant").id}
    assert len(others | {RunSpec("Hopper").id}) == 4


def test_names_explain_themselves():
    assert RunSpec("Hopper", seed=3).name == "Hopper-v5_acc_seed3"
    assert RunSpec("Hopper", settings=Settings(critic_updates=4)).name == "Hopper-v5_acc_critic_updates=4_seed0"
    many = Settings(pi=(64, 64), qf=(64, 64), gamma=0.9, tau=0.1, batch_size=7, buffer_size=100_000)
    assert len(RunSpec("Hopper", settings=many).name) < 40


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"env": "Hopper", "step": 5}, "unknown setting step; did you mean steps?"),
        (
            {"env": "Hopper", "settings": {"gama": 0.9}},
            r"unknown setting settings\.gama; did you mean settings\.gamma\?",
        ),
        ({"env": "Hopper", "bias": {"zzz": 0.9}}, r"unknown setting bias\.zzz; known are start, range"),
        ({"env": "Hopper", "bias": 3}, "bias is 3, but must be a table of settings"),
        ({"algo": "acc"}, "env is missing"),
        ({"env": "Hopper", "algo": "acc-td4"}, "unknown algorithm 'acc-td4'; did you mean 'acc-td3'?"),
        ({"env": "Hopper", "steps": -5}, "steps is -5, but must be a whole number >= 1"),
        ({"env": "Hopper", "seed": 0.5}, "seed is 0.5, but must be a whole number"),
        ({"env": 5}, "env is 5, but must be a text"),
        ({"env": "Hopper", "value_error": "no"}, "value_error is 'no', but must be true or false"),
        (
            {"env": "Hopper", "settings": {"batch_size": "many"}},
            r"settings\.batch_size is 'many', but must be a whole n",
        ),
        ({"env": "Hopper", "settings": {"gamma": True}}, r"settings\.gamma is True, but must be a number"),
        (
            {"env": "Hopper", "settings": {"pi": [64, 0.5]}},
            r"settings\.pi is \(64, 0\.5\), but must be a list of numbers",
        ),
        ({"env": "Hopper", "settings": {"activation": "gelu"}}, "'relu' or 'tanh' or 'elu' or 'silu'"),
        ({"env": "Hopper", "bias": {"range": [1.0]}}, r"bias\.range is \(1\.0,\)"),
    ],
)
def test_mistakes_are_named(content, message):
    with pytest.raises(ValueError, match=message):
        from_dict(content)
