"""Algorithms small enough for a test, with a bias rule that acts within a few hundred steps."""

from acc_rl import ACC, TQC

BIAS = {"start_step": 100, "update_interval": 50, "pairs_kept": 300}
COMMON = {"buffer_size": 1000, "learning_starts": 50, "batch_size": 16, "device": "cpu"}
QUANTILE = {"n_critics": 2, "n_atoms": 7}
ALGORITHMS = {"acc": (ACC, QUANTILE), "tqc": (TQC, {**QUANTILE, "dropped_per_net": 2})}


def make(name, env, policy="MlpPolicy", **kwargs):
    cls, own = ALGORITHMS[name]
    policy_kwargs = {"net_arch": [16], **kwargs.pop("policy_kwargs", {})}
    return cls(policy, env, **{**COMMON, **own, "bias": BIAS, "policy_kwargs": policy_kwargs, **kwargs})
