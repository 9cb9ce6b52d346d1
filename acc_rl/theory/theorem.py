"""Theorem 1: when is the calibrated estimate unbiased? Simulated, and exact.

All returns here have mean 0 and standard deviation 1: the true value Q is the zero of the scale, and walls and biases
are distances from Q in standard deviations of one return.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from acc_rl.core.errors import AccError

Floats: TypeAlias = npt.NDArray[np.float64]
LARGEST_N = 1000
"""returns per estimate; the exact sum for uniform returns takes about a second there"""
LARGEST = 10**8
"""estimates per case, which are kept until their mean is taken"""
CHUNK = 1 << 20
"""numbers drawn at once"""


def calibrated(returns: Floats, low: float, high: float) -> Floats:
    """Q at beta* = argmin |Q_beta - mean R|: a continuous, increasing Q_beta from low to high meets clip(mean R)."""
    estimate: Floats = np.clip(returns.mean(axis=-1), low, high)
    return estimate


class Returns(ABC):
    """Returns with mean 0 and standard deviation 1."""

    name: str
    symmetric: bool

    @abstractmethod
    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats: ...

    @abstractmethod
    def excess(self, n: int, x: float) -> float:
        """E[max(mean of n returns - x, 0)], exactly"""


class Normal(Returns):
    name, symmetric = "normal", True

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return rng.standard_normal(shape)

    def excess(self, n: int, x: float) -> float:
        """s * phi(x / s) - x * Phi(-x / s) with s = n^(-1/2)"""
        s = 1 / math.sqrt(n)
        density = math.exp(-0.5 * (x / s) ** 2) / math.sqrt(2 * math.pi)
        return s * density - x * float(special.ndtr(-x / s))


class Uniform(Returns):
    name, symmetric = "uniform", True
    half = math.sqrt(3.0)
    """standard deviation 1 needs [-sqrt 3, sqrt 3]"""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return rng.uniform(-self.half, self.half, shape)

    def excess(self, n: int, x: float) -> float:
        """With S the sum of n uniforms on [0, 1] (Irwin-Hall) and mean = 2 * half * (S / n - 1 / 2):

        E[max(S - t, 0)] = sum over k < c of (-1)^k * C(n, k) * (c - k)^(n+1) / (n+1)!,  c = n - t

        At n = 200 the terms are up to 10^30 times their sum: they are added as whole numbers, where no digit is lost.
        """
        if x <= -self.half:
            return -x
        if x >= self.half:
            return 0.0
        c, unit = (n * (0.5 - x / (2 * self.half))).as_integer_ratio()
        total: int = sum((-1) ** k * math.comb(n, k) * (c - k * unit) ** (n + 1) for k in range(-(-c // unit)))
        size: int = unit ** (n + 1) * math.factorial(n + 1)
        return 2 * self.half / n * (total / size)


class Exponential(Returns):
    """Many small losses and a long tail of gains: the waiting time less its mean."""

    name, symmetric = "exponential", False

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return rng.standard_exponential(shape) - 1.0

    def excess(self, n: int, x: float) -> float:
        """The sum of n is gamma-distributed: E[max(G - g, 0)] = n * P(G_{n+1} > g) - g * P(G_n > g), g = n * (1 + x)"""
        g = n * (1.0 + x)
        if g <= 0:
            return -x
        return float(special.gammaincc(n + 1, g)) - (1.0 + x) * float(special.gammaincc(n, g))


class TwoPoint(Returns):
    """Success with probability p, failure otherwise."""

    def __init__(self, p: float, name: str) -> None:
        self.p, self.name, self.symmetric = p, name, p == 0.5
        self.spread = math.sqrt(p * (1 - p))
        self.points = (-p / self.spread, (1 - p) / self.spread)
        """failure, success"""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return np.where(rng.random(shape) < self.p, self.points[1], self.points[0])

    def excess(self, n: int, x: float) -> float:
        """sum over the number k of successes, binomially distributed"""
        k = np.arange(n + 1)
        ways = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
        weights = np.exp(ways + k * math.log(self.p) + (n - k) * math.log1p(-self.p))
        means = (k / n - self.p) / self.spread
        return float(weights @ np.maximum(means - x, 0.0) / weights.sum())


@dataclass(frozen=True)
class Case:
    """Returns, the walls Q_min and Q_max, and which assumption of the theorem they keep or break."""

    group: str
    returns: Returns
    low: float
    high: float

    @property
    def name(self) -> str:
        return f"{self.returns.name} [{self.low:.3g}, {self.high:.3g}]"

    def bias(self, n: int) -> float:
        """E[clip(mean of n, low, high)] - Q, exactly; the clip is low + max(mean - low, 0) - max(mean - high, 0)"""
        return self.low + self.returns.excess(n, self.low) - self.returns.excess(n, self.high)

    def simulate(self, n: int, repeats: int, rng: np.random.Generator) -> tuple[float, float]:
        """Mean of ``repeats`` estimates from n drawn returns each, less Q, and its standard error"""
        rows = max(1, CHUNK // n)
        sizes = [min(rows, repeats - done) for done in range(0, repeats, rows)]
        estimates = np.concatenate([calibrated(self.returns.draw(rng, (m, n)), self.low, self.high) for m in sizes])
        return float(estimates.mean()), float(estimates.std(ddof=1) / math.sqrt(repeats))


HOLDS, DISTANCE, SYMMETRY = "all assumptions hold", "unequal distances", "returns not symmetric"
INSIDE, OUTSIDE = "no return beyond the walls", "Q not between the walls"
COIN, RARE_GAIN, RARE_LOSS = TwoPoint(0.5, "fair coin"), TwoPoint(0.1, "rare gain"), TwoPoint(0.9, "rare loss")
CASES = (
    Case(HOLDS, Normal(), -0.5, 0.5),
    Case(HOLDS, Uniform(), -0.5, 0.5),
    Case(HOLDS, COIN, -0.5, 0.5),
    Case(DISTANCE, Normal(), -0.25, 0.75),
    Case(DISTANCE, Uniform(), -0.75, 0.25),
    Case(SYMMETRY, Exponential(), -0.5, 0.5),
    Case(SYMMETRY, RARE_GAIN, -0.5, 0.5),
    Case(SYMMETRY, RARE_LOSS, -0.5, 0.5),
    Case(INSIDE, RARE_GAIN, *RARE_GAIN.points),
    Case(OUTSIDE, Normal(), 0.25, 0.75),
)


@dataclass(frozen=True)
class Row:
    """The bias of one case at one number of returns."""

    case: Case
    n: int
    exact: float
    simulated: float
    error: float
    """standard error of ``simulated``"""

    def as_dict(self) -> dict[str, Any]:
        case = self.case
        return {
            "group": case.group,
            "returns": case.returns.name,
            "low": case.low,
            "high": case.high,
            "n": self.n,
            "exact": self.exact,
            "simulated": self.simulated,
            "error": self.error,
        }


def biases(returns: Sequence[int], repeats: int, rng: np.random.Generator) -> Iterator[Row]:
    """All cases at all numbers of returns, one by one as they are done"""
    if not returns:
        raise AccError("returns is empty, but must name at least one number")
    for n in returns:
        _require("returns", n, 1 <= n <= LARGEST_N, f"whole numbers from 1 to {LARGEST_N}")
    _require("repeats", repeats, 2 <= repeats <= LARGEST, f">= 2 for a standard error, and <= {LARGEST}")
    return _biases(returns, repeats, rng)


def _biases(returns: Sequence[int], repeats: int, rng: np.random.Generator) -> Iterator[Row]:
    for case in CASES:
        for n in returns:
            yield Row(case, n, case.bias(n), *case.simulate(n, repeats, rng))


def _require(field: str, value: object, ok: bool, allowed: str) -> None:
    if not ok:
        raise AccError(f"{field} is {value!r}, but must be {allowed}")
