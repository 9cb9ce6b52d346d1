"""Truncated Quantile Critics: with a fixed number of dropped atoms (TQC), or with ACC's own choice (ACC)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, Schedule

from acc_rl.algos.actor_critic import with_argument
from acc_rl.algos.arguments import renamed
from acc_rl.algos.policies import QuantileCnnPolicy, QuantileMultiInputPolicy, QuantilePolicy
from acc_rl.algos.soft import SoftActorCritic
from acc_rl.core.errors import SettingError
from acc_rl.nn.head import Head, Quantiles
from acc_rl.nn.knob import Knob, Truncate


class _QuantileCritics(SoftActorCritic):
    """Soft actor-critic, ``Quantiles``, ``Truncate``: the two algorithms differ in their controller alone."""

    other_names: ClassVar[Mapping[str, str]] = {"n_quantiles": "n_atoms"}
    peer = "tqc"
    default_n_critics = 5
    default_n_atoms: ClassVar[int] = 25
    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": QuantilePolicy,
        "CnnPolicy": QuantileCnnPolicy,
        "MultiInputPolicy": QuantileMultiInputPolicy,
    }

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        *,
        learning_starts: int = 5000,
        n_atoms: int | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.update(learning_starts=learning_starts)
        policy_kwargs = renamed(policy_kwargs or {}, self.other_names)
        kwargs["policy_kwargs"] = with_argument(policy_kwargs, "n_atoms", n_atoms, self.default_n_atoms)
        super().__init__(policy, env, learning_rate, **kwargs)

    def make_head(self) -> Head:
        return Quantiles(self.policy_kwargs["n_atoms"])

    def make_knob(self) -> Knob:
        return Truncate.of(self.policy_kwargs["n_critics"], self.head.n_outputs)


class ACC(_QuantileCritics):
    """TQC whose number of dropped target atoms follows the returns of the most recent episodes.

    ``bias`` takes settings that differ from the paper's, for instance ``bias={"start_step": 5000}``.
    ``top_quantiles_to_drop_per_net`` is the d to start from, 2.5 if it is not given.
    All other arguments are those of SB3's SAC.
    """

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        *,
        top_quantiles_to_drop_per_net: float | None = None,
        **kwargs: Any,
    ) -> None:
        self.top_quantiles_to_drop_per_net = top_quantiles_to_drop_per_net
        super().__init__(policy, env, learning_rate, **kwargs)

    def make_knob(self) -> Knob:
        knob, d = super().make_knob(), self.top_quantiles_to_drop_per_net
        if d is None:
            return knob
        low, high = (knob.shown(beta) for beta in reversed(knob.range))
        if not low <= d <= high:
            raise SettingError(f"top_quantiles_to_drop_per_net is {d!r}, but d can only start in [{low:g}, {high:g}]")
        return replace(knob, start=high - d, plain=high - d)

    @property
    def dropped_per_net(self) -> float:
        """d, how many of the largest target atoms are dropped per net just now"""
        return self.calibration.knob.shown(self.beta)


class TQC(_QuantileCritics):
    """The same algorithm with a constant controller: ``dropped_per_net`` target atoms less per net, always.

    ``bias`` sets when the gap between returns and critic is measured for the log.
    """

    default_controller = "fixed"
    default_dropped_per_net: ClassVar[float] = 2
    other_names: ClassVar[Mapping[str, str]] = {
        **_QuantileCritics.other_names,
        "top_quantiles_to_drop_per_net": "dropped_per_net",
    }

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        *,
        dropped_per_net: float | None = None,
        top_quantiles_to_drop_per_net: float | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"dropped_per_net": dropped_per_net, "top_quantiles_to_drop_per_net": top_quantiles_to_drop_per_net}
        names = renamed({name: value for name, value in given.items() if value is not None}, self.other_names)
        self.dropped_per_net: float = names.get("dropped_per_net", self.default_dropped_per_net)
        super().__init__(policy, env, learning_rate, **kwargs)

    def make_knob(self) -> Knob:
        n_critics, n_atoms, d = self.policy_kwargs["n_critics"], self.head.n_outputs, self.dropped_per_net
        if not (0 <= d < n_atoms and round(d * n_critics) < n_critics * n_atoms):
            raise SettingError(f"dropped_per_net is {d!r}, but must be in [0, n_atoms) = [0, {n_atoms})")
        knob, start = Truncate.of(n_critics, n_atoms, plain=d), self._bias_given.start
        if start is not None:  # which is the d in effect, then
            self.dropped_per_net = knob.shown(start)
        return knob
