"""What the commands share: numbers as they are written, questions, and parsers."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_type_hints

import tyro

from acc_rl.core.errors import AccError


def confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise AccError(f"{question} Pass --yes to do it")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise AccError("nothing was done")


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**32:
        raise AccError(f"seed is {seed}, but must be >= 0 and < 2^32")


def check_file(name: str, path: Path | None, suffixes: Sequence[str]) -> None:
    """Whether a file of that name can be written, before what goes into it is made"""
    if path is None:
        return
    if path.suffix not in suffixes:
        raise AccError(f"{name} is {path}, but must end in {' or '.join(suffixes)}")
    if not path.absolute().parent.is_dir():
        raise AccError(f"{name} is {path}, but there is no folder {path.absolute().parent}")


UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def seconds(text: str) -> float:
    """Of 2h, 90m, 45s, 1d or 1h30m"""
    found = re.findall(r"([0-9]+(?:\.[0-9]+)?)([dhms])", text)
    total = sum(float(number) * UNITS[unit] for number, unit in found)
    if "".join(map("".join, found)) != text or not total:
        raise AccError(f"time is {text!r}, but must be a number and d, h, m or s, such as 2h, 90m or 1h30m")
    return total


def with_values(cls: type[Any], arguments: Sequence[str]) -> list[str]:
    """``--flag`` and ``--no-flag`` as ``--flag True`` and ``--flag False``, for settings that may also be left open"""
    hints = get_type_hints(cls)
    flags = {f"--{name.replace('_', '-')}" for name, kind in hints.items() if kind == bool | None}
    words: list[str] = []
    for word, after in zip_longest(arguments, arguments[1:]):
        dashed, off = word.replace("_", "-"), word.replace("_", "-").replace("--no-", "--", 1)
        if dashed in flags and after not in ("True", "False", "None"):
            words += [dashed, "True"]
        elif dashed != off and off in flags:
            words += [off, "False"]
        else:
            words.append(word)
    return words


RULE = r"^ *(?:[╭╰]?─.*|-{5,} *)$"
"""a line between two parts of an error as tyro draws it: title, message, help of what is near, where to find more"""


def one_line(cls: Any, command: str, arguments: Sequence[str], **options: Any) -> Any:
    """``tyro.cli``, whose errors are one line; tyro itself draws boxes around them"""
    drawn = io.StringIO()
    try:
        with contextlib.redirect_stderr(drawn):
            return tyro.cli(cls, prog=command, args=list(arguments), registry=whole_numbers(), **options)
    except SystemExit as ended:
        if not ended.code:
            raise
        _, told, *rest = re.split(RULE, re.sub(r"\x1b\[[0-9;]*m|│", "", drawn.getvalue()), flags=re.MULTILINE)
        message = " ".join(told.split()).rstrip(".")
        message = re.sub(r"no type matching (?:\{None\}\|)?(.+?) could .* from \[(.*?)\]\. .*", r"\2 is no \1", message)
        near = re.findall(r"^ *(--[a-z.-]+)", "".join(rest), re.MULTILINE)
        hint = f" (did you mean {near[0]}?)" if near and "nrecognized" in message else ""
        raise AccError(f"{message}{hint}; see {command} --help") from None


def whole_numbers() -> tyro.constructors.ConstructorRegistry:
    """Whole numbers may be written as 1e6 or 1_000_000."""
    registry = tyro.constructors.ConstructorRegistry()

    def parse(words: list[str]) -> int:
        text = words[0].replace("_", "")
        try:
            return int(text)
        except ValueError:
            if not float(text).is_integer():
                raise AccError(f"{words[0]} is not an integer") from None
            return int(float(text))

    @registry.primitive_rule
    def rule(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
        if info.type is not int:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=parse,
            is_instance=lambda value: isinstance(value, int),
            str_from_instance=lambda value: [str(value)],
        )

    return registry
