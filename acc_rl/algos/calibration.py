"""Watches episodes, measures the gap between returns and critic on a schedule, and hands it to the controller."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch as th

from acc_rl.core.controller import Calibrating, Controller, Evidence
from acc_rl.core.episodes import ENDLESS, Episode, Episodes, Estimator, Pairs, clustered, spread_observations
from acc_rl.core.errors import AccError
from acc_rl.core.observations import Array, Observations
from acc_rl.core.settings import BiasSettings
from acc_rl.nn.head import Law
from acc_rl.nn.knob import Knob

LEVER_STATES = 256


class Calibration:
    """Owns the episodes, the controller, the knob and the measuring schedule of one model.

    Measuring is not controlling: the gap is measured, and logged, with every controller. ``may_be_endless``: where no
    episode has ended in the first ``ENDLESS`` steps of an env, it is measured by n-step residuals from then on.
    ``at_ends``: never within an episode, where an action may be waited for.
    """

    def __init__(
        self,
        knob: Knob,
        controller: Controller,
        settings: BiasSettings,
        n_envs: int,
        gamma: float,
        n_steps: int,
        may_be_endless: bool = False,
        at_ends: bool = False,
    ) -> None:
        self.knob, self.controller, self.settings = knob, controller, settings
        self.episodes = Episodes(n_envs, gamma, n_steps)
        self.n_envs, self.at_ends = n_envs, at_ends
        self.may_be_endless, self.endless = may_be_endless, False
        """whether to look for it, and whether it is"""
        self.clock, self.last_update = 0, 0
        """env steps seen, over all calls of ``learn``, and when a gap was measured last"""
        self.earned = [0.0] * n_envs
        """rewards of the open episodes, from their first step on"""
        self.measured: dict[str, float] = {}
        """what the last measurement found, for the log"""
        controller.begin(settings)

    @property
    def beta(self) -> float:
        return self.controller.beta

    def target(self, law: Law, beta: float | None = None) -> Law:
        """The law of Q_beta from those of the target critics"""
        return self.knob(law, self.beta if beta is None else beta)

    def trained(self, td_error: th.Tensor) -> None:
        self.controller.trained(td_error)

    def reset(self, n_envs: int) -> None:
        """The envs were reset: the ends of open episodes will not come."""
        self.n_envs, self.earned = n_envs, [0.0] * n_envs
        self.episodes.forget_open(n_envs)

    def cut(self, env: int, final: Observations) -> None:
        """One env was reset: its open episode ends at ``final``, as if a time limit had cut it"""
        self.earned[env] = 0.0
        self.episodes.cut(env, final)

    @property
    def by_steps(self) -> bool:
        return self.endless or self.settings.evidence == "steps"

    @property
    def bootstraps(self) -> bool:
        return self.by_steps or self.settings.tail == "bootstrap"

    # --- measuring ---

    def observe(
        self, critic: Estimator, warm_up: bool, transition: tuple[Any, ...], observations: Observations
    ) -> None:
        """One step of every env, as ``Episodes.add`` takes it, and what is observed after it.

        ``warm_up``: its actions were random.
        """
        self.controller.advance()
        self.clock += len(transition[2])
        returns = self._returns(transition[2], transition[3])
        if warm_up and self.settings.warm_up == "skip":
            return
        ended = self.episodes.add(*transition)
        for each in returns:
            self.controller.ended(each, self.clock)
        self._look_for_an_end(critic)
        if (ended or (self.bootstraps and not self.at_ends)) and self.settings.due(self.clock, self.last_update):
            self.measure(critic, observations)

    def _returns(self, rewards: Array, ended: Array) -> list[float]:
        """Of the episodes that end with this step"""
        returns = []
        for i, reward in enumerate(rewards.tolist()):
            self.earned[i] += reward
            if ended[i]:
                returns.append(self.earned[i])
                self.earned[i] = 0.0
        return returns

    def _look_for_an_end(self, critic: Estimator) -> None:
        seen = self.last_update or self.episodes.episodes
        if seen or self.bootstraps or not (self.may_be_endless and critic.bootstraps):
            return
        if max(self.episodes.open_lengths) >= ENDLESS:
            self.endless = True
            warnings.warn(
                f"no episode has ended in {ENDLESS} steps: the gap is measured by residuals of "
                f"{self.settings.evidence_steps} steps, as with bias.evidence='steps'",
                stacklevel=2,
            )

    def measure(self, critic: Estimator, observations: Observations | None = None) -> None:
        """Compare the critic with the stored episodes; a tail that is bootstrapped lets open ones count up to now."""
        assert self.settings.pairs_kept is not None
        kept_steps, new = self.settings.pairs_kept // self.n_envs, self.clock - self.last_update
        steps = kept_steps + math.ceil(new / self.n_envs)
        recent = self.episodes.recent(steps, observations) if self.bootstraps else self.episodes.episodes
        pairs = self.episodes.pairs(critic, recent)
        assert pairs is not None
        if self.by_steps:
            assert self.settings.evidence_steps is not None
            pairs = pairs.within(self.settings.evidence_steps, self.episodes.gamma)
        kept = pairs.without_tail(self.settings.dropped_tail)
        if not len(kept):
            warnings.warn(
                f"bias.tail is {self.settings.tail}, which leaves no pair to compare: beta stays", stacklevel=2
            )
        else:
            was_at_limit = self._at_limit
            self.controller.measured(self._evidence(critic, kept, recent))
            self.last_update = self.clock
            if self._at_limit and not was_at_limit:
                self._warn_at_limit()
        if self.bootstraps:
            self.episodes.keep(kept_steps)
        else:
            self.episodes.trim(self.settings.pairs_kept)

    def _evidence(self, critic: Estimator, pairs: Pairs, episodes: list[Episode]) -> Evidence:
        """The gap as the settings say, and beside it for the log the soft one and the full one."""
        returns = pairs.returns(self.settings.returns == "soft", self.bootstraps)
        q, mean_return = pairs.estimates, float(returns.mean())
        full = self._full_gap(critic, pairs)
        gap, error = clustered(returns - q, pairs.episode)
        if self.by_steps and full is not None:
            gap, error = full
        found = {"gap": gap, "gap_error": error, "mean_q": float(q.mean()), "mean_return": mean_return}
        if critic.soft:
            found["gap_soft"], found["gap_soft_error"] = clustered(pairs.returns(soft=True) - q, pairs.episode)
        if full is not None:
            found["gap_full"], found["gap_full_error"] = full
        clusters = len(np.unique(pairs.episode))
        if self.controller.wants_lever:
            found["lever"] = self._lever(critic, spread_observations(episodes, LEVER_STATES))
        self.measured = found
        lever = found.get("lever", math.nan)
        return Evidence(gap, error, self.clock, mean_return, found["mean_q"], clusters, lever)

    def _lever(self, critic: Estimator, states: Observations) -> float:
        """How far the estimates move in the end when beta moves by one: gamma' / (1 - gamma') times the change of the
        mean target, by a difference over a tenth of the range"""
        assert self.settings.range is not None
        low, high = self.settings.range
        half, discount = (high - low) / 20, self.episodes.gamma**self.episodes.n_steps
        below, above = max(self.beta - half, low), min(self.beta + half, high)
        change = critic.targets(states, above).mean() - critic.targets(states, below).mean()
        return discount / max(1 - discount, 1e-3) * float(change) / (above - below)

    def _full_gap(self, critic: Estimator, pairs: Pairs) -> tuple[float, float] | None:
        """(soft R with the critic's value at time limits - Q) / (1 - mean gamma^(T-t)): a constant error of the critic
        is in both, so that only this share of it is seen"""
        seen = 1 - float(pairs.weight.mean())
        if not critic.bootstraps or seen <= 0:
            return None
        return clustered(pairs.returns(critic.soft, bootstrap=True) - pairs.estimates, pairs.episode, seen)

    # --- the end of the range ---

    @property
    def _at_limit(self) -> bool:
        return isinstance(self.controller, Calibrating) and self.controller.at_limit

    def _warn_at_limit(self) -> None:
        assert self.settings.range is not None
        end = "lower" if self.beta <= self.settings.range[0] else "upper"
        shown = f"{self.knob.shown_as} = {self.knob.shown(self.beta):g}"
        over = "over" if self.measured["gap"] < 0 else "under"
        share = abs(self.measured["gap"]) / max(abs(self.measured["mean_return"]), 1e-8)
        warnings.warn(
            f"beta has been at the {end} end of its range ({shown}) for ten updates while the critic still "
            f"{over}estimates, by {100 * share:.0f} % of the mean return: the "
            "calibration can do no more, unless the family has a meaning beyond and bias.range is widened",
            stacklevel=3,
        )

    # --- logging and state ---

    def metrics(self) -> dict[str, float]:
        shown = {self.knob.shown_as: self.knob.shown(self.beta)}
        return {**shown, "beta": self.beta, **self.controller.metrics(), **self.measured}

    def state_dict(self) -> dict[str, th.Tensor]:
        """Flat, and tensors alone, because torch loads nothing else without pickle"""
        numbers: dict[str, float] = {"clock": self.clock, "last_update": self.last_update}
        numbers |= {"endless": 1} if self.endless else {}
        numbers |= {f"earned.{i}": value for i, value in enumerate(self.earned)}
        numbers |= {f"measured.{name}": value for name, value in self.measured.items()}
        numbers |= {f"controller.{name}": value for name, value in self.controller.state_dict().items()}
        state = {name: th.tensor(value, dtype=th.double) for name, value in numbers.items()}
        arrays = self.episodes.state_dict().items()
        return state | {f"episodes.{name}": th.as_tensor(np.ascontiguousarray(array)) for name, array in arrays}

    def load_state_dict(self, state: Mapping[str, th.Tensor], strict: bool = True) -> None:
        if "clock" not in state:
            raise AccError("its calibration was saved by acc_rl 0.1, which this version cannot read: load it there")
        numbers = {name: value.item() for name, value in state.items() if not name.startswith("episodes.")}
        self.clock, self.last_update = int(numbers["clock"]), int(numbers["last_update"])
        self.endless = bool(numbers.get("endless", False))
        self.earned = [numbers.get(f"earned.{i}", 0.0) for i in range(self.n_envs)]
        self.measured = _under("measured.", numbers)
        self.controller.load_state_dict(_under("controller.", numbers))
        arrays = {name: value.cpu().numpy() for name, value in state.items() if name.startswith("episodes.")}
        self.episodes.load_state_dict(_under("episodes.", arrays))


def _under(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
