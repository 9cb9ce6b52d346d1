"""How far the critic's estimates were from what followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from acc_rl.core.episodes import Array, discounted_returns

LEFT_OUT = 100
"""last pairs of an episode that a time limit cut: their returns lack too much of what the critic counts on"""
PER_RECORD = 1000


class ValueErrorMeter:
    """Compares Q(s, a), as estimated when the pair was met, with the discounted return seen later.

    Every ``per_record`` pairs make one record: the signed bias mean(Q - R), the absolute error mean(|Q - R|) and the
    normalised error mean(|Q - R| / |R|).
    """

    def __init__(self, n_envs: int, gamma: float, left_out: int = LEFT_OUT, per_record: int = PER_RECORD) -> None:
        self.gamma, self.left_out, self.per_record = gamma, left_out, per_record
        self.pairs = 0
        """pairs compared so far"""
        self._open: list[list[tuple[float, float]]] = [[] for _ in range(n_envs)]
        self._waiting = np.empty((0, 2))
        """(Q, R) of pairs that do not fill a record yet"""

    def add(
        self, values: Array, rewards: Array, ended: Sequence[bool] | Array, truncated: Sequence[bool] | Array
    ) -> list[dict[str, float]]:
        """One step of every env: the estimates and the rewards; the records that became full."""
        for i, steps in enumerate(self._open):
            steps.append((float(values[i]), float(rewards[i])))
            if ended[i]:
                self._close(np.array(steps), bool(truncated[i]))
                self._open[i] = []
        return self._full_records()

    def _close(self, steps: Array, truncated: bool) -> None:
        estimates, returns = steps[:, 0], discounted_returns(steps[:, 1], self.gamma)
        kept = max(len(steps) - self.left_out, 0) if truncated else len(steps)
        self._waiting = np.concatenate([self._waiting, np.stack([estimates, returns], axis=1)[:kept]])

    def _full_records(self) -> list[dict[str, float]]:
        records = []
        while len(self._waiting) >= self.per_record:
            now, self._waiting = np.split(self._waiting, [self.per_record])
            self.pairs += len(now)
            records.append({"pairs": self.pairs, **errors(now[:, 0], now[:, 1])})
        return records

    def forget_open(self, n_envs: int) -> None:
        """Drop the unfinished episodes: the envs were reset, their ends will not come."""
        self._open = [[] for _ in range(n_envs)]

    def cut(self, index: int) -> None:
        """Close the open episode of one env as if a time limit had cut it."""
        if self._open[index]:
            self._close(np.array(self._open[index]), truncated=True)
            self._open[index] = []

    def state_dict(self) -> dict[str, Any]:
        return {
            "pairs": self.pairs,
            "open": [np.array(steps).reshape(-1, 2) for steps in self._open],
            "waiting": self._waiting,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.pairs, self._waiting = int(state["pairs"]), np.array(state["waiting"])
        self._open = [[(float(q), float(r)) for q, r in steps] for steps in state["open"]]


def errors(estimates: Array, returns: Array) -> dict[str, float]:
    """bias = mean(Q - R), absolute = mean(|Q - R|), normalised = mean(|Q - R| / |R|), and the two means.

    Pairs whose return is exactly zero have no normalised error and are left out of that mean.
    """
    difference, size = estimates - returns, np.abs(returns)
    some = size > 0
    return {
        "bias": float(difference.mean()),
        "absolute": float(np.abs(difference).mean()),
        "normalised": float((np.abs(difference[some]) / size[some]).mean()) if some.any() else float("nan"),
        "mean_q": float(estimates.mean()),
        "mean_return": float(returns.mean()),
    }
