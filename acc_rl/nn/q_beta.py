"""The families of estimates Q_beta, each continuous and increasing in beta (up to rounding)."""

from __future__ import annotations

import torch
from torch import Tensor


def dropped_per_net(beta: float, d_max: float) -> float:
    """d = d_max - beta"""
    return d_max - beta


def truncate(z: Tensor, dropped: float) -> Tensor:
    """The pooled atoms of all nets in ascending order, without the round(dropped * n_nets) largest.

    (n_nets, batch, n_atoms) -> (batch, n_nets * n_atoms - round(dropped * n_nets)).
    A half rounds to the even number, as in the official code: d = 2.5 with 5 nets drops 12.
    """
    n_nets, batch, n_atoms = z.shape
    kept = n_nets * n_atoms - round(dropped * n_nets)
    assert 0 < kept <= n_nets * n_atoms, f"dropping {dropped} of {n_atoms} atoms per net leaves {kept}"
    pooled = z.transpose(0, 1).reshape(batch, n_nets * n_atoms)
    return torch.sort(pooled).values[:, :kept]


def mix_with_min(q: Tensor, beta: float) -> Tensor:
    """beta * Q_k + (1 - beta) * min_i Q_i, one for each critic k; (n_critics, batch, 1) -> the same"""
    return torch.lerp(q.amin(dim=0, keepdim=True).expand_as(q), q, beta)


SHIFT_SCALE = 100
SHIFT_RANGE = (-10.0, 10.0)


def shift(q: Tensor, beta: float) -> Tensor:
    """beta * |Q| / 100 + Q, for any Q"""
    return q + (beta / SHIFT_SCALE) * q.abs()


def double_mix(target: Tensor, online: Tensor, beta: float) -> Tensor:
    """beta * max_a Q(a) + (1 - beta) * Q(argmax_a Q_online(a)), the plain and the double estimate

    (batch, n_actions) -> (batch, 1)
    """
    assert target.shape == online.shape
    double = target.gather(1, online.argmax(dim=1, keepdim=True))
    return torch.lerp(double, target.amax(dim=1, keepdim=True), beta)
