"""The rule that turns ``beta``, the one knob of a family of value estimates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from acc_rl.core.checks import is_number, is_whole

EPS = 1e-8
Tail: TypeAlias = Literal["none", "bootstrap"] | tuple[Literal["drop"], int]


@dataclass(frozen=True)
class BiasSettings:
    """What the rule needs to know; the defaults are the paper's for TQC."""

    start: float = 2.5
    """beta before the first update"""
    range: tuple[float, float] = (0.0, 5.0)
    """smallest and largest beta"""
    lr: float = 0.1
    """step of beta for a gap as large as usual"""
    update_interval: int = 1000
    """env steps between two updates, at least (T_beta)"""
    start_step: int = 25_000
    """env steps before the first update (T_init)"""
    pairs_kept: int = 5000
    """state-action pairs that stay for the next update (S_R)"""
    moving_average: float = 0.05
    """weight of the newest |gap| in the scale"""
    returns: Literal["plain", "soft"] = "plain"
    """plain: discounted rewards; soft: with the entropy bonus that a soft critic contains"""
    tail: Tail = "none"
    """what follows a time limit: nothing, the critic's value there, or ("drop", n): the last n pairs are left out"""

    def __post_init__(self) -> None:
        low, high = _pair("range", self.range)
        object.__setattr__(self, "range", (low, high))
        if isinstance(self.tail, list):  # JSON and TOML know no tuples
            object.__setattr__(self, "tail", tuple(self.tail))
        _require(
            "range",
            self.range,
            math.isfinite(low) and math.isfinite(high) and low < high,
            "low < high, both finite",
        )
        for name in ("start", "lr", "moving_average"):
            _require(name, getattr(self, name), is_number(getattr(self, name)), "a finite number")
        _require("start", self.start, low <= self.start <= high, f"a number in [{low}, {high}]")
        _require("lr", self.lr, self.lr > 0, "a positive number")
        for name in ("update_interval", "pairs_kept"):
            value = getattr(self, name)
            _require(name, value, is_whole(value, 1), "a whole number >= 1")
        _require("start_step", self.start_step, is_whole(self.start_step), "a whole number >= 0")
        _require("moving_average", self.moving_average, 0 < self.moving_average <= 1, "a number in (0, 1]")
        _require("returns", self.returns, self.returns in ("plain", "soft"), "'plain' or 'soft'")
        _require("tail", self.tail, _is_tail(self.tail), "'none', 'bootstrap' or ('drop', n) with a whole n >= 1")

    def merged(self, changes: BiasSettings | Mapping[str, Any] | None) -> BiasSettings:
        """These settings with ``changes`` on top; a whole ``BiasSettings`` replaces them."""
        if isinstance(changes, BiasSettings):
            return changes
        changes = {} if changes is None else changes
        if not isinstance(changes, Mapping):
            raise ValueError(f"bias is {changes!r}, but must be BiasSettings or a mapping of what differs")
        known = set(self.__dataclass_fields__)
        if unknown := set(changes) - known:
            raise ValueError(f"bias: unknown setting {sorted(unknown)[0]!r}; known are {', '.join(sorted(known))}")
        return replace(self, **changes)


def _require(field: str, value: object, ok: bool, allowed: str) -> None:
    if not ok:
        raise ValueError(f"bias.{field} is {value!r}, but must be {allowed}")


def _pair(field: str, value: Any) -> tuple[float, float]:
    try:
        low, high = value
        return float(low), float(high)
    except (TypeError, ValueError):
        raise ValueError(f"bias.{field} is {value!r}, but must be two numbers (low, high)") from None


def _is_tail(tail: object) -> bool:
    if isinstance(tail, tuple):
        return len(tail) == 2 and tail[0] == "drop" and is_whole(tail[1], 1)
    return tail in ("none", "bootstrap")


class FixedBias:
    """A ``beta`` that stays where it is; the gap is still measured on the same schedule, so it can be logged."""

    def __init__(self, beta: float, settings: BiasSettings | None = None) -> None:
        if not math.isfinite(beta):
            raise ValueError(f"beta is {beta!r}, but must be a finite number")
        self.settings = settings or BiasSettings()
        self.beta = float(beta)
        self.scale: float | None = None
        self.last_update = 0

    def due(self, step: int) -> bool:
        """Whether an episode that ends at ``step`` brings an update."""
        return step >= self.settings.start_step and step - self.last_update >= self.settings.update_interval

    def update(self, gap: float, step: int) -> None:
        """scale = |gap| at the first update, then (1 - c) * scale + c * |gap|"""
        if not math.isfinite(gap):
            raise ValueError(f"gap is {gap!r} at step {step}: the critic or the returns are no longer finite")
        c = self.settings.moving_average
        self.scale = abs(gap) if self.scale is None else (1 - c) * self.scale + c * abs(gap)
        self.last_update = step

    def restart_clock(self) -> None:
        """Count steps from zero again; what was learned about beta and its scale stays."""
        self.last_update = 0

    def state_dict(self) -> dict[str, Any]:
        return {"beta": self.beta, "scale": self.scale, "last_update": self.last_update}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.scale, self.last_update = state["scale"], state["last_update"]


class AdaptiveBias(FixedBias):
    """The ACC rule: gap = mean(R - Q) > 0 says that the critic underestimates, so beta, and with it Q, goes up."""

    def __init__(self, settings: BiasSettings | None = None) -> None:
        settings = settings or BiasSettings()
        super().__init__(settings.start, settings)

    def update(self, gap: float, step: int) -> None:
        """beta = clip(beta + lr * gap / (scale + 1e-8), low, high)"""
        super().update(gap, step)
        assert self.scale is not None
        self.beta = self._clipped(self.beta + self.settings.lr * gap / (self.scale + EPS))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.beta = self._clipped(state["beta"])  # it may have been saved with another range

    def _clipped(self, beta: float) -> float:
        low, high = self.settings.range
        return min(max(beta, low), high)
