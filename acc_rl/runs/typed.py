"""Values from files, which know no types of ours, against the fields of a dataclass. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from acc_rl.core.checks import hint
from acc_rl.core.errors import SettingError


def require_known(values: Mapping[str, Any], cls: type[Any], prefix: str = "") -> None:
    names = [each.name for each in fields(cls)]
    for name in values:
        if name not in names:
            raise SettingError(f"unknown setting {prefix}{name}; {hint(name, names, prefix=prefix)}")


def typed(cls: type[Any], name: str, value: Any, prefix: str = "") -> Any:
    """The value if it is of the field's type, lists as tuples and 1e6 as an integer; files know no types of ours"""
    kind = get_type_hints(cls)[name]
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    value = tuple(value) if isinstance(value, list) else value
    if int in options:
        value = as_whole(value)
    elif tuple[int, ...] in options and isinstance(value, tuple):
        value = tuple(map(as_whole, value))
    if value is tyro.MISSING or any(_fits(value, option) for option in options):
        return value
    told = " or ".join("nothing" if option is NoneType else _told(option) for option in options)
    raise SettingError(f"{prefix}{name} is {value!r}, but must be {told}")


def as_whole(value: Any) -> Any:
    """1e6 is an integer too, although TOML reads it as a float"""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _fits(value: Any, option: Any) -> bool:
    if get_origin(option) is Literal:
        return value in get_args(option)
    if get_origin(option) is dict:
        return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    if get_origin(option) is tuple:
        of = get_args(option)
        length = ... in of or (isinstance(value, tuple) and len(value) == len(of))
        return isinstance(value, tuple) and length and all(_fits(each, of[0]) for each in value)
    if option in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if option is float else option)


def _told(option: Any) -> str:
    if get_origin(option) is Literal:
        return " or ".join(map(repr, get_args(option)))
    names = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}
    names |= {tuple[str, ...]: "a list of texts", dict[str, Any]: "a table of names and values"}
    return names.get(option, "a list of numbers")


CONSTANTS = {"True": True, "False": False, "None": None}


def _pairs(words: list[str]) -> dict[str, Any]:
    """key=value, each value as JSON or as Python spells its constants or, where it is neither, as text"""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ValueError(f"{word!r} must be KEY=VALUE")
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = CONSTANTS.get(text, text)
    return found


PAIRS = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="KEY=VALUE ...",
    instance_from_str=_pairs,
    is_instance=lambda value: isinstance(value, dict),
    str_from_instance=lambda value: [f"{key}={json.dumps(each)}" for key, each in value.items()],
)
"""a dictionary on the command line"""
