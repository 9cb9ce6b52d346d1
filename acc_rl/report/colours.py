"""One look per algorithm: a colour that the colour-blind can tell from the others, and a dash."""

from __future__ import annotations

from collections.abc import Sequence
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

SOLID, LONG, SHORT, DASH_DOT = ([1, 0], [7, 3], [2, 2], [8, 3, 2, 3])
DASHES = (SOLID, LONG, SHORT, DASH_DOT)


class Look(NamedTuple):
    colour: str
    dash: list[int]


KNOWN = {
    "acc": Look(BLUE, SOLID),
    "acc-2q": Look(BLUE, LONG),
    "acc-4q": Look(BLUE, SHORT),
    "acc-n2": Look(BLUE, DASH_DOT),
    "sac": Look(ORANGE, SOLID),
    "sac-2q": Look(ORANGE, LONG),
    "sac-4q": Look(ORANGE, SHORT),
    "acc-sac": Look(TEAL, DASH_DOT),
    "td3": Look(GREEN, SOLID),
    "td3-2q": Look(GREEN, LONG),
    "td3-4q": Look(GREEN, SHORT),
    "acc-td3": Look(RED, LONG),
    "tqc": Look(BROWN, SOLID),
    "tqc-d0": Look(PLUM, SHORT),
    "tqc-d2": Look(BROWN, DASH_DOT),
    "tqc-d5": Look(VIOLET, LONG),
    "acc-ddpg": Look(GREY, SOLID),
    "acc-dqn": Look(GREY, LONG),
    "acc-qrdqn": Look(GREY, DASH_DOT),
}


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """The look of each label: fixed for the algorithms of this package, else the next that is free, by name"""
    result = {label: KNOWN[label] for label in labels if label in KNOWN}
    free = [Look(colour, dash) for dash in DASHES for colour in PALETTE]
    for label in sorted(set(labels) - set(result)):
        taken = {look.colour for look in result.values()}
        unused = [look for look in free if look not in result.values()]
        fresh = [look for look in unused if look.colour not in taken]
        result[label] = (fresh or unused or free)[0]
    return {label: result[label] for label in labels}
