"""Names for algorithms with the paper's defaults; torch is only imported when a class is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from acc_rl.core.checks import hint
from acc_rl.core.errors import SettingError

if TYPE_CHECKING:
    from acc_rl.algos.calibrated import Calibrated


@dataclass(frozen=True)
class Entry:
    """An algorithm under a name."""

    module: str
    class_name: str
    about: str
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """what differs from the class's defaults, which are the paper's"""

    controller: str = "acc"
    """name of the controller that the class takes by default"""
    rule: str = "paper"
    """of the calibration that the class takes by default"""
    net_arch: Mapping[str, list[int]] | None = None
    """hidden sizes, where they differ from the class's"""

    def load(self) -> type[Calibrated]:
        cls: type[Calibrated] = getattr(import_module(f"acc_rl.algos.{self.module}"), self.class_name)
        return cls

    def make(self, policy: Any, env: Any, **settings: Any) -> Calibrated:
        """The algorithm; ``settings`` come before the entry's own."""
        policy_kwargs = self.policy_kwargs(settings.pop("policy_kwargs", None) or {})
        return self.load()(policy, env, policy_kwargs=policy_kwargs, **{**self.settings, **settings})

    def policy_kwargs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """``given``, with the entry's hidden sizes where none are given for actor or critics"""
        if self.net_arch is None:
            return dict(given)
        sizes = given.get("net_arch", {})
        return {**given, "net_arch": {**self.net_arch, **sizes} if isinstance(sizes, Mapping) else sizes}


_BASE = {
    "acc": Entry("tqc", "ACC", "TQC with the number of dropped atoms chosen by ACC"),
    "tqc": Entry("tqc", "TQC", "TQC with a fixed number of dropped atoms", {"dropped_per_net": 2}, "fixed"),
    "acc-x": Entry(
        "x", "ACCX", "a fast modern critic (categorical, 2x256) with its pessimism chosen by ACC", rule="confident"
    ),
    "x-min": Entry(
        "x", "XMin", "the critic of acc-x, always with the smaller estimate", controller="fixed", rule="confident"
    ),
    "x-mean": Entry(
        "x", "XMean", "the critic of acc-x, always with the mean estimate", controller="fixed", rule="confident"
    ),
    "acc-td3": Entry("td3", "ACCTD3", "TD3 with the mix of own and minimal target chosen by ACC"),
    "td3": Entry("td3", "TD3", "TD3", controller="fixed"),
    "acc-sac": Entry("sac", "ACCSAC", "SAC with the general shift of its targets chosen by ACC"),
    "sac": Entry("sac", "SAC", "SAC", controller="fixed"),
    "acc-ddpg": Entry("td3", "ACCDDPG", "DDPG with the general shift of its targets chosen by ACC"),
    "ddpg": Entry("td3", "DDPG", "DDPG", controller="fixed"),
    "acc-dqn": Entry("discrete", "ACCDQN", "DQN with the mix of plain and double estimate chosen by ACC"),
    "dqn": Entry("discrete", "DQN", "DQN", controller="fixed"),
    "acc-qrdqn": Entry("qrdqn", "ACCQRDQN", "QR-DQN with the number of dropped atoms chosen by ACC"),
    "qrdqn": Entry("qrdqn", "QRDQN", "QR-DQN", controller="fixed"),
}


def _variant(name: str, about: str, **settings: Any) -> Entry:
    base = _BASE[name]
    return replace(base, about=f"{base.about}; {about}", settings={**base.settings, **settings})


def _compact(name: str, about: str = "2 critics of 2x256, learning rate 1e-3", **settings: Any) -> Entry:
    """What someone with two cores should start from: two small critics that learn fast"""
    entry = _variant(name, about, n_critics=2, learning_rate=1e-3, **settings)
    return replace(entry, net_arch={"pi": [256, 256], "qf": [256, 256]})


REGISTRY: Mapping[str, Entry] = {
    **_BASE,
    **{
        f"{name}-{k}q": _variant(name, f"{k} critic updates per step", critic_updates=k)
        for name in ("acc", "sac", "td3")
        for k in (2, 4)
    },
    **{f"tqc-d{d}": _variant("tqc", f"d = {d}", dropped_per_net=d) for d in (0, 2, 5)},
    "acc-n2": _variant("acc", "2 critics", n_critics=2),
    **{
        f"{short}-{rival}": replace(_variant(name, "", controller=rival), about=about, controller=rival)
        for short, name, rival, about in (
            ("x", "acc-x", "top", "the critic of acc-x with its pessimism chosen by the bandit of TOP"),
            ("x", "acc-x", "gpl", "the critic of acc-x with its pessimism chosen by the TD error as in GPL"),
            ("tqc", "acc", "top", "TQC with the number of dropped atoms chosen by the bandit of TOP"),
        )
    },
    "acc-compact": _compact("acc"),
    **{
        f"tqc-compact-d{d}": _compact("tqc", f"2 critics of 2x256, learning rate 1e-3, d = {d}", dropped_per_net=d)
        for d in (0, 2, 5)
    },
}


def find(name: str) -> Entry:
    """The entry of that name; an unknown one raises an error that suggests the nearest."""
    if name not in REGISTRY:
        raise SettingError(f"unknown algorithm {name!r}; {hint(name, REGISTRY)}")
    return REGISTRY[name]
