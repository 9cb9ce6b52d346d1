"""Running statistics that bring observations and rewards to a common scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

EPS = 1e-8
LIMIT = 10.0
"""a dimension that has hardly varied yet, a contact force say, must not outweigh all others; VecNormalize's, too"""


class Normalizer(nn.Module):
    """(x - mean) / sqrt(var + 1e-8), clipped to [-10, 10], with the mean and variance of all that was collected."""

    mean: Tensor
    var: Tensor
    count: Tensor
    shift: Tensor
    factor: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        # in double precision: after a million rows a new one moves the mean by less than single precision can tell
        self.register_buffer("mean", torch.zeros(width, dtype=torch.double))
        self.register_buffer("var", torch.ones(width, dtype=torch.double))
        self.register_buffer("count", torch.zeros((), dtype=torch.double))
        self.register_buffer("shift", torch.zeros(width), persistent=False)
        self.register_buffer("factor", torch.ones(width), persistent=False)
        self._use()

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.shift) * self.factor).clamp(-LIMIT, LIMIT)

    @torch.no_grad()
    def add(self, rows: Tensor) -> None:
        """Merge a batch (n, width): Chan's update of mean and variance, in few calls because each env step makes it"""
        n, rows = len(rows), rows.double()
        share = n / (self.count.item() + n)
        delta = rows.mean(0) - self.mean
        self.var.mul_(1 - share).addcmul_(delta, delta, value=share * (1 - share))
        if n > 1:
            self.var.add_(rows.var(0, correction=0), alpha=share)
        self.mean.add_(delta, alpha=share)
        self.count.add_(n)
        self._use()

    def _use(self) -> None:
        self.shift.copy_(self.mean)
        self.factor.copy_((self.var + EPS).rsqrt_())

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._use()


class RewardScale:
    """max(std(G), max|G| / bound) with G <- gamma * G + r of each env, from 0 at each start of an episode.

    Rewards divided by it give returns that fit into [-bound, bound].
    """

    def __init__(self, gamma: float, bound: float) -> None:
        self.gamma, self.bound = gamma, bound
        self.open: npt.NDArray[np.float64] = np.zeros(0)
        self.count = self.mean = self.var = self.largest = 0.0

    @property
    def value(self) -> float:
        scale = max(self.var**0.5, self.largest / self.bound)
        return scale if scale > EPS else 1.0

    def add(self, rewards: npt.NDArray[np.float64], ended: npt.NDArray[np.bool_]) -> None:
        """One step of every env"""
        if len(self.open) != len(rewards):
            self.open = np.zeros(len(rewards))
        self.open = self.gamma * self.open + rewards
        for g in self.open.tolist():
            self.count += 1
            before = g - self.mean
            self.mean += before / self.count
            self.var += (before * (g - self.mean) - self.var) / self.count
        self.largest = max(self.largest, float(np.abs(self.open).max()))
        self.open[np.asarray(ended, bool)] = 0.0

    def forget_open(self, env: int | None = None) -> None:
        """One env was reset, or all: the next rewards are the first of their episodes"""
        self.open[slice(None) if env is None else slice(env, env + 1)] = 0.0

    def state_dict(self) -> dict[str, Tensor]:
        numbers = {name: torch.tensor(getattr(self, name), dtype=torch.double) for name in NUMBERS}
        return {**numbers, "open": torch.from_numpy(self.open.copy())}

    def load_state_dict(self, state: Mapping[str, Tensor], strict: bool = True) -> None:
        for name in NUMBERS:
            setattr(self, name, state[name].item())
        self.open = state["open"].cpu().numpy().copy()


NUMBERS = ("count", "mean", "var", "largest")
