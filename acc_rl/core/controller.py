"""Who turns beta, and by what evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from acc_rl.core.errors import AccError
from acc_rl.core.settings import BiasSettings

EPS = 1e-8
STUCK = 10
"""updates at an end of the range, with the gap pointing outward, after which it is reported"""


class NonFiniteGap(AccError):
    """The critic or the returns are no longer finite."""


@dataclass(frozen=True)
class Evidence:
    """What recent returns say about the critic."""

    gap: float
    """mean(R - Q); positive: the critic underestimates"""
    error: float
    """its standard error, clustered by episode; NaN with a single episode"""
    step: int
    """env steps so far"""
    mean_return: float = math.nan
    mean_q: float = math.nan


class Controller:
    """Base of all controllers: a ``beta`` that stays where it started.

    A controller of your own overrides ``measured`` (a gap was measured), ``ended`` (an episode ended) or ``trained``
    (a minibatch was learned from), and sets ``self.beta`` there. ``beta`` up must mean: larger targets.
    """

    adapts: ClassVar[bool] = True
    """whether it ever turns beta"""
    wants_td_error: ClassVar[bool] = False
    """whether ``trained`` is to be called"""
    stored: ClassVar[tuple[str, ...]] = ("beta",)
    """names of the numbers that are its state; None is stored as NaN"""

    def begin(self, settings: BiasSettings) -> None:
        """``settings`` are complete: the knob's range, start and step, and the user's changes."""
        assert settings.start is not None
        self.settings, self.beta = settings, settings.start

    def measured(self, evidence: Evidence) -> None:
        """A gap was measured."""

    def ended(self, episode_return: float, step: int) -> None:
        """An episode ended with this undiscounted return."""

    def trained(self, td_error: Any) -> None:
        """mean over a minibatch of (mean online estimate - target), still a tensor"""

    def advance(self) -> None:
        """Called before each env step: the place to turn beta by what ``trained`` has accumulated"""

    def metrics(self) -> dict[str, float]:
        """What it logs beside beta"""
        return {}

    def state_dict(self) -> dict[str, float]:
        values = {name: getattr(self, name) for name in self.stored}
        return {name: math.nan if value is None else float(value) for name, value in values.items()}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        for name in self.stored:
            if name in state:
                setattr(self, name, None if math.isnan(state[name]) else float(state[name]))

    def clipped(self, beta: float) -> float:
        assert self.settings.range is not None
        low, high = self.settings.range
        return min(max(beta, low), high)


class Constant(Controller):
    """``beta`` stays; the gap is still measured, so that it can be logged."""

    adapts = False
    stored = ()


class Calibrating(Controller):
    """ACC: gap = mean(R - Q) > 0 means that the critic underestimates, so beta, and with it Q, goes up."""

    stored = ("beta", "scale", "stuck")

    def begin(self, settings: BiasSettings) -> None:
        super().begin(settings)
        self.scale: float | None = None
        """moving average of |gap|"""
        self.stuck = 0.0
        """updates in a row at an end of the range with the gap pointing outward"""

    def measured(self, evidence: Evidence) -> None:
        """scale = |gap|, then (1 - c) * scale + c * |gap|; beta = clip(beta + lr * gap / (scale + 1e-8), low, high)"""
        gap, c, lr = evidence.gap, self.settings.moving_average, self.settings.lr
        if not math.isfinite(gap):
            raise NonFiniteGap(f"gap is {gap!r} at step {evidence.step}: the critic or the returns are non-finite")
        assert c is not None
        assert lr is not None
        self.scale = abs(gap) if self.scale is None else (1 - c) * self.scale + c * abs(gap)
        wanted = self.beta + lr * gap / (self.scale + EPS)
        self.beta = self.clipped(wanted)
        self.stuck = self.stuck + 1 if self.beta != wanted else 0.0

    @property
    def at_limit(self) -> bool:
        """Whether beta has wanted to leave its range for ten updates in a row"""
        return self.stuck >= STUCK

    def metrics(self) -> dict[str, float]:
        return ({} if self.scale is None else {"scale": self.scale}) | {"at_limit": float(self.at_limit)}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        super().load_state_dict(state)
        self.beta = self.clipped(self.beta)  # it may have been saved with another range


CONTROLLERS: Mapping[str, type[Controller]] = {"acc": Calibrating, "fixed": Constant}


def make_controller(which: Any) -> Controller:
    """A controller by name, or the object itself"""
    if isinstance(which, Controller):
        return which
    if which not in CONTROLLERS:
        raise AccError(f"controller is {which!r}, but must be {', '.join(map(repr, CONTROLLERS))} or a Controller")
    return CONTROLLERS[which]()
