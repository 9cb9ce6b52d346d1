"""Ctrl-C and SIGTERM end a run between two steps, where it can be saved. No torch."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from typing_extensions import Self


class Stopped(KeyboardInterrupt):
    """A signal asked for the end, and everything is saved."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number


class StopRequest:
    """``with StopRequest() as stop:`` remembers the first SIGINT or SIGTERM; a second one ends the process at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._remember) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        for each in self.SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    def raise_if_asked(self) -> None:
        if self.signal is not None:
            raise Stopped(self.signal)
