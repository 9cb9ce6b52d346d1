"""How far a run has come: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from contextlib import suppress

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback

from acc_rl.algos.calibrated import Calibrated
from acc_rl.runs.callbacks import EvaluationCallback

SHORT = {"dropped_per_net": "d"}


def print_line(console: Console, line: str) -> None:
    """A line as it is. A full disk under the log ends no run."""
    with suppress(OSError):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


class ProgressCallback(BaseCallback):
    """Steps per second, time left, last evaluation, d or beta, gap."""

    def __init__(self, total: int, title: str, evaluation: EvaluationCallback, console: Console) -> None:
        super().__init__()
        self.total, self.title, self.evaluation, self.console = total, title, evaluation, console
        self.bar: Progress | None = None
        self.shown = 0.0
        self.pause = 0.2 if console.is_terminal else 30.0
        """seconds between two signs of life"""

    def _on_training_start(self) -> None:
        self.start, self.first = time.monotonic(), self.model.num_timesteps
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, console=self.console)
            self.task = self.bar.add_task(self.title, total=self.total, completed=self.first, text="")
            self.bar.start()

    def _on_step(self) -> bool:
        if time.monotonic() - self.shown > self.pause:
            self._show()
        return True

    def _on_training_end(self) -> None:
        self._show()
        self.close()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _show(self) -> None:
        self.shown = time.monotonic()
        text = "  ".join(self.parts())
        if self.bar is not None:
            self.bar.update(self.task, completed=self.model.num_timesteps, text=text)
        else:
            print_line(self.console, f"{self.title}: {text}")

    def parts(self) -> list[str]:
        done = self.model.num_timesteps
        rate = (done - self.first) / max(time.monotonic() - self.start, 1e-9)
        parts = [f"{done}/{self.total}", f"{rate:.0f} steps/s"]
        if self.evaluation.last is not None:
            parts.append(f"evaluation {self.evaluation.last['mean_return']:.1f}")
        if not isinstance(self.model, Calibrated):
            return parts
        metrics, knob = self.model.calibration.metrics(), self.model.calibration.knob
        if knob.shown_as != "beta" or self.model.calibration.controller.adapts:
            parts.append(f"{SHORT.get(knob.shown_as, knob.shown_as)} {metrics[knob.shown_as]:.2f}")
        if metrics.get("at_limit"):
            parts.append("at its limit")
        if "gap" in metrics:
            parts.append(f"gap {metrics['gap']:+.2f}")
        return parts
