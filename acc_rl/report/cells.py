"""Tables as data: what stands in a cell, what a column sorts by, and how many digits a number is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_DECIMALS = 6


@dataclass(frozen=True)
class Cell:
    text: str
    value: float | None = None
    """what a numeric column sorts by"""
    about: str = ""
    """shown on hover"""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """its columns in a CSV file, in full digits; without any, the value or the text under the column's title"""


@dataclass(frozen=True)
class Row:
    cells: list[Cell]
    series: str = ""
    """the algorithm, for its colour and to be hidden with it"""


@dataclass(frozen=True)
class Table:
    titles: list[str]
    rows: list[Row]
    numeric: set[int] = field(default_factory=set)
    """columns that are numbers"""

    def without_last(self) -> Table:
        """Without the last column"""
        rows = [Row(row.cells[:-1], row.series) for row in self.rows]
        return Table(self.titles[:-1], rows, self.numeric - {len(self.titles) - 1})

    def raw(self) -> list[dict[str, Any]]:
        """The rows as they stand in a CSV file"""
        return [
            {name: part for title, cell in zip(self.titles, row.cells, strict=True) for name, part in _raw(title, cell)}
            for row in self.rows
        ]


def _raw(title: str, cell: Cell) -> list[tuple[str, Any]]:
    return list(cell.parts.items()) or [(title, cell.text if cell.value is None else cell.value)]


UNKNOWN = "–"


def decimals(spread: float) -> int:
    """Digits after the point by which two digits of a deviation are shown"""
    return min(max(0, 1 - math.floor(math.log10(spread))), MOST_DECIMALS)


def fixed(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def is_spread(spread: float | None) -> bool:
    return spread is not None and math.isfinite(spread) and spread > 0


def number(value: float, spread: float | None = None, about: str = "") -> Cell:
    """As many digits as the deviation leaves meaningful; without one, about four"""
    if not math.isfinite(value):
        return Cell(UNKNOWN, None, about)
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2
    if spread is not None and is_spread(spread):
        digits = decimals(spread)
    return Cell(fixed(value, digits), value, about)


def count(value: int) -> Cell:
    return Cell(f"{value:,}", value)


def with_spread(mean: float, spread: float | None) -> Cell:
    """3,951 ± 58"""
    parts, cell = {"mean": mean, "std": spread}, number(mean, spread)
    if spread is None or cell.value is None:
        return Cell(cell.text, cell.value, parts=parts)
    digits = decimals(spread) if is_spread(spread) else 0
    return Cell(f"{cell.text} ± {fixed(spread, digits)}", cell.value, parts=parts)


def interval(low: float, high: float) -> Cell:
    text = " to ".join(number(end, (high - low) / 2).text for end in (low, high))
    return Cell(text, low, parts={"low": low, "high": high})


def with_interval(value: float, low: float, high: float) -> str:
    """0.63 [0.53, 0.64]"""
    shown, bottom, top = (number(each, (high - low) / 2).text for each in (value, low, high))
    return f"{shown} [{bottom}, {top}]"
