"""The families of estimates Q_beta, continuous and increasing in beta: what beta means, and how far it may go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from acc_rl.core.errors import SettingError
from acc_rl.core.settings import BiasSettings
from acc_rl.nn.head import Law
from acc_rl.nn.losses import ascending


@dataclass(frozen=True)
class Knob(ABC):
    """A family Q_beta: range, start and step of beta, its plain value, and the target made of the target critics."""

    range: tuple[float, float]
    start: float
    step: float
    """of beta, for a gap as large as usual"""
    plain: float
    """the beta at which the algorithm is the uncalibrated one"""
    shown_as: ClassVar[str] = "beta"
    """name of the number that users know"""

    @abstractmethod
    def __call__(self, law: Law, beta: float) -> Law:
        """The law of Q_beta from those of the target critics, (n_nets, batch, m)"""

    def shown(self, beta: float) -> float:
        """The number that users know"""
        return beta

    def settings(self, adapts: bool) -> BiasSettings:
        """What the knob decides: a controller that turns it begins at ``start``, another stays at ``plain``"""
        low, high = self.range
        start = self.start if adapts else self.plain
        return BiasSettings(range=(min(low, start), max(high, start)), start=start, lr=self.step)

    def check(self, low: float, high: float) -> None:  # noqa: B027, most families have a meaning everywhere
        """A SettingError where a beta of this range has no meaning"""


def uniform(law: Law) -> Tensor:
    """The atoms, for families that know no weights"""
    if law.weights is not None:
        raise SettingError("the head's atoms have weights, which this knob does not know: give make_knob one that does")
    return law.atoms


def truncated(z: Tensor, dropped: float) -> Tensor:
    """The pooled atoms of all nets in ascending order, without the round(dropped * n_nets) largest.

    (n_nets, batch, n_atoms) -> (batch, n_nets * n_atoms - round(dropped * n_nets)). A negative number drops the
    smallest. A half rounds to the even number, as in the official code: d = 2.5 with 5 nets drops 12.
    """
    n_nets, batch, n_atoms = z.shape
    total, count = n_nets * n_atoms, round(dropped * n_nets)
    assert abs(count) < total, f"dropping {dropped} of {n_atoms} atoms per net leaves none"
    pooled = ascending(z.transpose(0, 1).reshape(batch, total))
    return pooled[:, : total - count] if count >= 0 else pooled[:, -count:]


@dataclass(frozen=True)
class Truncate(Knob):
    """d = d_max - beta of the largest target atoms are dropped per net, of the pooled atoms of all nets."""

    d_max: float
    n_nets: int
    n_atoms: int
    shown_as: ClassVar[str] = "dropped_per_net"

    @classmethod
    def of(cls, n_nets: int, n_atoms: int, d_max: float = 5.0, plain: float = 2.0) -> Truncate:
        """Start in the middle of [0, d_max], steps of a fiftieth of it; ``plain`` is the d of the plain algorithm"""
        return cls((0.0, d_max), d_max / 2, d_max / 50, d_max - plain, d_max, n_nets, n_atoms)

    def __call__(self, law: Law, beta: float) -> Law:
        return Law(truncated(uniform(law), self.shown(beta)), ascending=True)

    def shown(self, beta: float) -> float:
        return self.d_max - beta

    def check(self, low: float, high: float) -> None:
        for beta in (low, high):
            d = self.shown(beta)
            if abs(round(d * self.n_nets)) >= self.n_nets * self.n_atoms:
                raise SettingError(
                    f"bias.range=({low:g}, {high:g}): d = {self.d_max:g} - beta would reach {d:g}, but there are only "
                    f"n_atoms={self.n_atoms}; use a narrower range or more atoms"
                )


def mix_with_min(q: Tensor, beta: float) -> Tensor:
    """beta * Q_k + (1 - beta) * min_i Q_i, one for each critic k; (n_critics, batch, 1) -> the same"""
    return torch.lerp(q.amin(dim=0, keepdim=True).expand_as(q), q, beta)


@dataclass(frozen=True)
class MixWithMin(Knob):
    """y_k = beta * Q_k + (1 - beta) * min_i Q_i, a target for each critic k."""

    range: tuple[float, float] = (0.0, 1.0)
    start: float = 0.5
    step: float = 0.02
    plain: float = 0.0

    def __call__(self, law: Law, beta: float) -> Law:
        return Law(mix_with_min(uniform(law), beta))

    def check(self, low: float, high: float) -> None:
        if not 0 <= low < high <= 1:
            raise SettingError(f"bias.range=({low:g}, {high:g}), but a mix needs a range within [0, 1]")


SHIFT_SCALE = 100
SAFETY = 0.8
"""share of the betas at which the shifted target is a contraction that the default range takes"""
SHIFT_STEP = 0.01
"""as a share of the largest beta: a closed loop with known values settles within 5 %, with 0.015 not (docs/bias.md)"""


def shift(q: Tensor, beta: float) -> Tensor:
    """beta * |Q| / 100 + Q, for any Q"""
    return q + (beta / SHIFT_SCALE) * q.abs()


@dataclass(frozen=True)
class Shift(Knob):
    """Q_beta = Q + beta * |Q| / 100, of the minimum of the critics (of each, with ``each``).

    In a bootstrapped target it multiplies the discount by up to 1 + |beta| / 100, so the target is a contraction only
    while gamma' * (1 + |beta| / 100) < 1, gamma' = gamma^n for n-step targets.
    """

    discount: float
    """gamma'"""
    each: bool = False

    @classmethod
    def of(cls, discount: float, each: bool = False) -> Shift:
        most = SAFETY * cls.largest(discount) or 1.0
        return cls((-most, most), 0.0, SHIFT_STEP * most, 0.0, discount, each)

    @staticmethod
    def largest(discount: float) -> float:
        """100 * (1 / gamma' - 1): up to there the target is a contraction"""
        return SHIFT_SCALE * min(1 / max(discount, 0.01) - 1, 1.0)

    def __call__(self, law: Law, beta: float) -> Law:
        atoms = uniform(law)
        return Law(shift(atoms if self.each else atoms.amin(dim=0), beta))

    def check(self, low: float, high: float) -> None:
        if self.discount >= 1:
            raise SettingError(
                f"gamma is {self.discount:g}, but a shifted target needs gamma < 1: with 1 it is no contraction for "
                "any beta > 0; use another algorithm, or a smaller gamma"
            )
        most = self.largest(self.discount)
        if max(-low, high) >= most:
            raise SettingError(
                f"bias.range=({low:g}, {high:g}), but with a discount of {self.discount:g} a shifted target is a "
                f"contraction only for |beta| < {most:.4g}: use a narrower range"
            )


@dataclass(frozen=True)
class PoolOrMin(Knob):
    """p = beta * mean_i p_i + (1 - beta) * p_argmin, argmin the critic with the smallest mean; shown as k = 1 - beta.

    Its mean is exactly beta * mean_i Q_i + (1 - beta) * min_i Q_i.
    """

    range: tuple[float, float] = (0.0, 1.0)
    start: float = 0.5
    step: float = 0.02
    plain: float = 0.0
    shown_as: ClassVar[str] = "pessimism"

    def __call__(self, law: Law, beta: float) -> Law:
        p = law.weights
        assert p is not None
        smallest = law.mean().argmin(dim=0)  # (batch,)
        least = p[smallest, torch.arange(p.shape[1], device=p.device)]
        return Law(law.atoms, torch.lerp(least, p.mean(dim=0), beta))

    def shown(self, beta: float) -> float:
        return 1 - beta

    def check(self, low: float, high: float) -> None:
        if not 0 <= low < high <= 1:  # beyond, the weights are no distribution
            raise SettingError(f"bias.range=({low:g}, {high:g}), but a pool needs a range within [0, 1]")
