"""Calibrated pessimism on a modern critic that two CPU cores can afford (ACCX), and its siblings with a fixed one."""

from __future__ import annotations

from typing import Any, ClassVar

from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, Schedule

from acc_rl.algos.actor_critic import BOUND, with_argument
from acc_rl.algos.policies import XCnnPolicy, XMultiInputPolicy, XPolicy
from acc_rl.algos.soft import SoftActorCritic
from acc_rl.core.settings import BiasSettings
from acc_rl.nn.head import Categorical, Head
from acc_rl.nn.knob import Knob, PoolOrMin


class ACCX(SoftActorCritic):
    """Soft actor-critic, ``Categorical``, ``PoolOrMin``: its pessimism follows the returns of the latest episodes.

    Small nets that learn fast (2x256, learning rate 1e-3) from 3-step returns, the actor from every second update;
    observations normalised in the policy, where they are flat and go into the nets as they are; rewards scaled so that
    returns fit into the critics' support. The calibration compares soft returns, bootstrapped at time limits, from the
    first episodes of the learned policy on.
    All other arguments are those of SB3's SAC.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": XPolicy,
        "CnnPolicy": XCnnPolicy,
        "MultiInputPolicy": XMultiInputPolicy,
    }
    default_bias = BiasSettings(returns="soft", tail="bootstrap", start_step=0, warm_up="skip", rule="confident")
    default_n_atoms: ClassVar[int] = 101
    default_n_steps: ClassVar[int] = 3
    plain_beta: ClassVar[float] = 0.0

    def __init__(
        self,
        policy: Any,
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 1e-3,
        *,
        learning_starts: int = 5000,
        n_atoms: int | None = None,
        n_steps: int | None = None,
        policy_delay: int = 2,
        ent_coef: str | float = "auto_0.1",
        normalize_observations: bool | None = None,
        reward_scaling: bool = True,
        policy_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if n_steps is None:  # SB3's buffers of dictionaries, and those of one's own, know one step alone
            n_steps = 1 if policy == "MultiInputPolicy" or kwargs.get("replay_buffer_class") else self.default_n_steps
        kwargs.update(learning_starts=learning_starts, ent_coef=ent_coef, n_steps=n_steps, policy_delay=policy_delay)
        kwargs.update(normalize_observations=normalize_observations, reward_scaling=reward_scaling)
        kwargs["policy_kwargs"] = with_argument(policy_kwargs, "n_atoms", n_atoms, self.default_n_atoms)
        super().__init__(policy, env, learning_rate, **kwargs)

    def make_head(self) -> Head:
        return Categorical(self.policy_kwargs["n_atoms"], BOUND)

    def make_knob(self) -> Knob:
        return PoolOrMin(plain=self.plain_beta)


class XMin(ACCX):
    """``ACCX`` with its most pessimistic target, always: the critic with the smaller mean."""

    default_controller = "fixed"


class XMean(ACCX):
    """``ACCX`` without pessimism, always: the mean of the critics."""

    default_controller = "fixed"
    plain_beta = 1.0
