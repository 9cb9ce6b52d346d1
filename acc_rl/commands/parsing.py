"""What the commands share: numbers as they are written, questions, and parsers."""

from __future__ import annotations

import sys

import tyro

from acc_rl.core.errors import AccError


def confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise AccError(f"{question} Pass --yes to do it")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise AccError("nothing was done")


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
