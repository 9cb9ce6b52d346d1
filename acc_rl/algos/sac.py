"""Soft Actor-Critic, plain (SAC) and with ACC's general shift of its targets (ACCSAC)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch as th
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, Schedule

from acc_rl.algos.buffers import steps_of_targets
from acc_rl.algos.policies import SoftCnnPolicy, SoftMultiInputPolicy, SoftPolicy
from acc_rl.algos.soft import SoftActorCritic
from acc_rl.nn.head import Head, Scalar
from acc_rl.nn.knob import Knob, Shift


class SAC(SoftActorCritic):
    """SAC with the fast ensemble; ``bias`` sets when the gap between returns and critic is measured for the log."""

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": SoftPolicy,
        "CnnPolicy": SoftCnnPolicy,
        "MultiInputPolicy": SoftMultiInputPolicy,
    }
    default_controller = "fixed"
    peer = "sac"

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        *,
        learning_starts: int = 5000,
        **kwargs: Any,
    ) -> None:
        super().__init__(policy, env, learning_rate, learning_starts=learning_starts, **kwargs)

    def make_head(self) -> Head:
        return Scalar(factor=0.5)

    def make_knob(self) -> Knob:
        return Shift.of(self.gamma ** steps_of_targets(self))

    def policy_value(self, values: th.Tensor) -> th.Tensor:
        return values.amin(dim=0)


class ACCSAC(SAC):
    """SAC whose targets are shifted by ``beta * |Q| / 100``, with beta following the most recent returns."""

    default_controller = "acc"
