"""N critics as one module with one parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

LARGE = 2**25
"""multiplications per net from which separate products beat the batched call on CPUs"""


def _products(left: Tensor, right: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """left[i] @ right[i] (+ bias[i]) for every net i."""
    size = left.shape[1] * left.shape[2] * right.shape[2]
    # the batched call takes several times as long for matrices times vectors, which are met when one pair is evaluated
    separately = size >= LARGE or (right.shape[2] == 1 and len(left) > 1)
    if left.device.type != "cpu" or not separately:
        return torch.bmm(left, right, out=out) if bias is None else torch.baddbmm(bias, left, right, out=out)
    if out is None:
        out = left.new_empty(left.shape[0], left.shape[1], right.shape[2])
    if bias is None:
        for a, b, c in zip(left.unbind(), right.unbind(), out.unbind(), strict=True):
            torch.mm(a, b, out=c)
    else:
        for a, b, c, d in zip(left.unbind(), right.unbind(), out.unbind(), bias.unbind(), strict=True):
            torch.addmm(d, a, b, out=c)
    return out


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """W_i x_i + b_i for every net i. The batch is the last dimension; an x of two dimensions is shared by all nets."""
    n_nets, n_out, n_in = weight.shape
    assert (x.shape[-2], bias.shape) == (n_in, (n_nets, n_out, 1))
    if x.dim() == 3:
        return _products(weight, x, bias)
    # one product serves all nets
    return torch.addmm(bias.flatten(0, 1), weight.flatten(0, 1), x).view(n_nets, n_out, -1)


Layers = list[tuple[Tensor, Tensor]]
"""weight (n_nets, n_out, n_in) and bias (n_nets, n_out, 1) of each layer"""


class Pullback(Protocol):
    def __call__(self, grad: Tensor, *, parameters: bool = True, inputs: slice | None = None) -> Tensor | None: ...


class _Trace(NamedTuple):
    """What the way back needs of the way forward."""

    layers: Layers
    inputs: list[Tensor]
    """of each layer"""
    graphs: list[tuple[Tensor, Tensor]]
    """from z to its activation, unless that is ReLU"""


class _Views:
    """The layers of a flat tensor; made once, and again when the tensor has moved."""

    def __init__(self, make: Callable[[Tensor], Layers]) -> None:
        self.make, self.address = make, -1
        self.layers: Layers = []

    def __call__(self, flat: Tensor) -> Layers:
        # the views keep what they see alive, so no other tensor can get its address
        if flat.data_ptr() != self.address:
            self.layers, self.address = self.make(flat.detach()), flat.data_ptr()
        return self.layers

    def __reduce__(self) -> tuple[Any, ...]:
        return _Views, (self.make,)  # a copy has a tensor of its own


class Ensemble(nn.Module):
    """``n_nets`` multilayer perceptrons on the same input, each initialised as torch initialises ``nn.Linear``.

    All weights are one parameter, ``theta``: optimizers and target updates pass over it once. Its gradient is written
    in place, layer by layer. The layers compute with the batch in the last dimension, where the first layer of all nets
    is one product with their shared input, and so is the gradient with respect to it.
    """

    def __init__(
        self,
        n_nets: int,
        n_inputs: int,
        hidden: Sequence[int],
        n_outputs: int,
        activation: type[nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        self.n_nets, self.sizes = n_nets, (n_inputs, *hidden, n_outputs)
        nets = [[nn.Linear(n_in, n_out) for n_in, n_out in pairwise(self.sizes)] for _ in range(n_nets)]
        stacked: list[Tensor] = []
        for layer in zip(*nets, strict=True):
            stacked.append(torch.stack([net.weight for net in layer]))
            stacked.append(torch.stack([net.bias for net in layer])[..., None])
        self.theta = nn.Parameter(torch.cat([each.detach().flatten() for each in stacked]))
        self._lengths, self._shapes = [each.numel() for each in stacked], [each.shape for each in stacked]
        self.activation = activation()
        self.is_relu = activation is nn.ReLU
        self._own_layers, self._grad_layers = _Views(self.layers), _Views(self.layers)

    def layers(self, theta: Tensor) -> Layers:
        """Weights (n_nets, n_out, n_in) and biases (n_nets, n_out, 1) of each layer, as views of ``theta``"""
        views = [part.view(shape) for part, shape in zip(theta.split(self._lengths), self._shapes, strict=True)]
        return list(zip(views[::2], views[1::2], strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n_inputs) -> (n_nets, batch, n_outputs), for autograd too"""
        assert x.shape == (len(x), self.sizes[0])
        if not torch.is_grad_enabled():
            return self.trace(x.t(), self._own_layers(self.theta))[0].transpose(1, 2)
        (weight, bias), *others = self.layers(self.theta)
        h = torch.baddbmm(bias, weight, x.t().expand(self.n_nets, -1, -1))
        for weight, bias in others:
            h = torch.baddbmm(bias, weight, self.activation(h))
        return h.transpose(1, 2)

    def vjp(self, x: Tensor, n_first: int | None = None) -> tuple[Tensor, Pullback]:
        """``forward`` (or of the ``n_first`` nets alone) without autograd, and the way back from its result's gradient.

        ``pullback(grad)`` leaves the parameters' gradients in their ``grad``, in place of what was there.
        ``pullback(grad, parameters=False, inputs=slice(k, None))`` returns those of x[:, k:].
        """
        assert x.shape == (len(x), self.sizes[0])
        assert not x.requires_grad
        layers = self._own_layers(self.theta)
        if n_first is not None:
            layers = [(weight[:n_first], bias[:n_first]) for weight, bias in layers]
        out, trace = self.trace(x.t(), layers)

        def pullback(grad: Tensor, *, parameters: bool = True, inputs: slice | None = None) -> Tensor | None:
            assert n_first is None or not parameters
            extra: list[nn.Parameter] = []
            slots = None
            if parameters:
                if self.theta.grad is None:
                    self.theta.grad = torch.empty_like(self.theta)
                slots = self._grad_layers(self.theta.grad)
                extra = list(self.activation.parameters())
            d_x, d_extra = self.backward(trace, grad.transpose(1, 2), slots, extra, inputs)
            for parameter, d_parameter in zip(extra, d_extra, strict=True):
                parameter.grad = d_parameter
            return None if d_x is None else d_x.t()

        return out.transpose(1, 2), pullback

    def trace(self, x: Tensor, layers: Layers) -> tuple[Tensor, _Trace]:
        """(n_inputs, batch) -> (n_nets, n_outputs, batch). With ReLU, what the layers hand on is made in place."""
        inputs, graphs = [x], []
        for weight, bias in layers[:-1]:
            z = _linear(inputs[-1], weight, bias)
            if self.is_relu:
                inputs.append(z.relu_())
            else:
                with torch.enable_grad():
                    graphs.append((z.requires_grad_(), self.activation(z)))
                inputs.append(graphs[-1][1].detach())
        return _linear(inputs[-1], *layers[-1]), _Trace(layers, inputs, graphs)

    def backward(
        self, trace: _Trace, grad: Tensor, slots: Layers | None, extra: Sequence[Tensor], columns: slice | None
    ) -> tuple[Tensor | None, list[Tensor]]:
        """Gradients with respect to ``columns`` of x and to ``extra``; those of the layers are written to ``slots``."""
        d_extra = [torch.zeros_like(p) for p in extra]
        d_x = None
        for layer in reversed(range(len(trace.layers))):
            x, (weight, _) = trace.inputs[layer], trace.layers[layer]
            if slots is not None:
                d_weight, d_bias = slots[layer]
                torch.sum(grad, 2, keepdim=True, out=d_bias)
                if x.dim() == 2 and d_weight.is_contiguous():
                    # this way round, because a product with few columns is slow
                    d_weight.flatten(0, 1).copy_(torch.mm(x, grad.flatten(0, 1).t()).t())
                else:
                    _products(grad, x.expand(len(weight), *x.shape[-2:]).transpose(1, 2), out=d_weight)
            if layer > 0:
                back = weight.transpose(1, 2)
                grad = back * grad if grad.shape[1] == 1 else _products(back, grad)
                if self.is_relu:
                    torch.ops.aten.threshold_backward.grad_input(grad, x, 0, grad_input=grad)
                else:
                    z, h = trace.graphs[layer - 1]
                    grad, *more = torch.autograd.grad(h, [z, *extra], grad)
                    d_extra = [a + b for a, b in zip(d_extra, more, strict=True)]
            elif columns is not None:
                d_x = torch.mm(weight.flatten(0, 1)[:, columns].t(), grad.flatten(0, 1))
        return d_x, d_extra

    def sequential(self, net: int) -> nn.Sequential:
        """A copy of one net in torch's own modules, for export"""
        modules: list[nn.Module] = []
        for weight, bias in self.layers(self.theta.detach()):
            linear = nn.Linear(weight.shape[2], weight.shape[1])
            linear.weight.data, linear.bias.data = weight[net].clone(), bias[net, :, 0].clone()
            modules += [linear, self.activation]
        return nn.Sequential(*modules[:-1])
