"""Saving and loading as SB3 does, with the calibration, and starting from models of SB3 and sb3-contrib."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.type_aliases import GymEnv
from typing_extensions import Self

from acc_rl.algos.arguments import renamed
from acc_rl.algos.calibration import Calibration
from acc_rl.algos.peers import load_peer
from acc_rl.algos.saved import OWN, SavedModel
from acc_rl.core.errors import AccError

COMPLETED = ("use_sde", "n_critics", "n_atoms", "normalize_observations")
"""what a model adds to the ``policy_kwargs`` that it is given"""
BUILT = ("n_critics", "n_atoms", "normalize_observations")
"""arguments that decide what nets there are, and that no other nets can take"""


class Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


class Saved(OffPolicyAlgorithm):
    """SB3 pickles attributes, but stores the state dicts that ``get_parameters`` gives as tensors alone."""

    calibration: Calibration
    other_names: ClassVar[Mapping[str, str]] = {}
    """names of arguments, also in ``policy_kwargs``, that sb3-contrib has for ours"""
    peer: ClassVar[str | None] = None
    """the algorithm of SB3 or sb3-contrib whose models ``load`` can start from"""
    _saving = False

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "calibration", "_saving"]

    def beside_nets(self) -> dict[str, Stateful]:
        """What ``save`` keeps beside nets and optimizers; in a file that lacks it, it stays as it is"""
        return {"calibration": self.calibration}

    def state_dicts(self) -> dict[str, dict[str, Any]]:
        """``get_parameters``, which are those of nets and optimizers as in SB3, and what is beside them"""
        return {**super().get_parameters(), **{name: each.state_dict() for name, each in self.beside_nets().items()}}

    def get_parameters(self) -> dict[str, dict[str, Any]]:
        return self.state_dicts() if self._saving else super().get_parameters()

    def set_parameters(self, load_path_or_dict: Any, exact_match: bool = True, device: Any = "auto") -> None:
        """As SB3's; ``load_path_or_dict`` may have the states of ``beside_nets`` too"""
        given = load_path_or_dict
        if not isinstance(given, dict):
            given = load_from_zip_file(given, device=device, load_data=False)[1]
        beside = self.beside_nets()
        super().set_parameters({k: v for k, v in given.items() if k not in beside}, exact_match, device)
        for name in beside.keys() & given.keys():
            beside[name].load_state_dict(given[name])

    def save(self, path: Any, exclude: Iterable[str] | None = None, include: Iterable[str] | None = None) -> None:
        self._saving = True
        try:
            super().save(path, exclude, include)
        finally:
            self._saving = False

    @classmethod
    def load(
        cls,
        path: Any,
        env: GymEnv | None = None,
        device: Any = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> Self:
        """As SB3's, and from models of the same algorithm in SB3 or sb3-contrib, without running their pickles.

        A model of acc_rl 0.1 is refused, because the state of its calibration has another form.
        """
        kwargs = renamed(kwargs, cls.other_names)
        # SB3 adds a suffix that is missing
        names = (path, f"{path}.zip") if isinstance(path, (str, os.PathLike)) else (path,)
        for name in filter(zipfile.is_zipfile, names):
            with zipfile.ZipFile(name) as archive:
                files = archive.namelist()
                if OWN in files and b'"_bias_given"' not in archive.read("data"):
                    raise AccError(f"{name} was saved by acc_rl 0.1: this version cannot read it, load it there")
            if OWN not in files and cls.peer is not None:
                return load_peer(cls, SavedModel(name, _content(name)), env, device, kwargs)
            break
        given = kwargs.pop("policy_kwargs", None)
        built = {name: kwargs.pop(name) for name in BUILT if name in kwargs}
        temperature = kwargs.pop("ent_coef", None)
        model = super().load(path, env, device, custom_objects, print_system_info, force_reset, **kwargs)
        if temperature is not None and temperature != (there := getattr(model, "ent_coef", None)):
            raise AccError(f"ent_coef is {temperature!r}, but the model was made with {there!r}: leave it out")
        if given is not None:
            model._require_made_with(renamed(given, cls.other_names))
        for name, value in built.items():
            if value is not None and value != (there := model._built(name)):
                raise AccError(f"{name} is {value!r}, but the model was made with {there!r}: leave it out")
        return model

    def _built(self, name: str) -> Any:
        return getattr(self.policy, name, self.policy_kwargs.get(name))

    def _require_made_with(self, given: Mapping[str, Any]) -> None:
        there = {name: value for name, value in self.policy_kwargs.items() if name in given or name not in COMPLETED}
        if given != there:
            raise AccError(f"policy_kwargs are {given}, but the model was made with {there}: leave them out")


def _content(file: Any) -> bytes:
    if isinstance(file, (str, os.PathLike)):
        return Path(file).read_bytes()
    file.seek(0)
    content: bytes = file.read()
    return content
