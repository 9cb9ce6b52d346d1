"""Small runs, and how to tell whether two of them are the same to the bit."""

import hashlib
from pathlib import Path

from rich.console import Console

from acc_rl.runs import records
from acc_rl.runs.checkpoint import STATE, TENSORS, Checkpoints
from acc_rl.runs.spec import from_dict
from acc_rl.runs.train import train

ROWS = (records.EVALUATIONS, records.TRAINING, records.VALUE_ERROR)
QUIET = Console(quiet=True)


def tiny(env="Pendulum-v1", algo="acc", **changes):
    """A run of seconds: 700 steps, the rule turns beta, the ring goes round."""
    settings = {"learning_starts": 100, "batch_size": 16, "buffer_size": 300, "qf": [16, 16], "pi": [16]}
    if algo in ("acc-dqn", "acc-qrdqn"):
        settings = {**settings, "target_update_interval": 50}
        del settings["pi"]
    bias = {"start_step": 300, "update_interval": 100, "pairs_kept": 400}
    content = {"env": env, "algo": algo, "steps": 700, "eval_every": 200, "eval_episodes": 1, "log_every": 100}
    content |= {"threads": 1, **{key: value for key, value in changes.items() if key not in ("settings", "bias")}}
    content["settings"] = {**settings, **changes.get("settings", {})}
    content["bias"] = {**bias, **changes.get("bias", {})}
    return from_dict(content)


def run(spec, out, **options):
    options = {"checkpoint_every": 100, "console": QUIET, **options}
    return train(spec, out, **options)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of all that must be equal: records, policy, and the last checkpoint's weights, optimizers, RNG, buffer"""
    parts = {name: (folder / name).read_bytes() for name in ROWS if (folder / name).exists()}
    parts[records.POLICY_WEIGHTS] = (folder / records.POLICY_WEIGHTS).read_bytes()
    last = sorted((folder / records.CHECKPOINTS).glob("step-*"))[-1]
    parts |= {name: (last / name).read_bytes() for name in (STATE, TENSORS)}
    found = Checkpoints(folder / records.CHECKPOINTS).read()
    assert found is not None
    assert found.whole
    parts["step"] = str(found.step).encode()
    parts["replay"] = replay(found)
    return {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}


def replay(found) -> bytes:
    """The transitions that are still there, however they were cut into segments"""
    told = found.state["replay"]
    content = []
    for name in ("observations/", "actions", "rewards"):
        content += [part[name].tobytes() for _, part in found.segments]
    ends = [(part["end_numbers"].tolist(), part["end_envs"].tolist()) for _, part in found.segments]
    content.append(repr([(n, e) for numbers, envs in ends for n, e in zip(numbers, envs, strict=True)]).encode())
    content += [part["ends/"].tobytes() for _, part in found.segments]
    return b"".join(content) + repr((told["added"], told["first"])).encode()
