"""Normalisation over the features or over the batch, as one node of autograd's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def normalize(x: Tensor, weight: Tensor, bias: Tensor, dim: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """weight * (x - mean) / sqrt(var + eps) + bias, with mean and variance over ``dim``; then these two.

    x is ([n_nets,] features, batch); weight and bias are ([n_nets,] features, 1), or constants. Mean and variance have
    no gradient of their own.
    """
    if torch.is_grad_enabled() and torch._C._get_tracing_state() is None:
        return _with_gradient(x, weight, bias, dim, eps)
    normal, _, mean, var = _normal(x, dim, eps)
    return torch.addcmul(bias, normal, weight), mean, var


def _normal(x: Tensor, dim: int, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(var + eps), 1 / sqrt(var + eps), mean and variance"""
    mean = x.mean(dim, keepdim=True)
    centred = x - mean
    var = centred.square().mean(dim, keepdim=True)  # torch.var goes through memory number by number
    rstd = (var + eps).rsqrt()
    return centred * rstd, rstd, mean, var


class _Normalize(torch.autograd.Function):
    """By hand: a dozen passes over memory, where torch's norms want the features last or count in double precision"""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, dim: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        normal, rstd, mean, var = _normal(x, dim, eps)
        ctx.dim = dim
        ctx.save_for_backward(normal, rstd, weight)
        ctx.mark_non_differentiable(mean, var)
        return torch.addcmul(bias, normal, weight), mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """dx = (g - mean(g) - normal * mean(g * normal)) / sqrt(var + eps), g = weight * grad"""
        normal, rstd, weight = ctx.saved_tensors
        to_x, to_weight, to_bias, *_ = ctx.needs_input_grad
        both = grad * normal
        d_weight = both.sum(-1, keepdim=True) if to_weight else None
        d_bias = grad.sum(-1, keepdim=True) if to_bias else None
        if not to_x:
            return None, d_weight, d_bias, None, None
        g, along = grad * weight, both.mul_(weight).mean(ctx.dim, keepdim=True)
        g.sub_(g.mean(ctx.dim, keepdim=True)).addcmul_(normal, along, value=-1).mul_(rstd)
        return g, d_weight, d_bias, None, None


_with_gradient: Callable[..., tuple[Tensor, Tensor, Tensor]] = _Normalize.apply
