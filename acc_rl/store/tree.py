"""Nested state as JSON and safetensors: what is read back is data and can run no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch as th
from safetensors import SafetensorError
from safetensors.numpy import load, save

from acc_rl.core.episodes import Array
from acc_rl.core.errors import AccError

ARRAY, TENSOR, TUPLE, PAIRS = "$array", "$tensor", "$tuple", "$pairs"
"""marks of what JSON does not know: arrays, tensors, tuples, mappings whose keys are no texts"""


def pack(tree: Any) -> tuple[bytes, bytes]:
    """(JSON, safetensors)"""
    arrays: dict[str, Array] = {}
    text = json.dumps(_encode(tree, arrays, ""), sort_keys=True)
    return text.encode(), pack_arrays(arrays)


def unpack(text: bytes, tensors: bytes) -> Any:
    arrays = unpack_arrays(tensors)
    try:
        return _decode(json.loads(text), arrays)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise AccError(f"its state cannot be read: {type(error).__name__}: {error}") from None


def pack_arrays(arrays: Mapping[str, Array]) -> bytes:
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def unpack_arrays(content: bytes) -> dict[str, Array]:
    try:
        return load(content)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise AccError(f"its tensors cannot be read: {error}") from None


def _encode(value: Any, arrays: dict[str, Array], path: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return _encode(value.item(), arrays, path)
    if isinstance(value, (np.ndarray, th.Tensor)):
        arrays[path] = value.detach().cpu().numpy() if isinstance(value, th.Tensor) else value
        return {TENSOR if isinstance(value, th.Tensor) else ARRAY: path}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: _encode(each, arrays, f"{path}/{key}") for key, each in value.items()}
        return {PAIRS: [[key, _encode(each, arrays, f"{path}/{key}")] for key, each in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [_encode(each, arrays, f"{path}/{i}") for i, each in enumerate(value)]
        return {TUPLE: items} if isinstance(value, tuple) else items
    raise TypeError(f"{path}: {type(value).__name__} cannot be saved")


def _decode(value: Any, arrays: Mapping[str, Array]) -> Any:
    if isinstance(value, list):
        return [_decode(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((mark, inside),) = value.items()
        if mark == ARRAY:
            return arrays[inside].copy()
        if mark == TENSOR:
            return th.from_numpy(arrays[inside].copy())
        if mark == TUPLE:
            return tuple(_decode(each, arrays) for each in inside)
        if mark == PAIRS:
            return {key: _decode(each, arrays) for key, each in inside}
    return {key: _decode(each, arrays) for key, each in value.items()}
