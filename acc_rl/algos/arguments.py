"""Arguments of the algorithms in one line each, and signatures with all of them for ``help`` and completion."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

from acc_rl.core.errors import SettingError

ARGUMENTS: Mapping[str, str] = {
    "policy": '"MlpPolicy", "CnnPolicy" (images), "MultiInputPolicy" (dictionaries), or a policy class',
    "env": "the env to learn in, or its id",
    "learning_rate": "step size of all optimizers, or a function of the share of training that is left",
    "buffer_size": "transitions in the replay buffer",
    "learning_starts": "env steps with random actions before learning starts",
    "batch_size": "transitions per minibatch",
    "tau": "soft update coefficient (Polyak) of the target networks",
    "gamma": "discount factor",
    "train_freq": 'env steps between two rounds of training, or (n, "episode")',
    "gradient_steps": "gradient steps per round, -1 for as many as env steps",
    "critic_updates": "critic updates per gradient step, each on its own minibatch",
    "n_critics": "nets in the ensemble",
    "n_atoms": "atoms per net; sb3-contrib's n_quantiles in policy_kwargs is the same",
    "dropped_per_net": "target atoms dropped per net, the largest ones",
    "top_quantiles_to_drop_per_net": "sb3-contrib's name of dropped_per_net; where d is adapted, the d to start from",
    "exploration_noise": "standard deviation of the exploration noise, on actions in [-1, 1]; action_noise replaces it",
    "normalize_observations": "normalise observations by their running mean and variance, as part of the policy",
    "reward_scaling": "divide rewards by a running scale of returns; gaps and values are logged in the env's units",
    "bias": "BiasSettings or a dictionary of them: when the gap is measured and how far beta may go",
    "controller": 'who moves beta: "acc", "fixed", "top", "gpl" or a Controller',
    "n_steps": "steps of the n-step return",
    "action_noise": "noise added to actions while learning, a noise of SB3",
    "replay_buffer_class": "another replay buffer, HerReplayBuffer for instance",
    "replay_buffer_kwargs": "its arguments",
    "optimize_memory_usage": "without effect on the default buffer, which stores each observation once anyway",
    "ent_coef": 'temperature: a number, "auto" or "auto_0.1" to learn it from that value on',
    "target_update_interval": "updates (DQN, QRDQN: env steps) between two updates of the target networks",
    "target_entropy": 'entropy that the learned temperature aims at; "auto": minus the dimensions of the action',
    "use_sde": "generalised state-dependent exploration (gSDE)",
    "sde_sample_freq": "env steps between two draws of its noise, -1 for one per rollout",
    "use_sde_at_warmup": "gSDE instead of random actions before learning starts",
    "policy_delay": "critic updates per actor update",
    "target_policy_noise": "standard deviation of the noise on the target's action",
    "target_noise_clip": "largest such noise",
    "exploration_fraction": "share of training over which exploration falls",
    "exploration_initial_eps": "share of random actions at the start",
    "exploration_final_eps": "share of random actions at the end",
    "max_grad_norm": "largest norm of a gradient",
    "stats_window_size": "episodes over which the log averages",
    "tensorboard_log": "folder for TensorBoard's events",
    "policy_kwargs": "arguments of the policy: net_arch, activation_fn, nets, n_critics, optimizer_class, ...",
    "verbose": "0: silent, 1: tables of the log, 2: more",
    "seed": "of all random streams",
    "device": '"cpu", "cuda", or "auto" for a GPU where there is one',
}


def signature(cls: type[Any]) -> inspect.Signature:
    """With the arguments of all constructors that pass theirs on, and the defaults of the most derived class"""
    found: dict[str, inspect.Parameter] = {}
    for constructor in (vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)):
        _, *parameters = inspect.signature(constructor).parameters.values()
        for each in parameters:
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) and not each.name.startswith("_"):
                found.setdefault(each.name, each)
        if all(each.kind != each.VAR_KEYWORD for each in parameters):
            break
    rest = [_shown(cls, each) for name, each in found.items() if name not in ("policy", "env", "learning_rate")]
    order = {name: place for place, name in enumerate(ARGUMENTS)}
    rest.sort(key=lambda each: order.get(each.name, -1))
    first = [found[name] for name in ("policy", "env", "learning_rate") if name in found]
    return inspect.Signature([*sorted(first, key=lambda each: each.default is not each.empty), *rest])


def _shown(cls: type[Any], parameter: inspect.Parameter) -> inspect.Parameter:
    """None stands for a default that the class names"""
    default = getattr(cls, f"default_{parameter.name}", None) if parameter.name != "bias" else None
    default = parameter.default if parameter.default is not None or default is None else default
    return parameter.replace(kind=parameter.KEYWORD_ONLY, default=default)


def _default(parameter: inspect.Parameter) -> str:
    return "" if parameter.default is parameter.empty else f" ({parameter.default!r})"


def described(doc: str, arguments: inspect.Signature) -> str:
    """A docstring with a list of the arguments"""
    told = [each for each in arguments.parameters.values() if each.name in ARGUMENTS]
    lines = [f"{each.name}{_default(each)}: {ARGUMENTS[each.name]}" for each in told]
    return f"{inspect.cleandoc(doc)}\n\nArgs:\n{textwrap.indent(chr(10).join(lines), '    ')}\n"


def renamed(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Arguments under the names that they have here; one that is given under both must be the same"""
    found: dict[str, Any] = {}
    for name, value in given.items():
        ours = names.get(name, name)
        if ours in found and found[ours] != value:
            raise SettingError(f"{name} is {value!r}, but {ours}, which is the same, {found[ours]!r}: give one of them")
        found[ours] = value
    return found
