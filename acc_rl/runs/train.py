"""A spec becomes a folder."""

from __future__ import annotations

import inspect
import os
import platform
import shutil
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch as th
from gymnasium import spaces
from rich.console import Console
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import KVWriter, Logger, TensorBoardOutputFormat
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from acc_rl.algos.calibrated import Calibrated
from acc_rl.algos.registry import find
from acc_rl.runs import envs, records
from acc_rl.runs.callbacks import EvaluationCallback, LogCallback, ValueErrorCallback, python_number
from acc_rl.runs.policy import nets, policy_arguments, save_policy
from acc_rl.runs.progress import ProgressCallback
from acc_rl.runs.spec import RunSpec, algorithm_arguments

PACKAGES = ("acc_rl", "torch", "numpy", "stable_baselines3", "sb3_contrib", "gymnasium", "mujoco")


class RunExists(ValueError):
    """The folder is taken."""


def train(spec: RunSpec, out: Path | str = "runs", *, restart: bool = False, console: Console | None = None) -> Path:
    """Train as ``spec`` says and leave a folder that explains itself; Ctrl-C ends early with everything written."""
    console = console or Console()
    folder = Path(out) / spec.name
    if folder.exists() and not restart:
        raise RunExists(_taken(folder, spec))
    if spec.threads:
        th.set_num_threads(spec.threads)
    # before anything is written: most mistakes show here
    envs.check(spec.env)
    model = make_model(spec)
    if restart:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    description: dict[str, Any] = {"algo": spec.algo, "policy": policy_name(model.observation_space)}
    description |= {"settings": spec.as_dict()["settings"], "nets": nets(model.policy_kwargs)}
    records.write_json(folder / records.SPEC, {**spec.as_dict(), "resolved": resolved(model)})
    records.write_json(folder / records.PROVENANCE, provenance(spec))
    model.set_logger(Logger(str(folder), [TensorBoardOutputFormat(str(folder / records.TENSORBOARD)), _Rows(folder)]))

    evaluation = EvaluationCallback(
        folder / records.EVALUATIONS, partial(envs.make, spec.env), spec.eval_every, spec.eval_episodes, spec.seed
    )
    value_error = ValueErrorCallback(folder / records.VALUE_ERROR)
    progress = ProgressCallback(spec.steps, spec.name, evaluation, console)
    callbacks: list[BaseCallback] = [evaluation, LogCallback(spec.log_every), progress]
    if spec.value_error:
        callbacks.append(value_error)
    start = time.perf_counter()
    callback = CallbackList(callbacks)
    try:
        model.learn(spec.steps, callback=callback, log_interval=None)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        callback.on_training_end()
        console.print(f"stopped at step {model.num_timesteps} of {spec.steps}", highlight=False)
    finally:
        progress.close()
        if model.env is not None:
            model.env.close()
    save_policy(folder, model, description)
    seconds = time.perf_counter() - start
    shares = {"evaluation": evaluation.seconds} | ({"value error": value_error.seconds} if spec.value_error else {})
    told = ", ".join(f"{name} {100 * each / seconds:.1f} %" for name, each in shares.items())
    assert evaluation.last is not None  # the end of training evaluates
    console.print(
        f"{folder}: {model.num_timesteps} steps in {seconds:.0f} s ({told}), last evaluation "
        f"{evaluation.last['mean_return']:.1f} +- {evaluation.last['std_return']:.1f}; next: acc eval {folder}",
        highlight=False,
        soft_wrap=True,
    )
    return folder


def make_model(spec: RunSpec) -> Calibrated:
    entry = find(spec.algo)
    arguments = {**entry.settings, **algorithm_arguments(spec)}
    known = accepted(entry.load())
    for name in arguments:
        if name not in known:
            raise ValueError(f"{spec.algo} has no setting {name}; it takes {', '.join(sorted(known))}")
    vec_env = DummyVecEnv([partial(_training_env, spec, index) for index in range(spec.n_envs)])
    discrete = isinstance(vec_env.action_space, spaces.Discrete)
    policy_kwargs = policy_arguments(spec.as_dict()["settings"], discrete)
    return entry.load()(
        policy_name(vec_env.observation_space),
        vec_env,
        seed=spec.seed,
        device=spec.device,
        policy_kwargs=policy_kwargs,
        **arguments,
    )


def _training_env(spec: RunSpec, index: int) -> Monitor[Any, Any]:
    return Monitor(envs.SeededEpisodes(envs.make(spec.env), spec.seed, index))


def accepted(cls: type[Calibrated]) -> set[str]:
    """The names of all arguments that the class and what it is built on take"""
    names: set[str] = set()
    for base in cls.__mro__:
        if constructor := vars(base).get("__init__"):
            names |= set(inspect.signature(constructor).parameters)
    return names - {"self", "args", "kwargs", "policy", "env", "policy_kwargs", "_init_setup_model", "verbose"}


def policy_name(space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.Dict):
        return "MultiInputPolicy"
    return "CnnPolicy" if isinstance(space, spaces.Box) and len(space.shape) == 3 else "MlpPolicy"


def resolved(model: Calibrated) -> dict[str, Any]:
    """All settings in effect, the defaults among them"""
    values = {
        name: getattr(model, name, None) for name in accepted(type(model)) if name not in ("bias", "learning_rate")
    }
    plain = {name: value for name, value in values.items() if isinstance(value, (int, float, str, bool))}
    plain["learning_rate"] = model.lr_schedule(1.0)
    plain |= nets(model.policy_kwargs)
    net_arch = getattr(model.policy, "net_arch", None)
    return {**dict(sorted(plain.items())), "net_arch": net_arch, "bias": vars(model.bias)}


def provenance(spec: RunSpec) -> dict[str, Any]:
    """Where the numbers come from"""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": th.get_num_threads(),
        "git_commit": _git_commit(),
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "run_id": spec.id,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git_commit() -> str | None:
    """The commit of the folder that the run was started in, if it is one of git's"""
    try:
        result = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


def _taken(folder: Path, spec: RunSpec) -> str:
    there = records.read_json(folder / records.SPEC)
    there.pop("resolved", None)
    wanted = records.json_like(spec.as_dict())
    differ = [key for key in wanted if wanted[key] != there.get(key)]
    what = f"a run with other settings ({', '.join(differ)})" if differ else "this run already"
    return f"{folder} holds {what}: use --restart to begin it anew, or another --out"


class _Rows(KVWriter):
    """SB3's log as rows of training.jsonl."""

    NAMES = {"rollout/ep_rew_mean": "episode_return", "rollout/ep_len_mean": "episode_length", "time/fps": "fps"}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self.path = folder / records.TRAINING

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        row = {"step": step}
        for key, value in sorted(key_values.items()):
            room, _, name = key.partition("/")
            if room in ("train", "bias") or key in self.NAMES:
                row[self.NAMES.get(key, name)] = python_number(value)
        records.append(self.path, row)

    def close(self) -> None:
        pass
