"""Classes of the user's own, by name: wrappers and callbacks."""

from __future__ import annotations

from importlib import import_module

from stable_baselines3.common.callbacks import BaseCallback

from acc_rl.core.errors import SettingError
from acc_rl.runs.spec import RunSpec


def make_callbacks(spec: RunSpec) -> dict[str, BaseCallback]:
    """The run's own callbacks by the names under which checkpoints keep their states"""
    made = {}
    for number, name in enumerate(spec.callback):
        cls = load_class("callback", name, BaseCallback)
        try:
            made[f"callback {number} {name}"] = cls()
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise SettingError(
                f"callback is {name!r}, but cannot be made without arguments ({reason}): derive a class that can"
            ) from error
    return made


def load_class(field: str, name: str, base: type) -> type:
    """The class ``module:Class``, which must be a ``base``; ``field`` is the setting that asks for it"""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as error:  # whatever the user's module raises
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise SettingError(
            f"{field} is {name!r}, but {module} cannot be imported ({reason}): install it or add its folder to "
            "PYTHONPATH"
        ) from error
    if not isinstance(found, type) or not issubclass(found, base):
        raise SettingError(f"{field} is {name!r}, but {module} has no class {attribute} that is a {base.__name__}")
    return found
