"""A spec becomes a folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch as th
from rich.console import Console
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import KVWriter, Logger

from acc_rl.algos.calibrated import Calibrated
from acc_rl.core.errors import AccError, MissingExtra
from acc_rl.runs import envs
from acc_rl.runs.callbacks import (
    DivergenceCallback,
    EvaluationCallback,
    LogCallback,
    OnFault,
    Reached,
    ValueErrorCallback,
)
from acc_rl.runs.config import has_reached
from acc_rl.runs.exactness import wrapper_notice
from acc_rl.runs.folder import RunExists, clear, has_checkpoint, is_finished, last_saved, run_folder, tidy
from acc_rl.runs.interrupt import Stopped, StopRequest
from acc_rl.runs.model import accepted, make_model, policy_name, resolved
from acc_rl.runs.plugins import make_callbacks
from acc_rl.runs.preflight import TooLarge, check_resources, check_rounds
from acc_rl.runs.progress import ProgressCallback, print_line
from acc_rl.runs.provenance import record_start
from acc_rl.runs.resume import CheckpointCallback
from acc_rl.runs.spec import RunSpec
from acc_rl.runs.speed import forecast, seconds_per_step
from acc_rl.runs.threads import threads_of, torch_threads
from acc_rl.runs.vectors import processes_live
from acc_rl.runs.writers import RowWriter
from acc_rl.store import records
from acc_rl.store.checkpoint import Checkpoints
from acc_rl.store.lock import exclusive
from acc_rl.store.policy import acting_state, nets, save_policy, write_policy
from acc_rl.store.records import Rows

__all__ = ["RunExists", "Stopped", "accepted", "make_model", "train"]
FEW = 10_000
"""env steps that are not worth a forecast"""


def train(
    spec: RunSpec,
    out: Path | str = "runs",
    *,
    restart: bool = False,
    checkpoint_every: int = 10_000,
    on_fault: OnFault = "stop",
    seconds: float | None = None,
    estimate: bool = False,
    console: Console | None = None,
) -> Path:
    """Train as ``spec`` says and leave a folder that explains itself.

    A folder that holds a part of this run is resumed from its last checkpoint, bit-identical as if it had never
    stopped. SIGINT and SIGTERM save everything and end with ``Stopped``; so does the end of ``seconds``, where they are
    given, with ``TimeUp``. ``estimate`` prints how long it will take, from a few seconds of a throw-away copy.
    """
    started = time.monotonic()
    if checkpoint_every < 1:
        raise AccError(f"checkpoint_every is {checkpoint_every}, but must be an integer >= 1")
    if on_fault not in ("stop", "warn"):
        raise AccError(f"on_fault is {on_fault!r}, but must be 'stop' or 'warn'")
    console = console or Console(markup=False)
    folder = run_folder(Path(out), spec)
    if not restart and is_finished(folder, spec):
        result = records.read_json(folder / records.RESULT)
        if result["step"] >= spec.steps:
            done = f"all {spec.steps} steps are done"
        elif "ended_by" in result:
            done = f"a callback ended it at step {result['step']}, more --steps continue it"
        else:
            done = f"stop_at={spec.stop_at} was reached"
        print_line(console, f"{folder}: {done}; next: acc eval {folder}")
        return folder
    if not restart:
        Checkpoints(folder / records.CHECKPOINTS).refuse_links()
    check_rounds(spec, checkpoint_every)
    # before anything is written: most mistakes show here
    callbacks = make_callbacks(spec)
    envs.check(spec)
    left = spec.steps - (0 if restart else last_saved(folder))
    # without test episodes there may be one env, a robot: it is not to be moved to measure its speed
    estimate = estimate and left > FEW and spec.eval_episodes > 0
    told = forecast(spec, left, seconds_per_step(spec, folder)) if estimate else []
    try:
        model = make_model(spec, on_fault)  # which seeds all random streams
    except MemoryError as error:
        raise TooLarge(f"a replay buffer that large does not fit into memory ({error}): lower --buffer-size") from None
    except RuntimeError as error:  # torch's way of saying so
        if "allocate memory" not in str(error):
            raise
        raise TooLarge("nets that large do not fit into memory: lower --pi, --qf or --n-critics") from None
    needs = check_resources(model, spec.steps, folder)
    for line in [*told, *([str(needs)] if told else [])]:
        print_line(console, line)
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    deadline = None if seconds is None else started + seconds
    with exclusive(folder) as free, StopRequest(deadline) as stop, torch_threads(threads_of(spec, folder, model)):
        if not free:
            raise RunExists(f"another process is training in {folder}: wait for it, or end it")
        if restart or not has_checkpoint(folder):  # nothing to go on from
            clear(folder, all_of_it=restart)
            # first of all, so that whatever a crash leaves is known to be this run
            records.write_json(folder / records.SPEC, spec.as_dict())
        try:
            _Run(spec, folder, model, callbacks, checkpoint_every, on_fault, stop, console).go()
        except Exception as error:
            tidy(error, folder, made, model.num_timesteps)
            if (folder / records.TRACEBACK).exists():
                where = folder / records.TRACEBACK
                print_line(console, f"an error at step {model.num_timesteps}: its traceback is {where}")
            raise
    return folder


class _Run:
    """One run from start, or from its last checkpoint, to its end."""

    def __init__(
        self,
        spec: RunSpec,
        folder: Path,
        model: Calibrated,
        own: Mapping[str, BaseCallback],
        checkpoint_every: int,
        on_fault: OnFault,
        stop: StopRequest,
        console: Console,
    ) -> None:
        self.spec, self.folder, self.model, self.console = spec, folder, model, console
        self.own, self.best_written = list(own.values()), -1

        def make_env() -> envs.FiniteValues:
            return envs.FiniteValues(envs.make(spec, spec.horizon), on_fault)

        evaluations = folder / records.EVALUATIONS
        self.evaluation = EvaluationCallback(
            evaluations,
            make_env,
            spec.eval_every,
            spec.eval_episodes,
            spec.seed,
            stop.raise_if_asked,
            partial(acting_state, model),
            partial(has_reached, spec),
            discounted=spec.horizon is not None,
        )
        log = LogCallback(spec.log_every)
        parts: dict[str, Any] = {"evaluation": self.evaluation, "log": log}
        parts |= {name: each for name, each in own.items() if hasattr(each, "load_state_dict")}
        if spec.value_error:
            parts["value_error"] = ValueErrorCallback(folder / records.VALUE_ERROR)
        training, clock = Rows(folder / records.TRAINING), Rows(folder / records.CLOCK)
        rows = [self.evaluation.rows, training, clock]
        rows += [parts["value_error"].rows] if spec.value_error else []
        self.checkpoints = CheckpointCallback(
            folder / records.CHECKPOINTS, checkpoint_every, parts, rows, stop, self.save_policy, spec
        )
        self.writers = RowWriter(training, clock, self.checkpoints.clock)
        self.progress = ProgressCallback(spec.steps, spec.name, self.evaluation, console)
        watched = [DivergenceCallback(spec.log_every, on_fault), log, self.progress]
        value_error = [parts["value_error"]] if spec.value_error else []
        self.timed: dict[str, Any] = {"evaluation": self.evaluation, "checkpoints": self.checkpoints}
        self.timed |= {"value error": parts["value_error"]} if spec.value_error else {}
        order: list[BaseCallback] = [self.evaluation, *watched, *value_error, *self.own]
        self.callback = CallbackList([self.checkpoints.beginning, *order, self.checkpoints])

    def go(self) -> None:
        model, spec, folder = self.model, self.spec, self.folder
        done = self.checkpoints.resume(model)
        model.set_logger(Logger(str(folder), [*self.tensorboard(done), self.writers]))
        record_start(folder / records.PROVENANCE, spec.id, done or 0, th.get_num_threads())
        if done is not None:
            print_line(self.console, f"{folder}: resuming from step {done}")
        for notice in (wrapper_notice(spec), model.too_short(spec.steps)):
            if notice:
                print_line(self.console, notice)
        for name in (records.RESULT, records.TRACEBACK):
            (folder / name).unlink(missing_ok=True)
        records.write_json(folder / records.SPEC, {**spec.as_dict(), "resolved": resolved(model)})
        first = model.num_timesteps
        reached = False
        try:
            with processes_live(spec):
                model.learn(
                    spec.steps - first,
                    callback=self.callback,
                    log_interval=None,  # type: ignore[arg-type]
                    reset_num_timesteps=done is None,
                )
        except Reached:
            reached = True
            self.checkpoints.save()
            self.end_own()
        except Stopped as stopped:
            self.checkpoints.save()  # an evaluation may have been cut off
            self.end_own()
            saved = max(self.checkpoints.saved, 0)
            where = "" if saved == model.num_timesteps else f" from step {saved}, the last that could be saved"
            at = f"{stopped.told} at step {model.num_timesteps} of {spec.steps}"
            print_line(self.console, f"{at}; the same command resumes it{where}")
            raise
        finally:
            self.progress.close()
            self.evaluation.close()
            model.logger.close()
            if model.env is not None:
                model.env.close()
        self.finish(first, reached)

    def end_own(self) -> None:
        """Where ``learn`` did not come to its end: ours would add rows that an uninterrupted run does not have"""
        for each in self.own:
            each.on_training_end()

    def tensorboard(self, done: int | None) -> list[KVWriter]:
        """Its events, where it is installed; the records have the same numbers"""
        try:
            from acc_rl.runs.tensorboard import Events
        except MissingExtra as error:
            print_line(self.console, str(error))
            return []
        return [Events(self.folder / records.TENSORBOARD, done)]

    def save_policy(self) -> None:
        """The last policy and, in a folder of its own, the best"""
        model = self.model
        description: dict[str, Any] = {"algo": self.spec.algo, "policy": policy_name(model.observation_space)}
        description |= {"settings": self.spec.as_dict()["settings"], "nets": nets(model.policy_kwargs)}
        save_policy(self.folder, model, description)
        best, folder = self.evaluation.best, self.folder / records.BEST
        if best is None or best["step"] == self.best_written:
            return
        if folder.is_symlink():
            raise RunExists(f"{folder} is a link: remove it, the best policy of the run is written there")
        folder.mkdir(exist_ok=True)
        about = {**description, "step": best["step"], "mean_return": best["mean_return"]}
        write_policy(folder, model, about, best["weights"], best["normalizer"])
        self.best_written = best["step"]

    def finish(self, first: int, reached: bool) -> None:
        self.save_policy()
        last = self.evaluation.last
        clock = self.checkpoints.clock
        result: dict[str, Any] = {"step": self.model.num_timesteps, "seconds": clock.seconds, "evaluation": last}
        best = self.evaluation.best
        result |= {"best": {key: best[key] for key in ("step", "mean_return")}} if best is not None else {}
        result |= {"ended_by": "callback"} if self.model.num_timesteps < self.spec.steps and not reached else {}
        records.write_json(self.folder / records.RESULT, result)
        seconds = max(clock.seconds - clock.before, 1e-9)
        shares = ", ".join(f"{name} {100 * each.seconds / seconds:.1f} %" for name, each in self.timed.items())
        ending = f", last evaluation {last['mean_return']:.1f} +- {last['std_return']:.1f}" if last else ""
        if reached:
            at = f"stopped at step {self.model.num_timesteps} of {self.spec.steps}"
            print_line(self.console, f"{at}: an evaluation has reached stop_at={self.spec.stop_at:g}")
        elif self.model.num_timesteps < self.spec.steps:
            print_line(self.console, f"stopped at step {self.model.num_timesteps} of {self.spec.steps} by a callback")
        print_line(
            self.console,
            f"{self.folder}: {self.model.num_timesteps - first} steps in {seconds:.0f} s ({shares}){ending}; "
            f"next: acc eval {self.folder}",
        )
