"""The settings of calibration: one dataclass for Python, files and the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from acc_rl.core.checks import hint, is_number, is_whole
from acc_rl.core.errors import SettingError


@dataclass(frozen=True)
class BiasSettings:
    """When and how the critic is compared with returns, and how far beta may go; None: the algorithm's default."""

    start: float | None = None
    """beta before the first update"""
    range: tuple[float, float] | None = None
    """smallest and largest beta"""
    lr: float | None = None
    """step of beta for a gap as large as usual"""
    update_interval: int | None = None
    """env steps between two updates, at least (T_beta)"""
    start_step: int | None = None
    """env steps before the first update (T_init)"""
    pairs_kept: int | None = None
    """state-action pairs that stay for the next update (S_R)"""
    moving_average: float | None = None
    """weight of the newest |gap| in the scale"""
    returns: Literal["plain", "soft"] | None = None
    """plain: discounted rewards; soft: with the entropy bonus that a soft critic contains"""
    tail: str | None = None
    """after a time limit: none, bootstrap (the critic's value there), or drop:N to leave the last N pairs out"""

    evidence: Literal["episodes", "steps"] | None = None
    """episodes: returns to their ends (the paper); steps: n-step residuals of the latest steps, no end needed"""
    evidence_steps: int | None = None
    """n of the residuals of evidence=steps"""
    rule: Literal["paper", "confident"] | None = None
    """paper: steps of about lr, whatever is known; confident: steps fit to the gap, its error and the knob's effect"""
    target_bias: float | None = None
    """the bias Q - R that is wanted, as a share of the mean return: 0 is the paper's, -0.2 underestimates by a fifth"""
    warm_up: Literal["keep", "skip"] | None = None
    """steps with random actions before learning starts: kept as pairs (the paper), or skipped"""

    def __post_init__(self) -> None:
        for name, value in _normalised(self).items():
            object.__setattr__(self, name, value)
        for name, (allowed, holds) in ALLOWED.items():
            value = getattr(self, name)
            if value is not None and not holds(value):
                raise SettingError(f"bias.{name} is {value!r}, but must be {allowed}")
        if self.start is not None and self.range is not None and not self.range[0] <= self.start <= self.range[1]:
            low, high = self.range
            raise SettingError(f"bias.start is {self.start!r}, but must be a number in [{low}, {high}]")

    @property
    def dropped_tail(self) -> int:
        """Pairs that are left out before a time limit"""
        return int(self.tail.removeprefix("drop:")) if self.tail and self.tail.startswith("drop:") else 0

    def due(self, step: int, last: int) -> bool:
        """Whether an episode that ends at ``step`` brings an update, the last one having been at ``last``"""
        assert self.start_step is not None
        assert self.update_interval is not None
        return step >= self.start_step and step - last >= self.update_interval

    def given(self) -> dict[str, Any]:
        """What is not left to the algorithm"""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def merged(self, changes: BiasSettings | Mapping[str, Any] | None) -> BiasSettings:
        """These settings with ``changes`` on top."""
        if isinstance(changes, BiasSettings):
            changes = changes.given()
        changes = {} if changes is None else changes
        if not isinstance(changes, Mapping):
            raise SettingError(f"bias is {changes!r}, but must be BiasSettings or a mapping of what differs")
        known = self.__dataclass_fields__
        for name in changes:
            if name not in known:
                raise SettingError(f"bias: unknown setting {name!r}; {hint(str(name), known)}")
        return replace(self, **changes)


def _normalised(settings: BiasSettings) -> dict[str, Any]:
    """Lists (JSON and TOML know no tuples) and ("drop", n) in the form that is kept"""
    changed: dict[str, Any] = {}
    if settings.range is not None:
        try:
            low, high = settings.range
            changed["range"] = (float(low), float(high))
        except (TypeError, ValueError):
            raise SettingError(f"bias.range is {settings.range!r}, but must be two numbers (low, high)") from None
    tail: Any = settings.tail
    if isinstance(tail, (tuple, list)) and len(tail) == 2 and tail[0] == "drop":
        changed["tail"] = f"drop:{tail[1]}"
    return changed


def _is_range(value: tuple[float, float]) -> bool:
    return all(map(math.isfinite, value)) and value[0] < value[1]


ALLOWED = {
    "range": ("low < high, both finite", _is_range),
    "start": ("a finite number", is_number),
    "target_bias": ("a finite number", is_number),
    "lr": ("a positive number", lambda value: is_number(value) and value > 0),
    "update_interval": ("an integer >= 1", lambda value: is_whole(value, 1)),
    "pairs_kept": ("an integer >= 1", lambda value: is_whole(value, 1)),
    "start_step": ("an integer >= 0", is_whole),
    "moving_average": ("a number in (0, 1]", lambda value: is_number(value) and 0 < value <= 1),
    "returns": ("'plain' or 'soft'", lambda value: value in ("plain", "soft")),
    "evidence": ("'episodes' or 'steps'", lambda value: value in ("episodes", "steps")),
    "evidence_steps": ("an integer >= 1", lambda value: is_whole(value, 1)),
    "rule": ("'paper' or 'confident'", lambda value: value in ("paper", "confident")),
    "warm_up": ("'keep' or 'skip'", lambda value: value in ("keep", "skip")),
    "tail": (
        "'none', 'bootstrap', or ('drop', n), 'drop:N' with an integer >= 1",
        lambda value: isinstance(value, str) and re.fullmatch(r"none|bootstrap|drop:[1-9][0-9]*", value) is not None,
    ),
}
PAPER = BiasSettings(
    update_interval=1000,
    start_step=25_000,
    pairs_kept=5000,
    moving_average=0.05,
    returns="plain",
    tail="none",
    evidence="episodes",
    evidence_steps=200,
    rule="paper",
    target_bias=0.0,
    warm_up="keep",
)
"""the paper's; range, start and lr belong to the knob"""
EARLY = BiasSettings(start_step=0, warm_up="skip")
"""from the first episodes of the learned policy on, as the confident rule can"""
