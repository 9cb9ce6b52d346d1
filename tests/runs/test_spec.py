import pytest

from acc_rl.core.errors import SettingError
from acc_rl.core.settings import BiasSettings
from acc_rl.runs.folder import run_folder
from acc_rl.runs.spec import RunSpec, Settings, algorithm_arguments, from_dict
from acc_rl.store.records import json_like


def test_whole_numbers_are_numbers():
    assert from_dict({"env": "Hopper", "settings": {"gamma": 1}, "bias": {"range": [0, 5]}}).settings.gamma == 1


def test_whole_numbers_may_be_written_as_floats():
    content = {"steps": 1e5, "eval_every": 1e3, "settings": {"buffer_size": 1e5, "qf": [64.0]}}
    spec = from_dict({"env": "Hopper", **content, "bias": {"start_step": 1e4}})
    assert (spec.steps, spec.eval_every, spec.settings.buffer_size) == (100_000, 1000, 100_000)
    assert all(isinstance(each, int) for each in (spec.steps, spec.settings.buffer_size, *spec.settings.qf))
    with pytest.raises(ValueError, match="steps is inf, but must be an integer"):
        from_dict({"env": "Hopper", "steps": float("inf")})


def test_round_trip_through_json():
    spec = RunSpec("Hopper", algo="acc-n2", settings=Settings(pi=(64, 64), gamma=0.9))
    assert from_dict(json_like(spec.as_dict())) == spec
    assert spec.env == "Hopper-v5"


def test_id_is_stable_and_depends_on_every_setting():
    assert RunSpec("Hopper").id == RunSpec("Hopper-v5").id == "bc927596"
    others = {RunSpec("Hopper", seed=1).id, RunSpec("Hopper", settings=Settings(gamma=0.9)).id, RunSpec("Ant").id}
    assert len(others | {RunSpec("Hopper").id}) == 4


SIZES = dict.fromkeys(("pi", "qf"), (256,) * 10)
LONG = RunSpec("HalfCheetah", "acc-x", settings=Settings(**SIZES, buffer_size=1_000_000, learning_starts=10_000))


def test_names_explain_themselves():
    assert RunSpec("Hopper", seed=3).name == "Hopper-v5_acc_seed3"
    assert RunSpec("Hopper", settings=Settings(critic_updates=4)).name == "Hopper-v5_acc_critic_updates=4_seed0"
    eight = Settings(pi=(64, 64), qf=(64, 64), gamma=0.9, tau=0.1, batch_size=7, buffer_size=100_000, n_critics=2)
    told = "batch_size=7_buffer_size=100000_gamma=0.9_tau=0.1_n_critics=2_pi=64x64_qf=64x64_bias.lr=0.2"
    assert RunSpec("Hopper", settings=eight, bias={"lr": 0.2}).name == f"Hopper-v5_acc_{told}_seed0"
    assert len(RunSpec("Hopper", settings=eight, bias={"lr": 0.2, "start": 1.0}).name) < 40
    assert len(LONG.name) == len("HalfCheetah-v5_acc-x_12345678_seed0")
    few = {"settings": {"gamma": 0.9}, "bias": {"tail": "drop:100"}}
    assert RunSpec("Hopper", **few).name == "Hopper-v5_acc_gamma=0.9_bias.tail=drop:100_seed0"
    changed = RunSpec("Hopper", env_kwargs={"path": "a/b c"}, wrapper=("a.b:Thing",), time_limit=9, normalize=True)
    assert changed.name == "Hopper-v5_acc_env.path=a-b-c_wrapper=Thing_time_limit=9_normalize_seed0"


def test_a_folder_with_a_name_of_before_is_found(tmp_path):
    settings = {"pi": (64, 64), "buffer_size": 100_000, "learning_rate": 1e-3, "gamma": 0.9, "tau": 0.01}
    spec = RunSpec("Hopper", settings=settings)
    assert spec.name != spec.old_names[0] == "Hopper-v5_acc_c7ca4b6f_seed0"
    (tmp_path / spec.old_names[0]).mkdir()
    assert run_folder(tmp_path, spec) == tmp_path / spec.name
    assert [each.name for each in tmp_path.iterdir()] == [spec.name]
    sizes = "x".join(["256"] * 10)
    (tmp_path / f"HalfCheetah-v5_acc-x_buffer_size=1000000_learning_starts=10000_pi={sizes}_qf={sizes}_seed0").mkdir()
    assert run_folder(tmp_path, LONG).is_dir()
    run_folder(tmp_path, LONG).rmdir()
    (tmp_path / spec.old_names[0]).mkdir()  # today's comes first
    assert run_folder(tmp_path, spec) == tmp_path / spec.name
    assert len(list(tmp_path.iterdir())) == 2


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
        ({"env": "Hopper", "algo": "acc-td4"}, "unknown algorithm 'acc-td4'; did you mean acc-td3?"),
        ({"env": "Hopper", "steps": -5}, "steps is -5, but must be an integer >= 1"),
        ({"env": "Hopper", "seed": 0.5}, "seed is 0.5, but must be an integer"),
        ({"env": 5}, "env is 5, but must be a text"),
        ({"env": "Hopper", "value_error": "no"}, "value_error is 'no', but must be true or false"),
        (
            {"env": "Hopper", "settings": {"batch_size": "many"}},
            r"settings\.batch_size is 'many', but must be an integer",
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


NAN, INF = float("nan"), float("inf")
OUTSIDE = {
    "learning_rate": (0, -1.0, INF, NAN),
    "batch_size": (0,),
    "buffer_size": (0, -5),
    "learning_starts": (-5,),
    "gamma": (2.0, -1.0, NAN),
    "tau": (7.0, -1.0, NAN),
    "train_freq": (0,),
    "gradient_steps": (0, -7),
    "critic_updates": (0,),
    "n_critics": (0,),
    "n_atoms": (0,),
    "dropped_per_net": (-1.0, NAN),
    "n_steps": (-2,),
    "ent_coef": ("-1", "nan", "inf", "abc", "autofoo", "auto_-1", "auto_0"),
    "target_entropy": (NAN,),
    "target_update_interval": (0,),
    "sde_sample_freq": (0, -2),
    "policy_delay": (0,),
    "target_policy_noise": (-1.0,),
    "target_noise_clip": (-1.0,),
    "exploration_noise": (-1.0, INF),
    "exploration_fraction": (5.0, 0.0),
    "exploration_initial_eps": (7.0,),
    "exploration_final_eps": (-0.1,),
    "max_grad_norm": (-1.0,),
    "pi": ((0,), (-3,)),
    "qf": ((16, 0),),
    "activation": ("gelu",),
    "nets": ("bro", len),
    "controller": ("bandit", object()),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in OUTSIDE for value in OUTSIDE[name]])
def test_ranges_of_settings(name, value):
    with pytest.raises(ValueError, match=f"^{name} is .*, but must be "):
        Settings(**{name: value})


def test_the_ends_of_ranges_are_allowed():
    Settings(
        gamma=0, tau=1, learning_starts=0, gradient_steps=-1, sde_sample_freq=-1, exploration_noise=0, pi=(), qf=(1,)
    )
    for ent_coef in ("auto", "auto_0.1", "0", "0.2", "1e-3"):
        Settings(ent_coef=ent_coef)


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        ({"tail": "drop:x"}, "bias.tail is 'drop:x', but must be 'none', 'bootstrap'"),
        ({"tail": "drop:0"}, "bias.tail is .*0.*, but must be"),
        ({"lr": -1.0}, "bias.lr is -1.0, but must be a positive number"),
        ({"range": (5.0, 0.0)}, "bias.range is"),
        ({"range": (0.0, 1.0), "start": 2.0}, "bias.start is 2.0, but must be a number in"),
    ],
)
def test_ranges_of_the_bias_rule(bias, message):
    with pytest.raises(ValueError, match=message):
        BiasSettings(**bias)
    BiasSettings(range=(-10.0, -5.0))
    BiasSettings(start=50.0)  # acc-qrdqn's range reaches further than acc's


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"threads": 10**11}, "threads is 100000000000, but must be an integer >= 0 and <= 1024"),
        ({"seed": 2**32}, "seed is 4294967296, but must be"),
        ({"device": "foo"}, "device is 'foo', but must be auto, cpu, cuda or cuda:N"),
    ],
)
def test_ranges_of_runs(content, message):
    with pytest.raises(ValueError, match=message):
        RunSpec("Hopper", **content)


@pytest.mark.parametrize(
    ("algo", "content", "message"),
    [
        ("sac", {"bias": {"lr": 0.2}}, "bias.lr is 0.2, but sac does not adapt its beta"),
        ("td3-2q", {"bias": {"range": [0, 1]}}, "bias.range is .*, but td3-2q does not adapt its beta"),
        ("tqc-d2", {"bias": {"start": 1.0}}, "bias.start is 1.0, but tqc-d2 does not adapt its beta"),
        ("x-min", {"bias": {"target_bias": -0.5}}, "bias.target_bias is -0.5, but x-min does not adapt its beta"),
        ("x-min", {"bias": {"rule": "paper"}}, "bias.rule is 'paper', but x-min does not adapt its beta"),
        ("x-gpl", {"bias": {"lr": 0.5}}, "bias.lr is 0.5, but the controller 'gpl' does not read it: .* 'acc'"),
        ("x-top", {"bias": {"start": 0.3}}, "bias.start is 0.3, but the controller 'top' does not read it"),
        ("acc", {"settings": {"controller": "fixed"}, "bias": {"lr": 1}}, "bias.lr is 1, but the controller 'fixed'"),
        ("acc-x", {"bias": {"moving_average": 0.9}}, "bias.moving_average is 0.9, but bias.rule is 'confident'"),
        ("acc", {"bias": {"rule": "confident", "moving_average": 0.9}}, "bias.moving_average is 0.9, but bias.rule"),
        ("acc", {"bias": {"evidence": "episodes", "evidence_steps": 7}}, "bias.evidence_steps is 7, but"),
        ("acc", {"settings": {"sde_sample_freq": 4}}, "sde_sample_freq is 4, but does nothing without use_sde"),
        ("acc", {"settings": {"use_sde_at_warmup": True}}, "use_sde_at_warmup is True, but does nothing"),
        ("sac", {"settings": {"target_entropy": -1.0, "ent_coef": "0.2"}}, "target_entropy is -1.0, but ent_coef is"),
    ],
)
def test_what_would_do_nothing_is_refused(algo, content, message):
    with pytest.raises(ValueError, match=message):
        algorithm_arguments(from_dict({"env": "Hopper", "algo": algo, **content}))


def test_what_does_something_is_not_refused():
    algorithm_arguments(from_dict({"env": "Hopper", "algo": "tqc", "bias": {"pairs_kept": 9}}))
    algorithm_arguments(from_dict({"env": "Hopper", "algo": "acc-x", "bias": {"rule": "paper", "moving_average": 1}}))
    algorithm_arguments(from_dict({"env": "Hopper", "bias": {"evidence_steps": 9}}))  # for tasks without an end
    fixed = {"settings": {"controller": "fixed"}, "bias": {"start": 1.0}}
    algorithm_arguments(from_dict({"env": "Hopper", "algo": "acc", **fixed}))
    settings = {"use_sde": True, "sde_sample_freq": 4, "target_entropy": -1, "ent_coef": "auto_0.1"}
    assert algorithm_arguments(from_dict({"env": "Hopper", "settings": settings}))["sde_sample_freq"] == 4


def test_settings_from_mappings():
    spec = RunSpec("Hopper", settings={"batch_size": 64, "qf": [8, 8]}, bias={"lr": 0.2})
    assert spec == RunSpec("Hopper", settings=Settings(batch_size=64, qf=(8, 8)), bias=BiasSettings(lr=0.2))
    with pytest.raises(SettingError, match=r"unknown setting settings\.batchsize"):
        RunSpec("Hopper", settings={"batchsize": 64})
    with pytest.raises(SettingError, match="settings is 3"):
        RunSpec("Hopper", settings=3)


@pytest.mark.parametrize("name", ["steps", "eval_every", "log_every", "n_envs", "eval_episodes"])
def test_numbers_too_large_to_be_meant(name):
    with pytest.raises(SettingError, match=f"{name} is {10**30}, but must be an integer"):
        RunSpec("Hopper", **{name: 10**30})
