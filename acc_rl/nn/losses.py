"""Losses with exact gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def ascending(x: Tensor) -> Tensor:
    """Sorted along the last dimension; NaN last"""
    if x.device.type == "cpu" and not x.requires_grad:
        return torch.from_numpy(np.sort(x.numpy()))  # vectorised, ten times as fast as torch's
    return x.sort().values


def count_below(y: Tensor, c: Tensor) -> Tensor:
    """How many entries of each ascending row of ``y`` are below each entry of ``c``: ``torch.searchsorted(y, c)``.

    All entries take the steps of a bisection together, without branches: a third of the time on CPUs.
    """
    n = y.shape[1]
    step = 1 << (n.bit_length() - 1)
    padded = torch.nn.functional.pad(y, (1, 2 * step - 1 - n), value=torch.inf)  # counted from 1
    count = (padded[:, step : step + 1] < c).long().mul_(step)
    while step := step // 2:
        count.add_(padded.gather(1, count + step) < c, alpha=step)
    return count


def with_gradient(z: Tensor, loss: Tensor, grad: Tensor) -> Tensor:
    """``loss`` for autograd, its gradient with respect to ``z`` being known"""
    return _with_gradient(z, loss, grad) if z.requires_grad else loss


def quantile_huber_loss(z: Tensor, targets: Tensor) -> Tensor:
    """``quantile_huber(z, targets)[0]``, for autograd"""
    return with_gradient(z, *quantile_huber(z.detach(), targets))


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
    below = count_below(y, c)
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


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, loss: Tensor, grad: Tensor) -> Tensor:
        ctx.save_for_backward(grad)
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad * ctx.saved_tensors[0], None, None


_with_gradient: Callable[[Tensor, Tensor, Tensor], Tensor] = _WithGradient.apply
