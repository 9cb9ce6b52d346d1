"""Matrix products of many nets at once, the batch in the last dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LARGE = 2**25
"""multiplications per net from which separate products beat the batched call on CPUs"""


def products(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left[i] @ right[i] (+ bias[i]) for every net i."""
    size = left.shape[1] * left.shape[2] * right.shape[2]
    # the batched call takes several times as long for matrices times vectors, as when one pair is evaluated
    separately = size >= LARGE or (right.shape[2] == 1 and len(left) > 1)
    if left.device.type != "cpu" or not separately:
        return torch.bmm(left, right) if bias is None else torch.baddbmm(bias, left, right)
    out = left.new_empty(left.shape[0], left.shape[1], right.shape[2])
    if bias is None:
        for a, b, c in zip(left.unbind(), right.unbind(), out.unbind(), strict=True):
            torch.mm(a, b, out=c)
    else:
        for a, b, c, d in zip(left.unbind(), right.unbind(), out.unbind(), bias.unbind(), strict=True):
            torch.addmm(d, a, b, out=c)
    return out


def add_products(out: Tensor, left: Tensor, right: Tensor) -> None:
    """out[i] += left[i] @ right[i] for every net i."""
    if left.device.type != "cpu" or left.shape[1] * left.shape[2] * right.shape[2] < LARGE:
        out.baddbmm_(left, right)
    else:
        for a, b, c in zip(left.unbind(), right.unbind(), out.unbind(), strict=True):
            c.addmm_(a, b)


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """W_i x_i + b_i for every net i; an x of two dimensions is shared by all nets."""
    n_nets, n_out, n_in = weight.shape
    assert (x.shape[-2], bias.shape) == (n_in, (n_nets, n_out, 1))
    if torch._C._get_tracing_state() is not None:  # for export: what is written in place leaves no trace
        return torch.baddbmm(bias, weight, x.expand(n_nets, -1, -1))
    if torch.is_grad_enabled():
        if x.dim() == 3 and (x.device.type != "cpu" or 1 < n_out < LARGE / (n_in * x.shape[-1])):
            return torch.baddbmm(bias, weight, x)  # small products: autograd's own nodes cost less than ours
        return _with_gradient(x, weight, bias)
    return _affine(x, weight, bias)


def _affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if x.dim() == 3:
        return products(weight, x, bias)
    # one product serves all nets
    return torch.addmm(bias.flatten(0, 1), weight.flatten(0, 1), x).view(len(weight), weight.shape[1], -1)


class _Affine(torch.autograd.Function):
    """``affine`` for autograd, with the products in the order that is fastest on CPUs.

    The gradients of weight and bias are added to their ``grad`` in place, which must be there: autograd itself would
    make them apart and then add them, one more pass over memory.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.slots = weight.grad, bias.grad
        if x.dim() == 3:
            return products(weight, x, bias)
        out = x.new_empty(len(weight), weight.shape[1], x.shape[1])  # not a view, so that it may be changed in place
        torch.addmm(bias.flatten(0, 1), weight.flatten(0, 1), x, out=out.flatten(0, 1))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            d_weight, d_bias = ctx.slots
            d_bias.add_(grad.sum(2, keepdim=True))
            if x.dim() == 2:
                # this way round, because a product with few columns is slow
                d_weight.flatten(0, 1).add_(torch.mm(x, grad.flatten(0, 1).t()).t())
            else:
                add_products(d_weight, grad, x.transpose(1, 2))
        if not ctx.needs_input_grad[0]:
            return None, None, None
        if x.dim() == 2:
            return torch.mm(weight.flatten(0, 1).t(), grad.flatten(0, 1)), None, None
        back = weight.transpose(1, 2)
        return back * grad if grad.shape[1] == 1 else products(back, grad), None, None


_with_gradient: Callable[[Tensor, Tensor, Tensor], Tensor] = _Affine.apply
