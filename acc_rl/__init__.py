"""Adaptively Calibrated Critics: off-policy reinforcement learning whose critics correct their own bias."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acc_rl.algos.any_q import AnyQ
    from acc_rl.algos.discrete import ACCDQN, DQN
    from acc_rl.algos.qrdqn import ACCQRDQN, QRDQN
    from acc_rl.algos.sac import ACCSAC, SAC
    from acc_rl.algos.td3 import ACCDDPG, ACCTD3, DDPG, TD3
    from acc_rl.algos.tqc import ACC, TQC
    from acc_rl.algos.x import ACCX, XMean, XMin
    from acc_rl.core.controller import Calibrating, Constant, Controller
    from acc_rl.core.settings import BiasSettings
    from acc_rl.inference.policy import load_policy
    from acc_rl.inference.run_model import load_model
    from acc_rl.runs.callbacks import ValueErrorCallback
    from acc_rl.runs.spec import RunSpec
    from acc_rl.runs.train import train

__all__ = [
    "ACC",
    "ACCDDPG",
    "ACCDQN",
    "ACCQRDQN",
    "ACCSAC",
    "ACCTD3",
    "ACCX",
    "DDPG",
    "DQN",
    "QRDQN",
    "SAC",
    "TD3",
    "TQC",
    "AnyQ",
    "BiasSettings",
    "Calibrating",
    "Constant",
    "Controller",
    "RunSpec",
    "ValueErrorCallback",
    "XMean",
    "XMin",
    "load_model",
    "load_policy",
    "train",
]
__version__ = "0.2.0"

_HOME = {
    **dict.fromkeys(("ACC", "TQC"), "acc_rl.algos.tqc"),
    **dict.fromkeys(("ACCTD3", "TD3", "ACCDDPG", "DDPG"), "acc_rl.algos.td3"),
    **dict.fromkeys(("ACCSAC", "SAC"), "acc_rl.algos.sac"),
    **dict.fromkeys(("ACCDQN", "DQN"), "acc_rl.algos.discrete"),
    **dict.fromkeys(("ACCQRDQN", "QRDQN"), "acc_rl.algos.qrdqn"),
    **dict.fromkeys(("ACCX", "XMean", "XMin"), "acc_rl.algos.x"),
    "AnyQ": "acc_rl.algos.any_q",
    **dict.fromkeys(("Calibrating", "Constant", "Controller"), "acc_rl.core.controller"),
    "BiasSettings": "acc_rl.core.settings",
    "RunSpec": "acc_rl.runs.spec",
    "ValueErrorCallback": "acc_rl.runs.callbacks",
    "load_model": "acc_rl.inference.run_model",
    "load_policy": "acc_rl.inference.policy",
    "train": "acc_rl.runs.train",
}


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used, so that what needs no torch does not wait for it."""
    if name not in _HOME:
        raise AttributeError(f"module 'acc_rl' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """The public names, whether they have been used yet or not"""
    return sorted([*__all__, "__version__"])
