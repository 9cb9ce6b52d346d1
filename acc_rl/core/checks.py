"""What every room asks of its input."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def hint(name: str, known: Iterable[str], all_of_them: str = "known are", prefix: str = "") -> str:
    """The name that is nearest to an unknown one, or all of them if none is near"""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean {prefix}{near[0]}?" if near else f"{all_of_them} {', '.join(names)}"


def is_whole(value: Any, least: int = 0, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: Any) -> bool:
    """Finite; True and False are none"""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
