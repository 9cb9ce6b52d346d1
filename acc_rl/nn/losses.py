"""Losses with exact gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def quantile_huber_loss(z: Tensor, targets: Tensor) -> Tensor:
    """``quantile_huber(z, targets)[0]``, for autograd"""
    return _quantile_huber(z, targets)


def quantile_huber(z: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """mean over batch, nets, atoms m and targets j of |tau_m - 1(u < 0)| * Huber_1(u), u = y_j - z_m.

    ``z`` is (n_nets, batch, n_atoms), ``targets`` (batch, kept) and in ascending order; tau_m = (2m - 1) / (2M).
    The loss and its gradient with respect to z, exact, in O(atoms * log(targets)) time and without the
    (batch, nets, atoms, targets) tensor.

    The Huber function is a difference of two squared ramps, 1/2 (x)+^2 - 1/2 (x - 1)+^2, so with

        F1(c) = sum_j (c - y_j)+,   F2(c) = 1/2 sum_j (c - y_j)+^2

    the targets below an atom z cost F2(z) - F2(z - 1) and those above sum_j(y_j - z - 1/2) + F2(z + 1) - F2(z).
    With the targets sorted, F1 and F2 at any c are two prefix sums at the place where c would stand among them.
    """
    n_nets, batch, n_atoms = z.shape
    n_targets = targets.shape[-1]
    assert targets.shape == (batch, n_targets)
    # in double and around zero: differences of prefix sums would lose the digits of a float32 at large values
    y = targets.to(torch.double, memory_format=torch.contiguous_format)
    centre = y.mean(1, keepdim=True)
    y = y - centre
    atoms = z.transpose(0, 1).reshape(batch, n_nets * n_atoms).double() - centre
    tau = (torch.arange(n_atoms, dtype=torch.double, device=z.device) + 0.5).div_(n_atoms).repeat(n_nets)

    c = torch.cat((atoms - 1, atoms, atoms + 1), dim=1)
    below = torch.searchsorted(y, c)
    sum_1 = torch.nn.functional.pad(y.cumsum(1), (1, 0)).gather(1, below)
    sum_2 = torch.nn.functional.pad(y.square().cumsum(1), (1, 0)).gather(1, below)
    ramp_1 = c * below - sum_1
    ramp_2 = 0.5 * (c * (ramp_1 - sum_1) + sum_2)
    (f1_left, f1, f1_right), (f2_left, f2, f2_right) = ramp_1.chunk(3, 1), ramp_2.chunk(3, 1)

    weight = 1 / (n_nets * batch * n_atoms * n_targets)
    above = y.sum(1, keepdim=True) - n_targets * (atoms + 0.5) + f2_right - f2
    loss = weight * torch.lerp(f2 - f2_left, above, tau).sum()
    grad = weight * torch.lerp(f1 - f1_left, f1_right - f1 - n_targets, tau)
    return loss.to(z.dtype), grad.to(z.dtype).view(batch, n_nets, n_atoms).transpose(0, 1)


class _QuantileHuber(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, targets: Tensor) -> Tensor:
        loss, grad = quantile_huber(z, targets)
        ctx.save_for_backward(grad)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.saved_tensors[0], None


_quantile_huber: Callable[[Tensor, Tensor], Tensor] = _QuantileHuber.apply
