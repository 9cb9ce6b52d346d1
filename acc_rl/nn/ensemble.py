"""N critics as one module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def _products(left: Tensor, right: Tensor) -> Tensor:
    """left[i] @ right[i] for every net i."""
    if left.device.type != "cpu":
        return torch.bmm(left, right)
    # on a CPU separate products into one output beat the batched call
    out = left.new_empty(left.shape[0], left.shape[1], right.shape[2])
    for a, b, c in zip(left.unbind(), right.unbind(), out.unbind(), strict=True):
        torch.mm(a, b, out=c)
    return out


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """W_i x_i + b_i for every net i. The batch is the last dimension; an x of two dimensions is shared by all nets."""
    n_nets, n_out, n_in = weight.shape
    assert (x.shape[-2], bias.shape) == (n_in, (n_nets, n_out, 1))
    if x.dim() == 3:
        return _products(weight, x).add_(bias)
    # one product serves all nets
    return torch.mm(weight.flatten(0, 1), x).view(n_nets, n_out, -1).add_(bias)


class _Layers(torch.autograd.Function):
    """Linear layers with a ReLU between any two of them, as one node of the graph.

    ``parameters`` are W_1, b_1, W_2, b_2, ...; what the layers hand on to each other never leaves this function, so
    it is overwritten in place, forward and backward.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        inputs, weights = [x], parameters[::2]
        *hidden, last = zip(weights, parameters[1::2], strict=True)
        for weight, bias in hidden:
            inputs.append(_linear(inputs[-1], weight, bias).relu_())
        ctx.save_for_backward(*inputs, *weights)
        return _linear(inputs[-1], *last)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        needs_x, *needs_parameters = ctx.needs_input_grad
        n_layers = len(needs_parameters) // 2
        inputs, weights = ctx.saved_tensors[:n_layers], ctx.saved_tensors[n_layers:]
        grads: list[Tensor | None] = []
        for layer in reversed(range(n_layers)):
            x, weight = inputs[layer], weights[layer]
            needs_weight, needs_bias = needs_parameters[2 * layer : 2 * layer + 2]
            shared = x.dim() == 2
            grads.append(grad.sum(2, keepdim=True) if needs_bias else None)
            if shared:
                flat = grad.flatten(0, 1)
                grads.append(torch.mm(flat, x.t()).view_as(weight) if needs_weight else None)
                grad_x = torch.mm(weight.flatten(0, 1).t(), flat) if needs_x else None
            else:
                grads.append(_products(grad, x.transpose(1, 2)) if needs_weight else None)
                grad_x = _products(weight.transpose(1, 2), grad) if layer > 0 or needs_x else None
            if layer > 0:
                assert grad_x is not None
                grad = torch.ops.aten.threshold_backward.grad_input(grad_x, x, 0, grad_input=grad_x)
        return grad_x, *reversed(grads)


_run: Callable[..., Tensor] = _Layers.apply


class Ensemble(nn.Module):
    """``n_nets`` multilayer perceptrons on the same input, each initialised as torch initialises ``nn.Linear``."""

    def __init__(
        self,
        n_nets: int,
        n_inputs: int,
        hidden: Sequence[int],
        n_outputs: int,
        activation: type[nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        sizes = [n_inputs, *hidden, n_outputs]
        nets = [[nn.Linear(i, o) for i, o in pairwise(sizes)] for _ in range(n_nets)]
        layers = list(zip(*nets, strict=True))
        self.weights = nn.ParameterList(torch.stack([net.weight.detach() for net in layer]) for layer in layers)
        self.biases = nn.ParameterList(torch.stack([net.bias.detach() for net in layer])[..., None] for layer in layers)
        self.activation = activation()

    def forward(self, x: Tensor, n_first: int | None = None) -> Tensor:
        """(batch, n_inputs) -> (n_nets, batch, n_outputs), or of the ``n_first`` nets alone"""
        assert x.shape == (len(x), self.weights[0].shape[2])
        layers = list(zip(self.weights, self.biases, strict=True))
        if n_first is not None:
            layers = [(weight[:n_first], bias[:n_first]) for weight, bias in layers]
        h = x.t()
        if type(self.activation) is nn.ReLU:
            h = _run(h, *chain.from_iterable(layers))
        else:
            *hidden, last = layers
            for layer in hidden:
                h = self.activation(_run(h, *layer))
            h = _run(h, *last)
        return h.transpose(1, 2)
