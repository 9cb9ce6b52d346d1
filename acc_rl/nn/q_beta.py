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
