"""Observations that are arrays or dictionaries of arrays: joined, indexed, and flat in a state dict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Observations: TypeAlias = Array | dict[str, Array]


def index_observations(observations: Observations, index: Any) -> Observations:
    """``observations[index]``, for arrays and for dictionaries of arrays alike."""
    if isinstance(observations, dict):
        return {key: value[index] for key, value in observations.items()}
    return observations[index]  # type: ignore[no-any-return]


def join(parts: Sequence[Observations], how: Callable[[list[Array]], Array]) -> Observations:
    """``how(parts)`` (np.stack, np.concatenate), for arrays and for dictionaries of arrays alike."""
    if isinstance(parts[0], dict):
        return {key: how([part[key] for part in parts]) for key in parts[0]}
    return how(list(parts))  # type: ignore[arg-type]


def copied(observations: Observations) -> Observations:
    """A part would keep the whole in memory."""
    if isinstance(observations, dict):
        return {key: np.array(value) for key, value in observations.items()}
    return np.array(observations)


def flat(prefix: str, columns: Mapping[str, Observations]) -> dict[str, Array]:
    """Dictionaries of arrays get a slash and their key"""
    found: dict[str, Array] = {}
    for name, column in columns.items():
        parts = column.items() if isinstance(column, dict) else [("", column)]
        found |= {f"{prefix}.{name}/{key}" if key else f"{prefix}.{name}": part for key, part in parts}
    return found


def nested(prefix: str, state: Mapping[str, Array]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, array in state.items():
        column, slash, key = name.removeprefix(prefix + ".").partition("/")
        if not name.startswith(prefix + "."):
            continue
        if slash:
            columns.setdefault(column, {})[key] = array
        else:
            columns[column] = array
    return columns
