"""What every package asks of its input."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np


def hint(name: str, known: Iterable[str], all_of_them: str = "known are", prefix: str = "") -> str:
    """The name that is nearest to an unknown one, or all of them if none is near"""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean {prefix}{near[0]}?" if near else f"{all_of_them} {', '.join(names)}"


def is_whole(value: Any, least: int = 0, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: Any) -> bool:
    """A finite number; True and False are not"""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def first_non_finite(values: Any) -> tuple[Any, list[int]] | None:
    """The first NaN or infinite entry of an array and its index, or None; integers and booleans have none"""
    array = np.asarray(values)
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return None
    where = np.argwhere(~np.isfinite(array))[0]
    return array[tuple(where)], where.tolist()
