"""What the outputs of a critic mean: laws of returns, values, and the loss that moves them to a target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from acc_rl.core.checks import is_whole
from acc_rl.core.errors import SettingError
from acc_rl.nn.losses import ascending, quantile_huber_loss, with_gradient


class Law(NamedTuple):
    """A distribution of returns on atoms; an affine map of the atoms is an affine map of the return."""

    atoms: Tensor
    """([n_nets,] batch, m)"""
    weights: Tensor | None = None
    """of the same shape, summing to one over the atoms; None: uniform"""
    ascending: bool = False
    """whether the atoms are known to be sorted"""

    def bellman(self, rewards: Tensor, discounts: Tensor, bonus: Tensor | float = 0.0) -> Law:
        """y = r + gamma * (z + bonus), each atom z; rewards, discounts and bonus are (batch, 1)"""
        return self._replace(atoms=rewards + discounts * (self.atoms + bonus))

    def mean(self) -> Tensor:
        """([n_nets,] batch)"""
        return self.atoms.mean(-1) if self.weights is None else (self.weights * self.atoms).sum(-1)


class Head(ABC):
    """The meaning of a critic's outputs z, (n_nets, batch, n_outputs)."""

    n_outputs: int

    @abstractmethod
    def law(self, z: Tensor) -> Law:
        """The distributions that the outputs describe, one per net"""

    def values(self, z: Tensor) -> Tensor:
        """Their means, (n_nets, batch)"""
        return self.law(z).mean()

    @abstractmethod
    def loss(self, z: Tensor, target: Law) -> Tensor:
        """A scalar; the target has no gradient"""


class Scalar(Head):
    """One number, the mean; ``factor`` times the sum over nets of the mean of (Q - y)^2, or of Huber_1(Q - y)."""

    n_outputs = 1

    def __init__(self, factor: float = 1.0, huber: bool = False) -> None:
        self.factor, self.huber = factor, huber

    def law(self, z: Tensor) -> Law:
        return Law(z)

    def values(self, z: Tensor) -> Tensor:
        return z.squeeze(-1)

    def loss(self, z: Tensor, target: Law) -> Tensor:
        n_nets, batch, _ = z.shape
        y = target.mean()  # of shape (batch,), or one per net
        assert y.shape in ((batch,), (n_nets, batch))
        error = z.detach().squeeze(-1) - y
        slope = error.clamp(-1, 1) if self.huber else 2 * error
        loss = slope * (error - 0.5 * slope) if self.huber else error.square()
        scale = self.factor / batch
        return with_gradient(z, scale * loss.sum(), (scale * slope)[..., None])


class Quantiles(Head):
    """n atoms at the quantiles (2m - 1) / (2n); ``factor`` times the quantile-Huber loss against the target's atoms."""

    def __init__(self, n_atoms: int, factor: float = 1.0) -> None:
        self.n_outputs, self.factor = n_atoms, factor

    def law(self, z: Tensor) -> Law:
        return Law(z)

    def loss(self, z: Tensor, target: Law) -> Tensor:
        assert target.weights is None
        y = target.atoms
        if y.dim() == 3:  # one law per net: all their atoms together
            y = y.transpose(0, 1).flatten(1)
        if y is not target.atoms or not target.ascending:
            y = ascending(y)
        loss = quantile_huber_loss(z, y)
        return loss if self.factor == 1 else self.factor * loss


class Categorical(Head):
    """Logits of probabilities on n fixed atoms in [-bound, bound]; the loss is the cross-entropy with the target.

    The target's atoms are clipped into the support and split between the two nearest of its atoms, as in C51.
    """

    def __init__(self, n_atoms: int = 101, bound: float = 5.0) -> None:
        if not is_whole(n_atoms, 2):
            raise SettingError(f"n_atoms is {n_atoms!r}, but must be an integer >= 2 for categorical critics")
        self.n_outputs, self.bound = n_atoms, bound

    def support(self, like: Tensor) -> Tensor:
        return torch.linspace(-self.bound, self.bound, self.n_outputs, dtype=like.dtype, device=like.device)

    def law(self, z: Tensor) -> Law:
        return Law(self.support(z).expand(z.shape[-2:]), z.softmax(-1))

    def loss(self, z: Tensor, target: Law) -> Tensor:
        """Mean over the batch, summed over the nets"""
        p, log_p, batch = self.project(target), z.detach().log_softmax(-1), z.shape[1]
        grad = (log_p.exp() * p.sum(-1, keepdim=True) - p) / batch
        return with_gradient(z, -torch.dot(p.expand_as(log_p).flatten(), log_p.flatten()) / batch, grad)

    def project(self, target: Law) -> Tensor:
        """The target's probabilities on the support, of the shape of its weights"""
        assert target.weights is not None
        place = (target.atoms.clamp(-self.bound, self.bound) + self.bound) * ((self.n_outputs - 1) / (2 * self.bound))
        below = place.floor().clamp_(max=self.n_outputs - 2)
        share = (place - below).expand_as(target.weights)
        index = below.long().expand_as(target.weights)
        projected = torch.zeros_like(target.weights).scatter_add_(-1, index, target.weights * (1 - share))
        return projected.scatter_add_(-1, index + 1, target.weights * share)
