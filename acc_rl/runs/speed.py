"""How fast a run will be, from a few seconds of a throw-away copy. The run itself is seeded afterwards."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger

from acc_rl.algos.registry import find
from acc_rl.runs import envs
from acc_rl.runs.model import make_model
from acc_rl.runs.spec import RunSpec
from acc_rl.runs.threads import threads_of, torch_threads

FIRST = 40
"""env steps before training is timed, the first of them without training"""
ENOUGH, MOST = 1.0, 5.0
"""seconds of training that are timed at least, and all of it at most: a simulator may be slow"""
UNKNOWN_LENGTH = 1000
"""steps of an episode where the task names no limit"""
LONG = 4 * 3600.0
"""seconds from which on a faster algorithm is named"""


@dataclass(frozen=True)
class Cost:
    """Seconds of one core."""

    step: float
    """one step of the env"""
    length: int
    """steps of an episode, at most"""


def seconds_per_step(spec: RunSpec, folder: Path) -> float:
    """training + env step + evaluation, where test episodes are taken to last until their time limit"""
    return training_seconds(spec, folder) + evaluation_seconds(spec, env_cost(spec))


def evaluation_seconds(spec: RunSpec, env: Cost) -> float:
    """Per env step of training"""
    return spec.eval_episodes * (spec.horizon or env.length) * env.step / spec.eval_every


def env_cost(task: RunSpec, steps: int = 300) -> Cost:
    env = envs.make(task, endless=task.horizon is not None)
    env.action_space.seed(0)
    env.reset(seed=0)
    start, done, seconds = time.perf_counter(), 0, 0.0
    while done < steps and seconds < ENOUGH:
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
        done, seconds = done + 1, time.perf_counter() - start
    limit = env.spec.max_episode_steps if env.spec is not None else None
    env.close()
    return Cost(seconds / done, limit or UNKNOWN_LENGTH)


def training_seconds(spec: RunSpec, folder: Path) -> float:
    """Seconds per env step, training included; ``folder`` is the run's, which may tell how many threads it has"""
    settings = replace(spec.settings, learning_starts=FIRST // 2, buffer_size=2000 * spec.n_envs)
    timer = _Timer()
    model = make_model(replace(spec, settings=settings))
    model.set_logger(Logger(None, []))
    try:
        with torch_threads(threads_of(spec, folder, model)):
            model.learn(10**9, callback=timer, log_interval=None)  # type: ignore[arg-type]
    finally:
        assert model.env is not None
        model.env.close()
    return timer.seconds_per_step


class _Timer(BaseCallback):
    """Ends ``learn`` after ``ENOUGH`` seconds of whole rounds of training, or after ``MOST`` seconds of anything."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[tuple[float, int]] = []
        """times and env steps: of the start, of the first round that counts, and of the last"""

    def _mark(self) -> tuple[float, int]:
        return time.perf_counter(), self.model.num_timesteps

    def _on_rollout_start(self) -> None:
        mark = self._mark()
        due = (True, mark[1] >= FIRST, bool(self.marks) and mark[0] - self.marks[-1][0] >= ENOUGH, False)
        if due[len(self.marks)]:
            self.marks.append(mark)

    def _on_step(self) -> bool:
        return len(self.marks) < 3 and time.perf_counter() - self.marks[0][0] < MOST

    def _on_training_end(self) -> None:
        if len(self.marks) < 3:
            self.marks.append(self._mark())

    @property
    def seconds_per_step(self) -> float:
        *_, (start, first), (end, last) = self.marks
        return (end - start) / max(last - first, 1)


def forecast(spec: RunSpec, left: int, seconds: float) -> list[str]:
    """Lines for someone who has just started a run of that speed"""
    told = [f"{spec.name}: {left:,} steps at about {1 / seconds:.3g} per second take about {duration(left * seconds)}"]
    entry = find(spec.algo)
    if left * seconds > LONG and entry.module == "tqc" and entry.net_arch is None and spec.settings.qf is None:
        told.append(
            f"{spec.algo} has the paper's nets; --algo acc-x or --algo acc-compact, with two critics of 2x256, are "
            "several times as fast"
        )
    return told


def duration(seconds: float) -> str:
    """Two digits are all that a forecast is worth"""
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.2g} {name}"
    return f"{seconds:.0f} seconds"
