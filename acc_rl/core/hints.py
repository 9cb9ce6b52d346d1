"""What might have been meant by a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def hint(name: str, known: Iterable[str], all_of_them: str = "known are", prefix: str = "") -> str:
    """The nearest name, or all of them if none is near"""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean {prefix}{near[0]}?" if near else f"{all_of_them} {', '.join(names)}"
