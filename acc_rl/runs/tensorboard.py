"""The log of a run as TensorBoard's events."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import TensorBoardOutputFormat

from acc_rl.core.errors import needs
from acc_rl.store.files import require_writable

with needs("tensorboard", "no TensorBoard, so no events are written"):
    from torch.utils.tensorboard import SummaryWriter


class Events(TensorBoardOutputFormat):
    """Events after the step where a run resumes are not shown; a disk that is full ends the events, not the run."""

    def __init__(self, folder: Path, resumed_at: int | None) -> None:
        super().__init__(str(folder))
        if resumed_at is not None:
            self.writer.close()
            self.writer = SummaryWriter(str(folder), purge_step=resumed_at + 1)

    def write(self, *args: Any, **kwargs: Any) -> None:
        if self._is_closed:
            return
        require_writable()
        try:
            super().write(*args, **kwargs)
        except OSError as error:
            warnings.warn(f"TensorBoard's events cannot be written: {error.strerror}", stacklevel=2)
            self._is_closed = True

    def close(self) -> None:
        with contextlib.suppress(OSError):  # its folder was removed: what ended the run is to be reported, not this
            super().close()
