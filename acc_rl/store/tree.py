"""Nested state as JSON and safetensors: what is read back is data and can run no code."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch as th
from safetensors import SafetensorError
from safetensors.numpy import load, save

from acc_rl.core.errors import AccError
from acc_rl.core.observations import Array

ARRAY, TENSOR, TUPLE, PAIRS = "$array", "$tensor", "$tuple", "$pairs"
"""marks of what JSON does not know: arrays, tensors, tuples, mappings whose keys are no texts"""
SCALAR, DEQUE, SET = "$scalar", "$deque", "$set"
"""and NumPy's numbers, with their dtype; deques, with their length; sets"""
NUMBERS = "biuf"
"""kinds of dtypes that a number can have"""
DATA = "use numbers, text, arrays and tensors of numbers, or lists, tuples, dicts, sets and deques of these"


def pack(tree: Any) -> tuple[bytes, bytes]:
    """(JSON, safetensors)"""
    arrays: dict[str, Array] = {}
    text = json.dumps(_encode(tree, arrays, ""), sort_keys=True)
    return text.encode(), pack_arrays(arrays)


def unpack(text: bytes, tensors: bytes) -> Any:
    arrays = unpack_arrays(tensors)
    try:
        return _decode(json.loads(text), arrays)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise AccError(f"its state cannot be read: {type(error).__name__}: {error}") from None


def pack_arrays(arrays: Mapping[str, Array]) -> bytes:
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def unpack_arrays(content: bytes) -> dict[str, Array]:
    try:
        return load(content)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise AccError(f"its tensors cannot be read: {error}") from None


def _encode(value: Any, arrays: dict[str, Array], path: str) -> Any:
    # first of all: np.float64 is a float, but rounds differently beside arrays of float32
    if isinstance(value, np.generic) and value.dtype.kind in NUMBERS:
        return {SCALAR: [value.dtype.str, value.item()]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind not in NUMBERS:
        raise AccError(f"{path}: an array of {value.dtype} cannot be saved: {DATA}")
    if isinstance(value, (np.ndarray, th.Tensor)):
        if path in arrays:
            raise AccError(f"{path}: two arrays of the state have this name: rename a key with a slash")
        arrays[path] = value.detach().cpu().numpy() if isinstance(value, th.Tensor) else value
        return {TENSOR if isinstance(value, th.Tensor) else ARRAY: path}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: _encode(each, arrays, f"{path}/{key}") for key, each in value.items()}
        return {PAIRS: [[key, _encode(each, arrays, f"{path}/{key}")] for key, each in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [_encode(each, arrays, f"{path}/{i}") for i, each in enumerate(value)]
        return {TUPLE: items} if isinstance(value, tuple) else items
    if isinstance(value, deque):
        return {DEQUE: [value.maxlen, _encode(list(value), arrays, path)]}
    if isinstance(value, set):
        return {SET: _encode(sorted(value, key=repr), arrays, path)}
    raise AccError(f"{path}: a value of type {type(value).__name__} cannot be saved: {DATA}")


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
        if mark == SCALAR:
            return _scalar(*inside)
        if mark == DEQUE:
            length, items = inside
            return deque(_decode(items, arrays), maxlen=length)
        if mark == SET:
            return set(_decode(inside, arrays))
    return {key: _decode(each, arrays) for key, each in value.items()}


def _scalar(dtype: str, value: Any) -> Any:
    kind = np.dtype(dtype)
    if kind.kind not in NUMBERS:
        raise TypeError(f"{dtype} is not the dtype of a number")
    return kind.type(value)
