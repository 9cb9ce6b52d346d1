"""Studies of seconds."""

import hashlib
import subprocess
import sys
from pathlib import Path

import psutil

from acc_rl.study.attempts import read_attempts
from acc_rl.study.folder import open_study
from acc_rl.study.grid import grid_from_dict
from acc_rl.study.worker import Options

OPTIONS = Options(checkpoint_every=150)
COMMAND = [sys.executable, "-m", "acc_rl.commands.main", "study"]
CONTENT = {
    "name": "small",
    "tasks": ["Pendulum-v1"],
    "variants": ["acc", "td3"],
    "seeds": 1,
    "steps": 400,
    "eval_every": 200,
    "eval_episodes": 1,
    "log_every": 100,
    "settings": {"pi": [8], "qf": [8], "batch_size": 8, "buffer_size": 1000, "learning_starts": 200},
    "bias": {"start_step": 200, "update_interval": 200},
}
FILE = """
name = "small"
tasks = ["{task}"]
variants = {variants}
seeds = {seeds}
steps = {steps}
eval_every = 200
eval_episodes = 1
log_every = 100
{more}
[settings]
pi = [8]
qf = [8]
batch_size = 8
buffer_size = 1000
learning_starts = 200
[bias]
start_step = 200
update_interval = 200
"""
EXACT = ("evaluations.jsonl", "training.jsonl", "value_error.jsonl", "policy.safetensors")


def write_file(path, task="Pendulum-v1", variants=("acc",), seeds=1, steps=400, more=""):
    path.write_text(FILE.format(task=task, variants=list(variants), seeds=seeds, steps=steps, more=more))
    return path


def small_study(out, **changes):
    grid = grid_from_dict({**CONTENT, **changes}, "small")
    return open_study(out / "small", "small", "test", 1.0, grid.runs())


def digests(folder):
    """SHA-256 of what must be equal, bit for bit, by run and file"""
    return {
        f"{path.parent.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(folder).glob("*/*"))
        if path.name in EXACT
    }


def tried(study, spec=None):
    return read_attempts(study.folder).get((spec or study.runs[0]).name, [])


def hows(study, spec=None):
    return [each.end.how if each.end else None for each in tried(study, spec)]


def alive(attempt):
    """Whether its worker is"""
    pid = attempt.worker["pid"]
    if pid is None:
        return False
    try:
        process = psutil.Process(pid)
        same = process.create_time() == attempt.worker["start_time"]
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command(*words, **kwargs):
    return subprocess.Popen(
        [*COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
    )


class Notes:
    """Told by an executor; calls ``look`` several times per second."""

    def __init__(self, look=lambda: None):
        self.look, self.lines = look, []

    def started(self, spec):
        self.lines.append((spec.name, "started"))

    def ended(self, spec, how):
        self.lines.append((spec.name, how))

    def refresh(self):
        self.look()
