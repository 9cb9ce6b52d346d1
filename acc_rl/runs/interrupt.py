"""Ctrl-C and SIGTERM end a run between two steps, where it can be saved. No torch."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, ClassVar

from typing_extensions import Self


class Stopped(KeyboardInterrupt):
    """A signal asked for the end, and everything is saved."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number
        self.told = "stopped"


class TimeUp(Stopped):
    """The time that the run was given is over, and everything is saved."""

    def __init__(self) -> None:
        KeyboardInterrupt.__init__(self, "the time is up")
        self.exit_code = 0
        self.told = "its time is up: stopped"


PATIENCE = 2.0
"""seconds in which further signals are the same request: a terminal, systemd or SLURM may tell a process twice"""


class StopRequest:
    """``with StopRequest() as stop:`` remembers the first SIGINT or SIGTERM; a later one ends the process at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)
    active: ClassVar[StopRequest | None] = None

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline
        """moment of ``time.monotonic`` that is as good as a signal"""
        self.signal: int | None = None
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._remember) for number in self.SIGNALS}
        StopRequest.active = self
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        StopRequest.active = None

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal, self._since = number, time.monotonic()
        elif time.monotonic() - self._since > PATIENCE:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    @classmethod
    def ask(cls) -> None:
        """As SIGTERM would, but from within the process: it never counts as a second request."""
        if cls.active is None:
            os.kill(os.getpid(), signal.SIGTERM)
        elif cls.active.signal is None:
            cls.active.signal = signal.SIGTERM

    @property
    def asked(self) -> bool:
        return self.signal is not None or (self.deadline is not None and time.monotonic() >= self.deadline)

    def raise_if_asked(self) -> None:
        if self.signal is not None:
            raise Stopped(self.signal)
        if self.asked:
            raise TimeUp
