"""Who turns beta, and by what evidence."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from acc_rl.core.errors import AccError
from acc_rl.core.settings import BiasSettings

EPS = 1e-8
STUCK = 10
"""updates at an end of the range, with the gap pointing outward, after which it is reported"""
TURNS = ("start", "range", "lr", "rule", "moving_average", "target_bias")
"""settings of the calibration that decide where beta goes; the others decide what is measured"""
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def student(freedom: int) -> float:
    """97.5 % quantile of Student's t distribution, to a hundredth; infinite without a degree of freedom"""
    if freedom < 1:
        return math.inf
    return STUDENT[freedom - 1] if freedom <= len(STUDENT) else 1.96 + 2.6 / freedom


class NonFiniteGap(AccError):
    """The critic or the returns are non-finite."""


@dataclass(frozen=True)
class Evidence:
    """What recent returns say about the critic."""

    gap: float
    """mean(R - Q); positive: the critic underestimates"""
    error: float
    """its standard error, clustered by episode; NaN with a single episode"""
    step: int
    """env steps so far"""
    mean_return: float = math.nan
    mean_q: float = math.nan
    clusters: int = 1
    """independent parts of the evidence: episodes, or blocks of n steps"""
    lever: float = math.nan
    """how far the critic's estimates move in the end when beta moves by one"""


class Controller:
    """Base of all controllers: a ``beta`` that stays where it started.

    A controller of your own overrides ``measured`` (a gap was measured), ``ended`` (an episode ended) or ``trained``
    (a minibatch was learned from), and sets ``self.beta`` there. ``beta`` up must mean: larger targets.
    """

    adapts: ClassVar[bool] = True
    """whether it ever turns beta"""
    wants_td_error: ClassVar[bool] = False
    """whether ``trained`` is to be called"""
    wants_lever = False
    """whether the evidence is to have its ``lever``"""
    reads: ClassVar[tuple[str, ...]] = TURNS
    """what of the settings decides its beta"""
    seed = 0
    """the model's, for controllers that draw"""
    stored: ClassVar[tuple[str, ...]] = ("beta",)
    """names of the numbers that are its state; None is stored as NaN"""

    def begin(self, settings: BiasSettings) -> None:
        """``settings`` are complete: the knob's range, start and step, and the user's changes."""
        assert settings.start is not None
        self.settings, self.beta = settings, settings.start

    def measured(self, evidence: Evidence) -> None:
        """A gap was measured."""

    def ended(self, episode_return: float, step: int) -> None:
        """An episode ended with this undiscounted return."""

    def trained(self, td_error: Any) -> None:
        """mean over a minibatch of (mean online estimate - target), still a tensor"""

    def advance(self) -> None:
        """Called before each env step: the place to turn beta by what ``trained`` has accumulated"""

    def metrics(self) -> dict[str, float]:
        """What it logs beside beta"""
        return {}

    def state_dict(self) -> dict[str, float]:
        values = {name: getattr(self, name) for name in self.stored}
        return {name: math.nan if value is None else float(value) for name, value in values.items()}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        for name in self.stored:
            if name in state and (self.adapts or name != "beta"):
                setattr(self, name, None if math.isnan(state[name]) else float(state[name]))

    def clipped(self, beta: float) -> float:
        assert self.settings.range is not None
        low, high = self.settings.range
        return min(max(beta, low), high)


class Constant(Controller):
    """``beta`` stays; the gap is still measured, so that it can be logged."""

    adapts, reads = False, ("start",)
    stored = ()


class Calibrating(Controller):
    """ACC: gap = mean(R - Q) > 0 means that the critic underestimates, so beta, and with it Q, goes up."""

    stored = ("beta", "scale", "stuck")
    gain, largest = 0.2, 2.0
    """of the confident rule: share of the gap that a step is to close, and the largest step in units of ``lr``"""

    def begin(self, settings: BiasSettings) -> None:
        super().begin(settings)
        self.wants_lever = settings.rule == "confident"
        self.scale: float | None = None
        """moving average of |gap|"""
        self.stuck = 0.0
        """updates in a row at an end of the range with the gap pointing outward"""

    def measured(self, evidence: Evidence) -> None:
        """beta = clip(beta + step, low, high), the step by the rule of the settings"""
        if not math.isfinite(evidence.gap):
            raise NonFiniteGap(f"gap is {evidence.gap!r} at step {evidence.step}: critic or returns are non-finite")
        wanted_bias = self.settings.target_bias
        gap = evidence.gap + wanted_bias * abs(evidence.mean_return) if wanted_bias else evidence.gap
        wanted = self.beta + (self._confident(gap, evidence) if self.wants_lever else self._paper(gap))
        self.beta = self.clipped(wanted)
        self.stuck = self.stuck + 1 if self.beta != wanted else 0.0

    def _paper(self, gap: float) -> float:
        """scale = |gap|, then (1 - c) * scale + c * |gap|; lr * gap / (scale + 1e-8)"""
        c, lr = self.settings.moving_average, self.settings.lr
        assert c is not None
        assert lr is not None
        self.scale = abs(gap) if self.scale is None else (1 - c) * self.scale + c * abs(gap)
        return lr * gap / (self.scale + EPS)

    def _confident(self, gap: float, evidence: Evidence) -> float:
        """max(0, 1 - (t * error / gap)^2) * clip(gain * gap / lever, -largest * lr, largest * lr)

        t is Student's 97.5 % quantile: noise alone moves beta once in twenty updates, and then not far. With a single
        episode, or a knob without effect, nothing is known and beta stays.
        """
        lr, noise = self.settings.lr, student(evidence.clusters - 1) * evidence.error
        assert lr is not None
        if not (evidence.lever > 0 and noise < abs(gap)):
            return 0.0
        step = min(max(self.gain * gap / evidence.lever, -self.largest * lr), self.largest * lr)
        return (1 - (noise / gap) ** 2) * step

    @property
    def at_limit(self) -> bool:
        """Whether beta has wanted to leave its range for ten updates in a row"""
        return self.stuck >= STUCK

    def metrics(self) -> dict[str, float]:
        return ({} if self.scale is None else {"scale": self.scale}) | {"at_limit": float(self.at_limit)}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        super().load_state_dict(state)
        self.beta = self.clipped(self.beta)  # it may have been saved with another range


class Bandit(Controller):
    """TOP (Moskovitz et al. 2021): in each episode beta is at one of the ends of its range, drawn by softmax(w).

    Feedback is the return less that of the episode before, standardised over the last five:
    w_arm <- 0.9 * w_arm + 0.1 * feedback / exp(w_arm). Arm 0 is the pessimistic end.
    """

    reads = ("range",)
    decay, lr, window = 0.9, 0.1, 5

    def begin(self, settings: BiasSettings) -> None:
        super().begin(settings)
        self.weights, self.episodes, self.arm = [0.0, 0.0], 0, 0
        self.previous: float | None = None
        self.feedback: list[float] = []
        self._draw()

    def _draw(self) -> None:
        """Episode k's arm is a function of the seed and k, so that it needs no random state of its own"""
        chance = 1 / (1 + math.exp(self.weights[0] - self.weights[1]))
        self.arm = int(random.Random(f"{self.seed}/{self.episodes}").random() < chance)
        self.beta = self._of_arm()

    def _of_arm(self) -> float:
        assert self.settings.range is not None
        return self.settings.range[self.arm]

    def ended(self, episode_return: float, step: int) -> None:
        if self.previous is not None:
            self.feedback = [*self.feedback, episode_return - self.previous][-self.window :]
            mean = sum(self.feedback) / len(self.feedback)
            spread = math.sqrt(sum((each - mean) ** 2 for each in self.feedback) / len(self.feedback))
            z, w = (self.feedback[-1] - mean) / (spread + EPS), self.weights[self.arm]
            self.weights[self.arm] = self.decay * w + self.lr * z / math.exp(w)
        self.previous = episode_return
        self.episodes += 1
        self._draw()

    def metrics(self) -> dict[str, float]:
        return {"pessimistic_weight": self.weights[0], "optimistic_weight": self.weights[1]}

    def state_dict(self) -> dict[str, float]:
        previous = math.nan if self.previous is None else self.previous
        state = {"arm": self.arm, "episodes": self.episodes, "previous": previous, "beta": self.beta}
        lists = {"weight": self.weights, "feedback": self.feedback}
        return {**state, **{f"{name}_{i}": x for name, xs in lists.items() for i, x in enumerate(xs)}}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        if "arm" not in state:  # another controller's: it begins afresh
            return
        self.arm, self.episodes = int(state["arm"]), int(state["episodes"])
        self.beta = self._of_arm()
        self.previous = None if math.isnan(state["previous"]) else state["previous"]
        self.weights = [state["weight_0"], state["weight_1"]]
        self.feedback = [state[f"feedback_{i}"] for i in range(self.window) if f"feedback_{i}" in state]


class DualTD(Controller):
    """GPL (Cetin and Celiktutan 2023): beta <- beta - 1e-4 * E[Q - y], Q the mean online estimate, y the target"""

    wants_td_error, lr, reads = True, 1e-4, ("start", "range")

    def begin(self, settings: BiasSettings) -> None:
        super().begin(settings)
        self._sum: Any = None

    def trained(self, td_error: Any) -> None:
        self._sum = td_error if self._sum is None else self._sum + td_error

    def advance(self) -> None:
        if self._sum is not None:
            self.beta = self.clipped(self.beta - self.lr * float(self._sum))
            self._sum = None

    def state_dict(self) -> dict[str, float]:
        self.advance()
        return super().state_dict()

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        super().load_state_dict(state)
        self.beta = self.clipped(self.beta)


CONTROLLERS: Mapping[str, type[Controller]] = {"acc": Calibrating, "fixed": Constant, "top": Bandit, "gpl": DualTD}


def make_controller(which: Any) -> Controller:
    """A controller by name, or the object itself"""
    if isinstance(which, Controller):
        return which
    if which not in CONTROLLERS:
        raise AccError(f"controller is {which!r}, but must be {', '.join(map(repr, CONTROLLERS))} or a Controller")
    return CONTROLLERS[which]()
