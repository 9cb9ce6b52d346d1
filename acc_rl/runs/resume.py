"""A killed run resumes where it was, bit-identical."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from acc_rl.algos.buffers import SharedReplayBuffer
from acc_rl.algos.calibrated import Calibrated
from acc_rl.core.errors import AccError
from acc_rl.runs.callbacks import Diverged, ValueErrorCallback
from acc_rl.runs.config import differences, identity
from acc_rl.runs.exactness import warn_of_lost_state
from acc_rl.runs.interrupt import StopRequest
from acc_rl.runs.provenance import versions
from acc_rl.runs.spec import RunSpec
from acc_rl.runs.state import fingerprints, gather, require_declared, restore, restore_late
from acc_rl.store.checkpoint import Checkpoint, CheckpointError, Checkpoints
from acc_rl.store.records import Rows


class Stateful(Protocol):
    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any], model: OffPolicyAlgorithm) -> None: ...


class Clock:
    """Seconds of training, over all the times that the run was started"""

    def __init__(self) -> None:
        self.before, self.start = 0.0, time.perf_counter()

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.start


class CheckpointCallback(BaseCallback):
    """Writes a checkpoint every ``every`` env steps, when a signal asks for the end, and at the end.

    A disk that is full or cannot be written is a warning; the next try comes after the next ``every`` steps. It has to
    be the last of the callbacks, with ``beginning`` as the first of them. ``parts`` are other callbacks with a state,
    ``rows`` the files whose rows come and go with the checkpoint, ``also`` is called after each. Checkpoints of another
    run than ``spec`` are refused; without it a run has no identity. What no checkpoint keeps is named in a warning when
    training starts.
    """

    model: Calibrated

    def __init__(
        self,
        folder: Path,
        every: int = 10_000,
        parts: Mapping[str, Stateful] | None = None,
        rows: Sequence[Rows] = (),
        stop: StopRequest | None = None,
        also: Callable[[], None] = lambda: None,
        spec: RunSpec | None = None,
    ) -> None:
        super().__init__()
        self.store = Checkpoints(folder)
        self.every, self.parts, self.rows, self.stop, self.also = every, parts or {}, rows, stop, also
        self.spec = spec
        self.beginning = _Beginning()
        self.clock = Clock()
        self.seconds = 0.0
        """time spent on it"""
        self.next, self.saved, self.resumed = every, -1, -1
        self._before: dict[str, bytes] | None = None

    # --- resuming ---

    def _init_callback(self) -> None:
        if not isinstance(self.model.replay_buffer, SharedReplayBuffer):
            kind = type(self.model.replay_buffer).__name__
            raise AccError(f"the replay buffer is a {kind}, which has no checkpoints: leave replay_buffer_class out")

    def resume(self, model: Calibrated) -> int | None:
        """Bring the model, the parts and the rows to the last checkpoint; its step, or None where there is none."""
        self._require_same_run()
        found = self.store.read()
        if found is None:
            return None
        try:
            assert isinstance(model.replay_buffer, SharedReplayBuffer)
            found.fill(model.replay_buffer)
            fresh = restore(model, found.state)
            for name, part in self.parts.items():
                part.load_state_dict(found.state["parts"][name], model)
                if isinstance(part, ValueErrorCallback):
                    for index, final in fresh.items():
                        part.cut(index, final)
            for rows in self.rows:
                rows.cut(found.manifest["records"][rows.path.name])
            self.clock.before = float(found.manifest["seconds"])
            self.beginning.state = found.state
        except (KeyError, TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{self.store.folder}: its checkpoint does not fit this run: {reason}") from error
        self.saved = self.resumed = found.step
        self.next = _after(found.step, self.every)
        _warn_of_differences(found)
        return found.step

    def _require_same_run(self) -> None:
        """Before anything is read or removed. A checkpoint that names no run is taken as it is."""
        if self.spec is None:
            return
        for path, manifest in self.store.manifests().items():
            run = manifest.get("run")
            if isinstance(run, dict) and (differ := differences(run, self.spec)):
                raise CheckpointError(
                    f"{path}: is a checkpoint of another run (other {', '.join(differ)}): "
                    "put this run's checkpoints back, or use --restart to train it anew"
                )

    # --- saving ---

    def _on_training_start(self) -> None:
        first, self._before = self._before is None, fingerprints(self.model)
        if first:
            kept = (self, self.beginning, *self.parts.values())
            warn_of_lost_state(self.model, self.locals["callback"], kept, self._before)

    def _on_rollout_start(self) -> None:
        if self.model.num_timesteps >= self.next:
            self.save()
        if self.stop is not None and self.stop.asked:
            self.save()
            self.stop.raise_if_asked()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        # resumed at the very end, there was nothing left but what the parts do there
        self.save(again=self.model.num_timesteps == self.resumed)

    def save(self, again: bool = False) -> None:
        step = self.model.num_timesteps
        if step == self.saved and not again:
            return
        start = time.perf_counter()
        if self._before is not None:
            require_declared(self.model, self._before)
        for name, weights in self.model.policy.state_dict().items():
            if not th.isfinite(weights).all():
                raise Diverged(f"{name} is non-finite at step {step}: the checkpoint before it is kept")
        try:
            for rows in self.rows:
                rows.flush(sync=True)
            state = {**gather(self.model), "parts": {name: part.state_dict() for name, part in self.parts.items()}}
            assert isinstance(self.model.replay_buffer, SharedReplayBuffer)
            about = {
                "threads": th.get_num_threads(),
                "versions": versions(),
                "seconds": self.clock.seconds,
                **({} if self.spec is None else {"run": identity(self.spec.as_dict())}),
                "records": {rows.path.name: rows.fingerprint() for rows in self.rows},
            }
            self.store.write(step, state, self.model.replay_buffer, about)
            self.also()
            self.saved = step
        except (OSError, CheckpointError) as error:
            warnings.warn(
                f"no checkpoint could be written at step {step}: {error}; training continues, "
                f"the next try comes in {self.every} steps",
                stacklevel=2,
            )
        self.next = _after(step, self.every)
        self.seconds += time.perf_counter() - start


class _Beginning(BaseCallback):
    """Restores what ``learn`` itself uses or sets before the first step."""

    model: Calibrated

    def __init__(self) -> None:
        super().__init__()
        self.state: Mapping[str, Any] | None = None

    def _on_rollout_start(self) -> None:
        if self.state is not None:
            restore_late(self.model, self.state)
            self.state = None

    def _on_training_end(self) -> None:
        self._on_rollout_start()  # if there was none

    def _on_step(self) -> bool:
        return True


def _after(step: int, every: int) -> int:
    return (step // every + 1) * every


def _warn_of_differences(found: Checkpoint) -> None:
    now = {**versions(), "threads": th.get_num_threads()}
    then = {**found.manifest["versions"], "threads": found.manifest["threads"]}
    differ = [f"{name} {then.get(name)} -> {value}" for name, value in now.items() if then.get(name) != value]
    if differ:
        reason = ", ".join(differ)
        warnings.warn(f"resumed, but not bit-identical: {reason}", stacklevel=3)
