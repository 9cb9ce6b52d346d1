"""What a run is: everything that decides its result. No torch, so that the command line starts at once."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, get_args, get_type_hints

import tyro

from acc_rl.algos.registry import find
from acc_rl.core.checks import is_number, is_whole
from acc_rl.core.controller import CONTROLLERS, TURNS
from acc_rl.core.errors import SettingError
from acc_rl.core.settings import BiasSettings
from acc_rl.runs.naming import LONGEST, OLD_LONGEST, READABLE, folder_name
from acc_rl.runs.naming import given as _given
from acc_rl.runs.tasks import full_name, task_bias
from acc_rl.runs.typed import PAIRS, require_known, typed

Allowed = tuple[str, Callable[[Any], bool]]
"""what a value may be, in words and as a test"""
VARIED = ("env_kwargs", "wrapper", "time_limit", "normalize", "callback")
"""fields of a run beside its settings that are part of its folder's name"""


def _is_temperature(value: Any) -> bool:
    text = str(value)
    try:
        number = float(text.removeprefix("auto_"))
    except ValueError:
        return text == "auto"
    return math.isfinite(number) and (number > 0 or (number == 0 and not text.startswith("auto_")))


def _is_json(values: Mapping[str, Any]) -> bool:
    try:
        json.dumps(values, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return not {"id", "render_mode", "max_episode_steps"} & set(values)


COUNT: Allowed = ("an integer >= 1 and <= 10**12", lambda value: is_whole(value, 1, 10**12))
COUNT_OF_ENVS: Allowed = ("an integer >= 1 and <= 10,000", lambda value: is_whole(value, 1, 10_000))
COUNT_OR_MINUS_ONE: Allowed = ("an integer >= 1, or -1", lambda value: is_whole(value, 1) or value == -1)
NUMBER: Allowed = ("a finite number", is_number)
POSITIVE: Allowed = ("a finite number > 0", lambda value: is_number(value) and value > 0)
NOT_NEGATIVE: Allowed = ("a finite number >= 0", lambda value: is_number(value) and value >= 0)
SHARE: Allowed = ("a number in [0, 1]", lambda value: is_number(value) and 0 <= value <= 1)
PART: Allowed = ("a number in (0, 1]", lambda value: is_number(value) and 0 < value <= 1)
CLASSES: Allowed = (
    "classes as module:Class",
    lambda value: all(re.fullmatch(r"[\w.]+:\w+", each) for each in value),
)
SIZES: Allowed = ("integers >= 1", lambda value: all(is_whole(each, 1) for each in value))


def _require(part: Any, ranges: Mapping[str, Allowed]) -> None:
    for name, (allowed, holds) in ranges.items():
        value = getattr(part, name)
        if value is not None and not holds(value):
            raise SettingError(f"{name} is {value!r}, but must be {allowed}")


@dataclass(frozen=True)
class Settings:
    """Arguments of the algorithm; what is not given stays at the paper's default."""

    learning_rate: float | None = None
    """step size of all optimizers"""
    batch_size: int | None = None
    """transitions per minibatch"""
    buffer_size: int | None = None
    """transitions in the replay buffer"""
    learning_starts: int | None = None
    """env steps with random actions before learning starts"""
    gamma: float | None = None
    """discount factor"""
    tau: float | None = None
    """soft update coefficient (Polyak), as in SB3"""
    train_freq: int | Literal["episode"] | None = None
    """env steps between two rounds of training; "episode": a round after each episode, none within"""
    gradient_steps: int | None = None
    """gradient steps per round, -1 for as many as env steps (default of --train-freq episode)"""
    critic_updates: int | None = None
    """critic updates per gradient step, each on its own minibatch"""
    n_critics: int | None = None
    """nets in the ensemble"""
    n_atoms: int | None = None
    """atoms per net (acc, tqc)"""
    dropped_per_net: float | None = None
    """target atoms dropped per net (tqc)"""
    n_steps: int | None = None
    """steps of the n-step return"""
    ent_coef: str | None = None
    """temperature: a number, "auto" or "auto_0.1" (soft algorithms)"""
    target_entropy: float | None = None
    """entropy that the learned temperature aims at (soft algorithms)"""
    target_update_interval: int | None = None
    """updates (acc-dqn, acc-qrdqn: env steps) between two updates of the targets"""
    use_sde: bool | None = None
    """state-dependent exploration (soft algorithms)"""
    sde_sample_freq: int | None = None
    """env steps between two draws of its noise, -1 for one per rollout (soft algorithms)"""
    use_sde_at_warmup: bool | None = None
    """state-dependent exploration instead of random actions before learning starts (soft algorithms)"""
    policy_delay: int | None = None
    """critic updates per actor update"""
    target_policy_noise: float | None = None
    """noise on the target's action (td3)"""
    target_noise_clip: float | None = None
    """largest such noise (td3)"""
    exploration_noise: float | None = None
    """standard deviation of the exploration noise (td3, acc-ddpg)"""
    exploration_fraction: float | None = None
    """share of the run over which exploration falls (acc-dqn, acc-qrdqn)"""
    exploration_initial_eps: float | None = None
    """share of random actions at the start (acc-dqn, acc-qrdqn)"""
    exploration_final_eps: float | None = None
    """share of random actions at the end (acc-dqn, acc-qrdqn)"""
    max_grad_norm: float | None = None
    """largest norm of a gradient (acc-dqn, acc-qrdqn)"""
    pi: tuple[int, ...] | None = None
    """hidden sizes of the actor"""
    qf: tuple[int, ...] | None = None
    """hidden sizes of the critics"""
    activation: Literal["relu", "tanh", "elu", "silu"] | None = None
    """activation of all nets"""
    nets: Literal["mlp", "layernorm", "batchnorm", "simba"] | None = None
    """kind of the nets: plain, with LayerNorm or BatchNorm, or residual blocks with LayerNorm as in SimBa"""
    normalize_observations: bool | None = None
    """normalise observations by their running mean and variance, as part of the policy"""
    reward_scaling: bool | None = None
    """divide rewards by a running scale of their returns; gaps and values are logged in the env's own units"""
    controller: Literal["acc", "fixed", "top", "gpl"] | None = None
    """who turns beta: ACC's rule, nobody, a bandit on episode returns (TOP), or the TD error (GPL)"""

    def __post_init__(self) -> None:
        _require(self, SETTINGS)


def _name(field: str) -> Allowed:
    """One of the names that stand in the field's type: objects cannot be written into a file"""
    names = get_args(get_args(get_type_hints(Settings)[field])[0])
    return f"{' or '.join(map(repr, names))} here", lambda value: isinstance(value, str) and value in names


SETTINGS: Mapping[str, Allowed] = {
    **dict.fromkeys(("batch_size", "buffer_size", "critic_updates", "n_critics", "n_atoms"), COUNT),
    "train_freq": (f"{COUNT[0]}, or 'episode'", lambda value: value == "episode" or COUNT[1](value)),
    **dict.fromkeys(("n_steps", "target_update_interval", "policy_delay"), COUNT),
    "learning_starts": ("an integer >= 0", is_whole),
    **dict.fromkeys(("gradient_steps", "sde_sample_freq"), COUNT_OR_MINUS_ONE),
    **dict.fromkeys(("learning_rate", "max_grad_norm"), POSITIVE),
    **dict.fromkeys(("gamma", "exploration_initial_eps", "exploration_final_eps"), SHARE),
    **dict.fromkeys(("tau", "exploration_fraction"), PART),
    **dict.fromkeys(("dropped_per_net", "target_policy_noise", "target_noise_clip", "exploration_noise"), NOT_NEGATIVE),
    "ent_coef": ("a number >= 0, auto, or auto_ and a number > 0", _is_temperature),
    "target_entropy": NUMBER,
    **dict.fromkeys(("pi", "qf"), SIZES),
    **{field: _name(field) for field in ("activation", "nets", "controller")},
}


@dataclass(frozen=True)
class RunSpec:
    """One run."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Gymnasium id or metaworld/TASK; without a version the newest (Hopper is Hopper-v5)"""
    algo: str = "acc"
    """algorithm by name"""
    steps: int = 1_000_000
    """env steps"""
    seed: int = 0
    """decides everything random"""
    n_envs: int = 1
    """parallel envs to learn from; training then follows every n_envs * train_freq env steps, so that there are n_envs
    times fewer gradient steps, unless --gradient-steps is -1 (as many as env steps)"""
    eval_every: int = 5000
    """env steps between two evaluations (the paper: 1000)"""
    eval_episodes: int = 10
    """episodes per evaluation, with deterministic actions; 0: no evaluation, where there is one env only"""
    horizon: int | None = None
    """for tasks that never end: test episodes are cut after N steps, and calibration needs no end of an episode"""
    log_every: int = 1000
    """env steps between two rows of training.jsonl"""
    value_error: bool = True
    """compare the critic's estimates with the returns that follow"""
    threads: int = 0
    """threads for torch; 0: one for small nets, all cores for large ones, and the same when the run resumes"""
    device: str = "auto"
    """cpu, cuda or auto"""
    env_kwargs: Annotated[dict[str, Any], PAIRS] = field(default_factory=dict, hash=False)
    """arguments of the task, each value as JSON or else as text"""
    wrapper: tuple[str, ...] = ()
    """classes of gymnasium.Wrapper around the task, as module:Class, the innermost first"""
    time_limit: int | None = None
    """steps after which an episode is truncated, instead of the task's own limit"""
    normalize: bool = False
    """SB3's VecNormalize: observations and rewards by running statistics, which the saved policy has too"""
    vec: Literal["dummy", "subproc"] = "dummy"
    """subproc: each of the n_envs in a process of its own, for slow simulators"""
    callback: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """class of an SB3 callback that needs no arguments, as module:Class; may be given several times"""
    stop_at: float | None = None
    """mean return of an evaluation at which the run ends early"""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)
    bias: BiasSettings = field(default_factory=BiasSettings)

    def __post_init__(self) -> None:
        if self.env is not tyro.MISSING:  # which a file may leave to the command line
            object.__setattr__(self, "env", full_name(self.env))
        find(self.algo)
        for name, cls in PARTS.items():
            object.__setattr__(self, name, _part(name, cls, getattr(self, name)))
        _require(self, RUN)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def id(self) -> str:
        """Stable: the same for the same settings, on every machine and when new settings are added"""
        default = RunSpec(self.env).as_dict()
        content: dict[str, Any] = {name: each for name, each in self.as_dict().items() if each != default[name]}
        content |= {"env": self.env, "settings": _given(self.settings), "bias": _given(self.bias)}
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def name(self) -> str:
        """The folder's name, which explains itself: task, algorithm, what differs from its defaults, seed"""
        return folder_name(self, READABLE, LONGEST)

    @property
    def old_names(self) -> tuple[str, ...]:
        """The names that folders had before: with a digest for all but the shortest differences, or longer"""
        return folder_name(self, 0, 0), folder_name(self, READABLE, OLD_LONGEST)


RUN: Mapping[str, Allowed] = {
    **dict.fromkeys(("steps", "eval_every", "log_every", "horizon"), COUNT),
    "n_envs": COUNT_OF_ENVS,
    "eval_episodes": ("an integer >= 0 and <= 10,000", lambda value: is_whole(value, 0, 10_000)),
    "seed": ("an integer >= 0 and < 2**32", lambda value: is_whole(value, 0, 2**32 - 1)),
    "time_limit": COUNT,
    "env_kwargs": ("JSON values by names other than render_mode and max_episode_steps", _is_json),
    **dict.fromkeys(("wrapper", "callback"), CLASSES),
    "stop_at": NUMBER,
    "vec": ("'dummy' or 'subproc'", lambda value: value in ("dummy", "subproc")),
    "threads": ("an integer >= 0 and <= 1024", lambda value: is_whole(value, 0, 1024)),
    "device": ("auto, cpu, cuda or cuda:N", lambda value: bool(re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", value))),
}


def from_dict(content: Mapping[str, Any]) -> RunSpec:
    """A spec from JSON or TOML; an unknown name is an error that suggests the nearest."""
    require_known(content, RunSpec)
    values = {key: each if key in PARTS else typed(RunSpec, key, each) for key, each in content.items()}
    if "env" not in values:
        raise SettingError("env is missing: name the task to learn")
    return RunSpec(**values)


PARTS: Mapping[str, type[Any]] = {"settings": Settings, "bias": BiasSettings}


def _part(name: str, cls: type[Any], value: Any) -> Any:
    """Settings as they are, or from a mapping of what is given"""
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise SettingError(f"{name} is {value!r}, but must be a table of settings, or {cls.__name__}")
    require_known(value, cls, f"{name}.")
    return cls(**{key: typed(cls, key, each, f"{name}.") for key, each in value.items()})


def _controller(spec: RunSpec) -> str:
    return spec.settings.controller or find(spec.algo).controller


def adapts(spec: RunSpec) -> bool:
    """Whether the controller of the run turns beta, or the gap is only measured"""
    return CONTROLLERS[_controller(spec)].adapts


def rule(spec: RunSpec) -> str:
    """The rule that ACC's controller would follow"""
    return spec.bias.rule or find(spec.algo).rule


def check_effect(spec: RunSpec) -> None:
    """An error for what is given and would do nothing"""
    settings, bias = spec.settings, spec.bias
    read = CONTROLLERS[_controller(spec)].reads if adapts(spec) or settings.controller else ()
    for name in TURNS:
        if (value := getattr(bias, name)) is not None and name not in read:
            why, way = f"{spec.algo} does not adapt its beta", "an algorithm whose name begins with acc"
            if read:
                why, way = f"the controller {_controller(spec)!r} does not read it", "the controller 'acc'"
            raise SettingError(f"bias.{name} is {value!r}, but {why}: leave it out, or take {way}")
    if bias.moving_average is not None and rule(spec) != "paper":
        raise SettingError(
            f"bias.moving_average is {bias.moving_average!r}, but bias.rule is {rule(spec)!r}, which has none: "
            "leave it out, or set bias.rule to paper"
        )
    if bias.evidence_steps is not None and bias.evidence == "episodes":
        raise SettingError(
            f"bias.evidence_steps is {bias.evidence_steps!r}, but bias.evidence is 'episodes': leave it out, or set "
            "that to steps"
        )
    for name in ("sde_sample_freq", "use_sde_at_warmup"):
        if (value := getattr(settings, name)) and not settings.use_sde:
            raise SettingError(f"{name} is {value!r}, but does nothing without use_sde: leave it out, or set that too")
    if settings.target_entropy is not None and not (settings.ent_coef or "auto").startswith("auto"):
        raise SettingError(
            f"target_entropy is {settings.target_entropy!r}, but ent_coef is fixed at {settings.ent_coef}: "
            "leave one of them out, or set ent_coef to auto"
        )


def algorithm_arguments(spec: RunSpec) -> dict[str, Any]:
    """The arguments of the algorithm's class: what the spec gives, in SB3's form."""
    check_effect(spec)
    given = _given(spec.settings)
    ent_coef = given.get("ent_coef")
    if ent_coef is not None and not ent_coef.startswith("auto"):
        given["ent_coef"] = float(ent_coef)
    if given.get("train_freq") == "episode":
        given = {"gradient_steps": -1, **given, "train_freq": (1, "episode")}
    endless = {} if spec.horizon is None else {"evidence": "steps"}
    bias = {**task_bias(spec.env), **endless, **spec.bias.given()}
    arguments = {key: value for key, value in given.items() if key not in ("pi", "qf", "activation", "nets")}
    return {**arguments, **({"bias": bias} if bias else {})}
