"""Adaptively Calibrated Critics: off-policy reinforcement learning whose critics correct their own bias."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acc_rl.algos.tqc import ACC, TQC
    from acc_rl.core.bias import AdaptiveBias, BiasSettings, FixedBias

__all__ = ["ACC", "TQC", "AdaptiveBias", "BiasSettings", "FixedBias"]
__version__ = "0.1.0"

_HOME = {
    "ACC": "acc_rl.algos.tqc",
    "TQC": "acc_rl.algos.tqc",
    "AdaptiveBias": "acc_rl.core.bias",
    "BiasSettings": "acc_rl.core.bias",
    "FixedBias": "acc_rl.core.bias",
}


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used, so that what needs no torch does not wait for it."""
    if name not in _HOME:
        raise AttributeError(f"module 'acc_rl' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
