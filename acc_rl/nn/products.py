"""Matrix products of many nets at once, the batch in the last dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def perceptron(x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """W_k relu(... relu(W_1 x + b_1) ...) + b_k for every net; an x of two dimensions is shared by all nets.

    ``parameters`` are W_1, b_1, ..., W_k, b_k. Where they require a gradient their ``grad`` must be there.
    """
    if torch._C._get_tracing_state() is not None:  # for export: what is written in place leaves no trace
        h = x.expand(len(parameters[0]), -1, -1)
        for i, (weight, bias) in enumerate(zip(parameters[::2], parameters[1::2], strict=True)):
            h = torch.baddbmm(bias, weight, h.relu() if i else h)
        return h
    if torch.is_grad_enabled():
        return _with_gradient(x, *parameters)
    return _forward(x, parameters)[1]


def _forward(x: Tensor, parameters: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The inputs of the layers, and the output"""
    inputs: list[Tensor] = []
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        inputs.append(x.relu_() if inputs else x)
        n_nets, n_out, n_in = weight.shape
        assert (x.shape[-2], bias.shape) == (n_in, (n_nets, n_out, 1))
        if x.dim() == 3:
            x = products(weight, x, bias)
        else:  # one product serves all nets
            x = torch.addmm(bias.flatten(0, 1), weight.flatten(0, 1), x).view(n_nets, n_out, -1)
    return inputs, x


class _Perceptron(torch.autograd.Function):
    """``perceptron`` for autograd, as one node: what lies between its layers is nobody else's and changed in place.

    The gradients of the parameters are added to their ``grad``: autograd itself would make them apart and then add
    them, one more pass over memory.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        inputs, out = _forward(x, parameters)
        ctx.save_for_backward(*inputs, *parameters[::2])
        ctx.slots = [parameter.grad for parameter in parameters]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        n_layers, (to_input, to_parameters, *_) = len(ctx.slots) // 2, ctx.needs_input_grad
        inputs, weights = ctx.saved_tensors[:n_layers], ctx.saved_tensors[n_layers:]
        for layer in reversed(range(n_layers)):
            x, weight = inputs[layer], weights[layer]
            if to_parameters:
                _add_gradients(grad, x, *ctx.slots[2 * layer : 2 * layer + 2])
            if layer > 0:
                grad = _to_input(weight, grad)
                torch.ops.aten.threshold_backward.grad_input(grad, x, 0, grad_input=grad)
        d_x = None
        if to_input:
            shared = inputs[0].dim() == 2
            d_x = torch.mm(weight.flatten(0, 1).t(), grad.flatten(0, 1)) if shared else _to_input(weight, grad)
        return d_x, *[None] * len(ctx.slots)


def _add_gradients(grad: Tensor, x: Tensor, d_weight: Tensor, d_bias: Tensor) -> None:
    d_bias.add_(grad.sum(2, keepdim=True))
    if x.dim() == 2:
        # this way round, because a product with few columns is slow
        d_weight.flatten(0, 1).add_(torch.mm(x, grad.flatten(0, 1).t()).t())
    else:
        add_products(d_weight, grad, x.transpose(1, 2))


def _to_input(weight: Tensor, grad: Tensor) -> Tensor:
    back = weight.transpose(1, 2)
    return back * grad if grad.shape[1] == 1 else products(back, grad)


_with_gradient: Callable[..., Tensor] = _Perceptron.apply
