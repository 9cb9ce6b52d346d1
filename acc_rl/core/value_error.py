"""How far the critic's estimates were from what followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from acc_rl.core.episodes import ENDLESS, Episodes, Estimator
from acc_rl.core.observations import Array, Floats, index_observations

LEFT_OUT = 100
"""last pairs of an episode that a time limit cut: their returns lack too much of what the critic counts on"""
PER_RECORD = 1000


class ValueErrorMeter:
    """Compares Q(s, a), as estimated when the pair was collected, with the discounted return seen later.

    Every ``per_record`` pairs make one record: see ``errors``. Endless episodes are cut every ``ENDLESS`` steps.
    """

    def __init__(
        self, n_envs: int, gamma: float, left_out: int = LEFT_OUT, per_record: int = PER_RECORD, n_steps: int = 1
    ) -> None:
        self.left_out, self.per_record = left_out, per_record
        self.episodes = Episodes(n_envs, gamma, n_steps)
        """holds open episodes alone"""
        self.pairs = 0
        """pairs compared so far"""
        self._waiting = np.empty((0, 3))
        """(Q, R, soft R) of pairs that do not fill a record yet"""

    def add(self, transition: tuple[Any, ...], estimates: Array, critic: Estimator) -> list[dict[str, float]]:
        """One step of every env, as ``Episodes.add`` takes it, with the estimates now; the records that became full."""
        for i, length in enumerate(self.episodes.open_lengths):
            if length >= ENDLESS:
                self.episodes.cut(i, index_observations(transition[0], i))
        self.episodes.add(*transition, estimates)  # type: ignore[call-arg]
        if self.episodes.episodes:
            self._compare(critic)
        return self._full_records()

    def _compare(self, critic: Estimator) -> None:
        pairs = self.episodes.pairs(critic, estimate=False)
        assert pairs is not None
        self.episodes.trim(0)
        kept = pairs.without_tail(self.left_out)
        columns = np.stack([kept.estimates, kept.returns(), kept.returns(soft=True)], axis=1)
        self._waiting = np.concatenate([self._waiting, columns])

    def _full_records(self) -> list[dict[str, float]]:
        records = []
        while len(self._waiting) >= self.per_record:
            now, self._waiting = np.split(self._waiting, [self.per_record])
            self.pairs += len(now)
            records.append({"pairs": self.pairs, **errors(*now.T)})
        return records

    def cut(self, index: int, final: Any, critic: Estimator) -> None:
        """Close the open episode of one env as if a time limit had cut it."""
        self.episodes.cut(index, final)
        if self.episodes.episodes:
            self._compare(critic)

    def state_dict(self) -> dict[str, Any]:
        return {"pairs": self.pairs, "waiting": self._waiting, "episodes": self.episodes.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.pairs, self._waiting = int(state["pairs"]), np.array(state["waiting"])
        self.episodes.load_state_dict(state["episodes"])


def errors(estimates: Floats, returns: Floats, soft_returns: Floats | None = None) -> dict[str, float]:
    """bias = mean(Q - R), absolute = mean|Q - R|, relative = mean|Q - R| / mean|R|, normalised = mean(|Q - R| / |R|).

    ``bias_soft`` compares with returns that contain the entropy bonus. The paper's figure is ``normalised``: pairs
    whose return is exactly zero have none and are left out of that mean, and returns near zero rule it.
    """
    difference, size = estimates - returns, np.abs(returns)
    absolute, some = np.abs(difference), size > 0
    soft = {} if soft_returns is None else {"bias_soft": float((estimates - soft_returns).mean())}
    return {
        "bias": float(difference.mean()),
        **soft,
        "absolute": float(absolute.mean()),
        "relative": float(absolute.mean() / size.mean()) if some.any() else float("nan"),
        "normalised": float((absolute[some] / size[some]).mean()) if some.any() else float("nan"),
        "mean_q": float(estimates.mean()),
        "mean_return": float(returns.mean()),
    }
