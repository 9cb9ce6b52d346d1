"""One look per algorithm: a colour that the colour-blind can tell from the others, and a dash and a marker that grey
print can."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

BLUE, ORANGE, GREEN, PLUM, BROWN, VIOLET, RED, TEAL, GREY = PALETTE = (
    "#237bcf",
    "#df760d",
    "#1e946b",
    "#c3319b",
    "#9f6d39",
    "#6a4df5",
    "#cc0c0c",
    "#1593a8",
    "#808692",
)
"""each at least 3 : 1 against white and against the page's dark ground"""

SOLID, LONG, SHORT, DASH_DOT, DASH_DOTS = DASHES = ([1, 0], [7, 3], [2, 2], [8, 3, 2, 3], [9, 2, 2, 2, 2, 2])

SHAPES = {
    "circle": "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z",
    "square": "M-3.5-3.5H3.5V3.5H-3.5Z",
    "triangle-up": "M0-4.5L4.5 3.5H-4.5Z",
    "diamond": "M0-5L4 0 0 5-4 0Z",
    "cross": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3Z",
    "triangle-down": "M0 4.5L4.5-3.5H-4.5Z",
    "triangle-right": "M4.5 0L-3.5 4.5V-4.5Z",
    "triangle-left": "M-4.5 0L3.5 4.5V-4.5Z",
}
"""Vega's names of markers, and their outlines for the page's legend"""
CIRCLE, SQUARE, UP, DIAMOND, CROSS, DOWN, RIGHT, LEFT = SHAPES


class Look(NamedTuple):
    colour: str
    dash: list[int]
    shape: str

    @property
    def in_grey(self) -> tuple[tuple[int, ...], str]:
        """What is left of it without colour"""
        return tuple(self.dash), self.shape


KNOWN = {
    "acc": Look(BLUE, SOLID, CIRCLE),
    "acc-2q": Look(BLUE, LONG, CIRCLE),
    "acc-4q": Look(BLUE, SHORT, CIRCLE),
    "acc-n2": Look(BLUE, DASH_DOT, CIRCLE),
    "sac": Look(ORANGE, SOLID, SQUARE),
    "sac-2q": Look(ORANGE, LONG, SQUARE),
    "sac-4q": Look(ORANGE, SHORT, SQUARE),
    "acc-sac": Look(TEAL, DASH_DOT, SQUARE),
    "td3": Look(GREEN, SOLID, UP),
    "td3-2q": Look(GREEN, LONG, UP),
    "td3-4q": Look(GREEN, SHORT, UP),
    "acc-td3": Look(RED, LONG, DOWN),
    "tqc": Look(BROWN, SOLID, DIAMOND),
    "tqc-d0": Look(PLUM, SHORT, DIAMOND),
    "tqc-d2": Look(BROWN, DASH_DOT, DIAMOND),
    "tqc-d5": Look(VIOLET, LONG, DIAMOND),
    "acc-ddpg": Look(GREY, SOLID, CROSS),
    "acc-dqn": Look(GREY, LONG, CROSS),
    "acc-qrdqn": Look(GREY, DASH_DOT, CROSS),
}


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """The look of each label: fixed for the algorithms of this package, else the next that is free, by name"""
    result = {label: KNOWN[label] for label in labels if label in KNOWN}
    for label in sorted(set(labels) - set(result)):
        result[label] = _next(list(result.values()))
    return {label: result[label] for label in labels}


def _next(taken: Sequence[Look]) -> Look:
    """The colour and the marker that the fewest have, with a dash that no other with that marker has"""
    colours, shapes = ([look.colour for look in taken], [look.shape for look in taken])
    in_grey = {look.in_grey for look in taken}
    colour = min(PALETTE, key=colours.count)
    free = [pair for pair in product(DASHES, SHAPES) if (tuple(pair[0]), pair[1]) not in in_grey]
    dash, shape = min(free or product(DASHES, SHAPES), key=lambda pair: shapes.count(pair[1]))
    return Look(colour, dash, shape)
