"""Small runs, and how to tell whether two of them are the same to the bit."""

import hashlib
import os
import signal
import time
from pathlib import Path

from rich.console import Console

from acc_rl.algos.calibrated import Calibrated
from acc_rl.runs.spec import from_dict
from acc_rl.runs.train import train
from acc_rl.store import records
from acc_rl.store.checkpoint import STATE, TENSORS, Checkpoints

ROWS = (records.EVALUATIONS, records.TRAINING, records.VALUE_ERROR)
ALGORITHMS = ("acc", "tqc", "sac", "td3", "acc-td3")
QUIET = Console(quiet=True)


def tiny(env="Pendulum-v1", algo="acc", **changes):
    """A run of a second: 500 steps, the rule turns beta, the ring goes round."""
    settings = {"learning_starts": 100, "batch_size": 16, "buffer_size": 300, "qf": [16, 16], "pi": [16]}
    settings["train_freq"] = 4
    if algo in ("acc-dqn", "acc-qrdqn"):
        settings = {**settings, "target_update_interval": 50}
        del settings["pi"]
    bias = {"start_step": 300, "update_interval": 100, "pairs_kept": 400}
    content = {"env": env, "algo": algo, "steps": 500, "eval_every": 200, "eval_episodes": 1, "log_every": 100}
    content |= {"threads": 1, **{key: value for key, value in changes.items() if key not in ("settings", "bias")}}
    content["settings"] = {**settings, **changes.get("settings", {})}
    content["bias"] = {**bias, **changes.get("bias", {})}
    return from_dict(content)


def run(spec, out, **options):
    options = {"checkpoint_every": 100, "console": QUIET, **options}
    return train(spec, out, **options)


class Crash(BaseException):
    """As sudden as kill -9: nothing of ours may catch it."""


def at_step(monkeypatch, step, action):
    """``action()`` in the middle of the first step at or after ``step``"""
    original, done = Calibrated._store_transition, []

    def store(self, *args):
        if self.num_timesteps >= step and not done:
            done.append(True)
            action()
        return original(self, *args)

    monkeypatch.setattr(Calibrated, "_store_transition", store)


def crash():
    raise Crash


def killed_until_done(spec, out, kills, seconds, rng):
    """Children that run the spec, ``kills`` of them killed by signal 9 within about ``seconds``; how often it hit"""
    hit = 0
    while True:
        child = os.fork()
        if child == 0:
            try:
                run(spec, out)
            finally:
                os._exit(0 if (out / spec.name / records.RESULT).exists() else 1)
        if hit < kills:
            time.sleep(rng.uniform(0.1, 0.9) * seconds / kills)
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            hit += 1
            continue
        assert os.WEXITSTATUS(status) == 0
        return out / spec.name, hit


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
    spec = records.read_json(folder / records.SPEC)
    parts["replay"] = replay(found, spec["settings"]["buffer_size"] // spec["n_envs"])
    return {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}


def replay(found, size) -> bytes:
    """The transitions that are still there, however they were cut into segments"""
    told = found.state["replay"]
    oldest = told["added"] - size
    content = {}
    for segment, part in found.segments:
        for i in range(max(segment.first, oldest), segment.last):
            row = (part[name][i - segment.first].tobytes() for name in ("observations/", "actions", "rewards"))
            content[i] = b"".join(row)
        numbers, flagged = part["end_numbers"], range(segment.last - len(part["dones"]), segment.last)
        for i, dones, timeouts in zip(flagged, part["dones"], part["timeouts"], strict=True):
            content[i, "flags"] = dones.tobytes() + timeouts.tobytes()
        for number, env, end in zip(numbers.tolist(), part["end_envs"].tolist(), part["ends/"], strict=True):
            content[number, env] = end.tobytes()
    alive = {key: value for key, value in content.items() if (key[0] if isinstance(key, tuple) else key) >= oldest}
    return repr((told["added"], told["first"], sorted(alive.items(), key=repr))).encode()
