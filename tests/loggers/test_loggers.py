"""The examples for Weights & Biases and MLflow, with these libraries: `make test-loggers`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acc_rl.store import records

pytestmark = pytest.mark.loggers
EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = (
    "--steps 300 --pi 8 --qf 8 --batch-size 8 --learning-starts 50 --train-freq 10 --eval-episodes 1 --log-every 100"
)


def train(name, out):
    words = ["train", "Pendulum", *SMALL.split(), "--callback", f"loggers:{name}", "--out", str(out)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path])}
    command = [sys.executable, "-m", "acc_rl.commands.main", *words]
    result = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert result.returncode == 0, result.stderr
    (folder,) = out.glob("Pendulum*")
    return folder, [row["critic_loss"] for row in records.read(folder / records.TRAINING) if "critic_loss" in row]


def test_wandb_offline(tmp_path):
    pytest.importorskip("wandb")
    folder, losses = train("WandbLog", tmp_path)
    (file,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    content = file.read_bytes()
    assert b"train/critic_loss" in content
    assert all(str(loss).encode() in content for loss in losses)  # records are written as text
    assert len(losses) >= 2


def test_mlflow_in_a_folder(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    folder, losses = train("MlflowLog", tmp_path)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlruns' / 'mlflow.db'}")
    (experiment,) = [each for each in client.search_experiments() if each.name == "acc"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == folder.name
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "train/critic_loss")
    assert [each.value for each in sorted(history, key=lambda each: each.step)] == losses
