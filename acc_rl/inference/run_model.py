"""The model of a run, to go on with in a script."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

from acc_rl.algos.buffers import SharedReplayBuffer
from acc_rl.algos.calibrated import Calibrated
from acc_rl.inference.policy import load_policy
from acc_rl.runs.config import read_spec
from acc_rl.runs.state import restore
from acc_rl.runs.train import make_model
from acc_rl.store import records
from acc_rl.store.checkpoint import CheckpointError, Checkpoints
from acc_rl.store.policy import acting_module


def load_model(folder: Path | str, device: str | None = None) -> Calibrated:
    """The SB3 model of a run: from its newest checkpoint, with replay buffer and envs, or else from its final policy.

    The run's files are only read: ``learn(steps, reset_num_timesteps=False)`` trains on in memory. A final policy comes
    without critics, so these are new and a warning says so.
    """
    folder = Path(folder)
    spec = read_spec(folder)
    found = Checkpoints(folder / records.CHECKPOINTS).read()
    policy = None if found is not None else load_policy(folder).policy
    model = make_model(spec if device is None else replace(spec, device=device))
    try:
        if found is not None:
            assert isinstance(model.replay_buffer, SharedReplayBuffer)
            found.fill(model.replay_buffer)
            restore(model, found.state)
        elif policy is not None:
            acting_module(model.policy).load_state_dict(acting_module(policy).state_dict())
            warnings.warn(
                f"{folder}: has no checkpoint: its policy is the final one, its critics are new", stacklevel=2
            )
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
        raise CheckpointError(f"{folder}: its model cannot be restored: {type(error).__name__}: {error}") from error
    return model
