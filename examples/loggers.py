"""A run's log in Weights & Biases or MLflow: `PYTHONPATH=examples acc train Pendulum --callback loggers:WandbLog`."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter


class Numbers(KVWriter):
    """Gives the numbers of each line of the log, and its step, to a function."""

    def __init__(self, log: Callable[..., Any]) -> None:
        self.log = log

    def write(self, key_values: Mapping[str, Any], key_excluded: Mapping[str, Any], step: int = 0) -> None:
        self.log({key: float(each) for key, each in key_values.items() if not isinstance(each, str)}, step=step)

    def close(self) -> None:
        pass


class WandbLog(BaseCallback):
    """In the run's folder, without a network; WANDB_MODE=online sends it."""

    def _on_training_start(self) -> None:
        import wandb

        folder, mode = Path(self.logger.dir), os.environ.get("WANDB_MODE", "offline")
        self.run = wandb.init(project="acc", name=folder.name, dir=folder, mode=mode)
        self.logger.output_formats.append(Numbers(self.run.log))

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.run.finish()


class MlflowLog(BaseCallback):
    """In the folder mlruns beside the run's; MLFLOW_TRACKING_URI names another place."""

    def _on_training_start(self) -> None:
        import mlflow

        folder, place = Path(self.logger.dir), Path(self.logger.dir).absolute().parent / "mlruns"
        place.mkdir(exist_ok=True)
        mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{place / 'mlflow.db'}"))
        mlflow.set_experiment("acc")
        mlflow.start_run(run_name=folder.name)
        self.end = mlflow.end_run
        self.logger.output_formats.append(Numbers(mlflow.log_metrics))

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.end()
