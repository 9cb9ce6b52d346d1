"""Adaptively Calibrated Critics: off-policy reinforcement learning whose critics correct their own bias."""

from acc_rl.algos.tqc import ACC, TQC
from acc_rl.core.bias import AdaptiveBias, BiasSettings, FixedBias

__all__ = ["ACC", "TQC", "AdaptiveBias", "BiasSettings", "FixedBias"]
__version__ = "0.1.0"
