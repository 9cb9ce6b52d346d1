"""What a user may get wrong ends with exit code 2 and one line that names it, before anything is written."""

import gymnasium as gym
import numpy as np
import pytest
from rich.console import Console

from acc_rl.algos.registry import REGISTRY
from acc_rl.commands.main import main
from acc_rl.commands.train import parse_train, with_defaults
from acc_rl.core.errors import AccError
from acc_rl.runs import envs
from acc_rl.runs.evaluation import evaluate_task
from acc_rl.runs.model import accepted, default_settings
from acc_rl.runs.progress import print_line
from acc_rl.runs.spec import Settings


class Odd(gym.Env):
    """Anything as observations and actions"""

    def __init__(self, observations, actions):
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}


BOX = gym.spaces.Box(-1, 1, (1,))
ODD = {
    "Tuple": (gym.spaces.Tuple([BOX, BOX]), BOX),
    "Bits": (gym.spaces.MultiBinary(3), BOX),
    "Nested": (gym.spaces.Dict({"a": gym.spaces.Dict({"b": BOX})}), BOX),
    "Empty": (gym.spaces.Dict({}), BOX),
    "Unbounded": (BOX, gym.spaces.Box(-np.inf, np.inf, (1,))),
}
for name, (observations, actions) in ODD.items():
    kwargs = {"observations": observations, "actions": actions}
    gym.register(f"Odd{name}-v0", Odd, max_episode_steps=9, disable_env_checker=True, kwargs=kwargs)


class Failing(Odd):
    """Fails, at a step or when it is made; ``alive`` envs are made before those that fail."""

    def __init__(self, what, size=None, alive=0):
        super().__init__(BOX, BOX)
        self.what, self.t = what, 0
        MADE[what] = MADE.get(what, 0) + 1
        self.fails = MADE[what] > alive
        if what == "constructor":
            raise RuntimeError("no\nlicence")

    def step(self, action):
        self.t += 1
        if self.fails and self.what in ("first", "later") and self.t == (1 if self.what == "first" else 150):
            raise ZeroDivisionError("division by zero")
        reward = np.ones(2) if self.what == "reward" else 1.0
        return BOX.sample(), reward, self.what == "later" and self.t % 9 == 0, False, {}


class NeedsSize(Failing):
    def __init__(self, size):
        super().__init__("nothing")


MADE = {}
FAILING = {"needs": NeedsSize, "class": "gymnasium:NoSuchClass"}
for name in ("constructor", "needs", "class", "first", "reward", "evaluation", "later"):
    kwargs = {} if name in FAILING else {"what": "first" if name == "evaluation" else name}
    if name == "evaluation":  # check makes one and training another
        kwargs["alive"] = 10
    options = {"max_episode_steps": 9, "disable_env_checker": True, "kwargs": kwargs}
    gym.register(f"Fails-{name}-v0", FAILING.get(name, Failing), **options)


WRONG = {
    "constructor": (["train", "Fails-constructor-v0"], "Fails-constructor-v0 cannot be made: RuntimeError: no licence"),
    "argument": (["train", "Fails-needs-v0"], "Fails-needs-v0 cannot be made: TypeError: NeedsSize.__init__() missing"),
    "no such class": (["train", "Fails-class-v0"], "Fails-class-v0 cannot be made: AttributeError"),
    "first step": (["train", "Fails-first-v0"], "Fails-first-v0: its step 1 failed: ZeroDivisionError: division"),
    "reward": (["train", "Fails-reward-v0"], "Fails-reward-v0: the reward of its step 1 is array([1., 1.])"),
    "steps": (["train", "Pendulum-v1", "--steps", "1e30"], f"steps is {int(1e30)}, but must be an integer"),
    "envs": (["train", "Pendulum-v1", "--n-envs", "1e6"], "n_envs is 1000000, but must be an integer"),
    "repeats": (["theorem", "--repeats", "1e13"], "repeats is 10000000000000, but must be"),
    "walks": (["theorem", "--repeats", "10", "--walks", "1e9"], "walks is 1000000000, but must be"),
    "walk": (["theorem", "--repeats", "10", "--steps", "1e12"], "steps is 1000000000000, but must be"),
    **{
        f"seed of {words[0]}": ([*words, "--seed", "-1"], "seed is -1, but must be >= 0")
        for words in (["report", "."], ["eval", "."], ["play", "."], ["diagnose", "."], ["theorem"])
    },
    "large seed": (["eval", ".", "--seed", str(2**32)], "seed is 4294967296, but must be >= 0 and < 2^32"),
    "video": (["play", ".", "--video", "v.txt"], "video is v.txt, but must end in .mp4 or"),
    "gif": (["play", ".", "--gif", "v.mp4"], "gif is v.mp4, but must end in .gif"),
    "plot": (["diagnose", ".", "--plot", "x.foo"], "plot is x.foo, but must end in .png or"),
    "plot's folder": (["diagnose", ".", "--plot", "no/x.png"], "plot is no/x.png, but there is no folder"),
    "actions": (
        ["train", "CartPole-v1", "--algo", "acc-x", "--pi", "8"],
        "ACCX needs a Box action space, but the env's is Discrete(2): acc-dqn and acc-qrdqn can learn it",
    ),
    "port": (["report", ".", "--watch", "--port", "99999"], "port is 99999, but must be"),
    "unknown module": (["train", "nosuch:Env-v0"], "nosuch:Env-v0 cannot be imported: No module named 'nosuch'"),
    "old env": (["train", "Hopper-v2"], "Hopper-v2 cannot be imported: The mujoco v2 and v3 based environments"),
    "device": (["train", "Pendulum-v1", "--device", "foo"], "device is 'foo', but must be auto, cpu, cuda or cuda:N"),
    "GPU": (["train", "Pendulum-v1", "--device", "cuda:99"], "device is cuda:99, but there are"),
    "gSDE of td3": (["train", "Pendulum-v1", "--algo", "td3", "--use-sde", "True"], "td3 has no setting use_sde"),
    "no effect": (
        ["train", "Pendulum-v1", "--algo", "sac", "--bias.lr", "1"],
        "bias.lr is 1.0, but sac does not adapt",
    ),
    "scale": (["study", "quick", "--scale", "inf"], "scale is inf, but must be a number > 0 and <= 1000"),
    **{
        name: (["train", f"Odd{name}-v0"], f"Odd{name}-v0 has {'actions' if name == 'Unbounded' else 'observations'}")
        for name in ODD
    },
}


@pytest.mark.parametrize(("words", "message"), WRONG.values(), ids=WRONG)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_one_line_that_names_it(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith(f"acc: error: {message}")
    assert list(tmp_path.iterdir()) == []


SMALL = ["--learning-starts", "1000", "--pi", "8", "--qf", "8", "--n-critics", "2", "--buffer-size", "1000"]


def fail(name, out, capsys, *words):
    words = ["--steps", "300", "--eval-every", "100", "--eval-episodes", "1", *SMALL, *words]
    assert main(["train", f"Fails-{name}-v0", *words, "--out", str(out)]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    return told[0]


def test_a_fault_before_the_first_step_leaves_nothing_behind(tmp_path, capsys):
    """Here in the first evaluation, on an env of its own"""
    MADE["first"] = 8
    told = fail("evaluation", tmp_path / "a" / "b", capsys)
    assert "Fails-evaluation-v0: its step 1 failed: ZeroDivisionError" in told
    assert list(tmp_path.iterdir()) == []
    MADE["first"] = 8
    (tmp_path / "runs").mkdir()
    fail("evaluation", tmp_path / "runs", capsys)
    assert list(tmp_path.rglob("*")) == [tmp_path / "runs"]


def test_a_fault_in_training_leaves_its_traceback_in_the_runs_folder(tmp_path, capsys):
    told = fail("later", tmp_path, capsys)
    assert "Fails-later-v0: its step 150 failed: ZeroDivisionError" in told
    (folder,) = tmp_path.iterdir()
    text = (folder / "traceback.txt").read_text()
    assert text.startswith("at step 149\nTraceback")
    assert 'raise ZeroDivisionError("division by zero")' in text


UNPARSED = {
    "infinitely many steps": (["train", "Hopper", "--steps", "1e400"], "--steps: 1e400 is not an integer"),
    "misspelled flag": (
        ["train", "Hopper", "--critic-update", "4"],
        "4 (did you mean --critic-updates?)",
    ),
    "no value": (["train", "Hopper", "--steps"], "'--steps'"),
    "wrong type": (["train", "Hopper", "--gamma", "x"], "--gamma: 'x' is no FLOAT"),
    "wrong choice": (["train", "Hopper", "--vec", "x"], "'x' for argument '--vec'"),
    "no pair": (["train", "Hopper", "--env-kwargs", "a"], "--env-kwargs: 'a' must be KEY=VALUE"),
    "duration": (["train", "Hopper", "--time", "2x"], "time is '2x'"),
    "no env": (["train"], "ENV"),
    "no run": (["eval"], "RUN"),
    "no study": (["study"], "PRESET"),
    "no folder": (["study", "status"], "PATH"),
    "wrapper": (["train", "Pendulum", "--wrapper", "nosuch:A"], "wrapper is 'nosuch:A'"),
    "callback": (["train", "Pendulum", "--callback", "json:A"], "callback is 'json:A'"),
}


@pytest.mark.parametrize(("words", "message"), UNPARSED.values(), ids=UNPARSED)
def test_errors_of_parsing_are_one_line_too(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    told = capsys.readouterr()
    assert (told.err.count("\n"), told.out) == (1, "")
    assert told.err.startswith("acc: error: ")
    assert message in told.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--use-sde"], (True, None)),
        (["--use-sde", "True", "--no-reward-scaling"], (True, False)),
        (["--use_sde", "--reward-scaling"], (True, True)),
        (["--no-use-sde"], (False, None)),
        ([], (None, None)),
    ],
)
def test_flags_need_no_value(words, expected):
    spec = parse_train([*words, "Pendulum", "--steps", "9"]).spec
    assert (spec.settings.use_sde, spec.settings.reward_scaling) == expected
    assert (spec.env, spec.steps) == ("Pendulum-v1", 9)


def test_callbacks_may_be_given_several_times():
    assert parse_train(["Pendulum", "--callback", "a:B", "--callback", "c:D"]).spec.callback == ("a:B", "c:D")


@pytest.mark.parametrize("algo", REGISTRY)
def test_the_defaults_in_the_help_are_those_of_the_algorithm(algo):
    settings, bias = default_settings(algo)
    env = gym.make("CartPole-v1" if REGISTRY[algo].module in ("discrete", "qrdqn") else "Pendulum-v1")
    plain = REGISTRY[algo].make("MlpPolicy", env)
    assert settings["learning_rate"] == plain.lr_schedule(1.0)
    assert settings["batch_size"] == plain.batch_size
    arch = plain.policy.net_arch
    assert settings["qf"] == (arch if isinstance(arch, list) else arch["qf"])
    assert bias["start_step"] == plain.bias.start_step
    assert set(settings) <= accepted(type(plain)) | {"pi", "qf", "nets", "activation", "controller"}
    assert with_defaults(algo).bias.tail == plain.bias.tail


def test_help_of_an_algorithm(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--algo", "acc-x", "--help"])
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "step size of all optimizers (default: 0.001)" in told
    assert "hidden sizes of the critics (default: 256 256)" in told
    assert "beta before the first update (default: 0.5)" in told


def test_an_episode_that_never_ends_is_an_error(monkeypatch):
    monkeypatch.setattr(envs, "LONGEST", 20)
    gym.register("Inner-v0", lambda: gym.wrappers.TimeLimit(gym.make("CliffWalking-v1"), 7))
    evaluate_task(lambda obs: np.zeros(len(obs), int), "Inner-v0", 1, 0)
    with pytest.raises(envs.EnvError, match="CliffWalking-v1 has no time limit, and an episode has not ended after 20"):
        evaluate_task(lambda obs: np.zeros(len(obs), int), "CliffWalking-v1", 1, 0)


@pytest.mark.parametrize("algo", REGISTRY)
def test_all_settings_that_are_offered_exist(algo):
    known = accepted(REGISTRY[algo].load())
    assert known <= {"bias", *Settings.__dataclass_fields__}
    assert {"bias", "gamma", "tau", "buffer_size"} <= known
    soft, discrete = REGISTRY[algo].module in ("tqc", "sac", "x"), REGISTRY[algo].module in ("discrete", "qrdqn")
    assert ("use_sde" in known, "ent_coef" in known) == (soft, soft)
    assert ("max_grad_norm" in known, "n_critics" in known) == (discrete, not discrete)


@pytest.mark.parametrize(
    ("words", "content", "env"),
    [
        (["Pendulum-v1"], "", "Pendulum-v1"),
        ([], 'env = "Pendulum-v1"\n', "Pendulum-v1"),
        (["Hopper"], 'env = "Pendulum-v1"\n', "Hopper-v5"),
    ],
)
def test_the_env_of_the_command_line_comes_before_the_files(words, content, env, tmp_path):
    (tmp_path / "run.toml").write_text(content + "steps = 3e2\n[settings]\nbuffer_size = 1e4\n")
    spec = parse_train([*words, "--config", str(tmp_path / "run.toml"), "--seed", "7"]).spec
    assert (spec.env, spec.steps, spec.seed, spec.settings.buffer_size) == (env, 300, 7, 10_000)


def test_an_env_is_needed(tmp_path):
    (tmp_path / "run.toml").write_text("steps = 300\n")
    with pytest.raises(AccError, match="ENV"):
        parse_train(["--config", str(tmp_path / "run.toml")])


def test_brackets_in_a_path_are_no_markup(capsys):
    print_line(Console(), "o[/x]: done")
    assert capsys.readouterr().out == "o[/x]: done\n"


def test_arguments_of_tasks_on_the_command_line(tmp_path):
    values = ["g=9.5", "b=true", "f=False", "s=a=b", "n=null", 'q="3"']
    words = ["Pendulum", "--env-kwargs", *values, "--wrapper", "a:B", "c.d:E", "--time-limit", "50"]
    spec = parse_train([*words, "--normalize", "--vec", "subproc"]).spec
    assert spec.env == "Pendulum-v1"
    assert spec.env_kwargs == {"g": 9.5, "b": True, "f": False, "s": "a=b", "n": None, "q": "3"}
    assert (spec.wrapper, spec.time_limit, spec.normalize, spec.vec) == (("a:B", "c.d:E"), 50, True, "subproc")
    (tmp_path / "run.toml").write_text('env = "Pendulum"\nwrapper = ["a:B"]\n[env_kwargs]\ng = 9.5\n')
    spec = parse_train(["--config", str(tmp_path / "run.toml"), "--normalize"]).spec
    assert (spec.env_kwargs, spec.wrapper, spec.normalize) == ({"g": 9.5}, ("a:B",), True)
