"""Matrix products of many nets at once, the batch in the last dimension."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LARGE = 2**25
"""multiplications per net from which separate products beat the batched call on CPUs"""
WIDE = 2**21
"""multiplications from which oneDNN's product, where it is the faster one, makes up for its longer call"""


@cache
def cpu_family() -> int:
    """As AMD and Linux count: 25 is Zen 3 and 4, 26 is Zen 5; 0 for CPUs of others, or where it is not known"""
    try:
        about = Path("/proc/cpuinfo").read_text()
    except OSError:
        return 0
    found = re.search(r"^cpu family\s*:\s*(\d+)$", about, flags=re.MULTILINE)
    return int(found.group(1)) if found and "AuthenticAMD" in about else 0


@cache
def slow_blas() -> bool:
    """torch's products leave half of the CPU idle: MKL's, which on AMD's CPUs do without AVX-512. oneDNN's do not.

    Zen 4 has AVX-512 too, but computes it in two halves: there MKL is the faster one by a tenth.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkl.is_available():
        return False
    onednn = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return onednn and cpu_family() >= 26


def _by_onednn(left: Tensor, size: int) -> bool:
    return size >= WIDE and left.device.type == "cpu" and left.dtype == torch.float32 and slow_blas()


def _onednn(left: Tensor, right: Tensor) -> Tensor:
    """left @ right of two matrices, with rows or columns next to each other in memory"""
    columns = right.t()
    if not (columns.is_contiguous() or right.is_contiguous()):  # with gaps it would take its slowest way
        columns = columns.contiguous()
    out: Tensor = torch.ops.mkldnn._linear_pointwise.default(left, columns, None, "none", [], "")
    return out


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left @ right (+ bias) of two matrices."""
    if not _by_onednn(left, left.shape[0] * left.shape[1] * right.shape[1]):
        return torch.mm(left, right) if bias is None else torch.addmm(bias, left, right)
    out = _onednn(left, right)
    return out if bias is None else out.add_(bias)


def products(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left[i] @ right[i] (+ bias[i]) for every net i."""
    size = left.shape[1] * left.shape[2] * right.shape[2]
    onednn = _by_onednn(left, size)
    if len(left) == 1 and onednn:
        return product(left[0], right[0], None if bias is None else bias[0])[None]
    # the batched call takes several times as long for matrices times vectors, as when one pair is evaluated
    separately = onednn or size >= LARGE or (right.shape[2] == 1 and len(left) > 1)
    if left.device.type != "cpu" or not separately:
        return torch.bmm(left, right) if bias is None else torch.baddbmm(bias, left, right)
    out = left.new_empty(left.shape[0], left.shape[1], right.shape[2])
    for a, b, c, d in zip(left, right, out, [None] * len(left) if bias is None else bias, strict=True):
        if onednn and d is None:
            c.copy_(_onednn(a, b))
        elif onednn:
            torch.add(_onednn(a, b), d, out=c)
        elif d is None:
            torch.mm(a, b, out=c)
        else:
            torch.addmm(d, a, b, out=c)
    return out


def add_products(out: Tensor, left: Tensor, right: Tensor) -> None:
    """out[i] += left[i] @ right[i] for every net i."""
    size = left.shape[1] * left.shape[2] * right.shape[2]
    onednn = _by_onednn(left, size)
    if left.device.type != "cpu" or not (onednn or size >= LARGE):
        out.baddbmm_(left, right)
        return
    for a, b, c in zip(left.unbind(), right.unbind(), out.unbind(), strict=True):
        if onednn:
            c.add_(_onednn(a, b))
        else:
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
        return _with_gradient(x, parameters[0], parameters)
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
            x = product(weight.flatten(0, 1), x, bias.flatten(0, 1)).view(n_nets, n_out, -1)
    return inputs, x


class _Perceptron(torch.autograd.Function):
    """``perceptron`` for autograd, as one node: what lies between its layers is nobody else's and changed in place.

    The gradients of the parameters are added to their ``grad``: autograd itself would make them apart and then add
    them, one more pass over memory. So it need not know more of them than the first, ``anchor``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        inputs, out = _forward(x, parameters)
        ctx.save_for_backward(*inputs, *parameters[::2])
        ctx.slots = [parameter.grad for parameter in parameters]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        saved, n_layers, (to_input, to_parameters, _) = ctx.saved_tensors, len(ctx.slots) // 2, ctx.needs_input_grad
        for layer in reversed(range(n_layers)):
            x, weight = saved[layer], saved[n_layers + layer]
            if to_parameters:
                d_weight, d_bias = ctx.slots[2 * layer : 2 * layer + 2]
                d_bias.add_(grad.sum(2, keepdim=True))
                if x.dim() == 3:
                    add_products(d_weight, grad, x.transpose(1, 2))
                else:  # this way round, because a product with few columns is slow
                    d_weight.flatten(0, 1).add_(product(x, grad.flatten(0, 1).t()).t())
            if layer == 0 and not to_input:
                return None, None, None
            grad = _to_input(weight, grad, x.dim() == 2)
            if layer > 0:
                torch.ops.aten.threshold_backward.grad_input(grad, x, 0, grad_input=grad)
        return grad, None, None


def _to_input(weight: Tensor, grad: Tensor, shared: bool) -> Tensor:
    """W^T grad, summed over the nets where they share their input"""
    if shared:
        return product(weight.flatten(0, 1).t(), grad.flatten(0, 1))
    back = weight.transpose(1, 2)
    return back * grad if grad.shape[1] == 1 else products(back, grad)


_with_gradient: Callable[..., Tensor] = _Perceptron.apply
