"""Layers of many nets at once: on (n_nets, features, batch), or on (features, batch) that all nets share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import torch
from torch import Tensor, nn

from acc_rl.core.errors import SettingError
from acc_rl.nn.norms import normalize
from acc_rl.nn.products import perceptron

EPS, MOMENTUM = 1e-3, 0.01
"""of BatchNorm: added to the variance, and share of a batch in the running statistics"""


class Layer(ABC):
    """A layer without parameters of its own: these are views of the flat parameter of its ``Ensemble``."""

    module: nn.Module | None = None
    """of torch's, if it has one"""

    def build(self, n_nets: int) -> None:  # noqa: B027
        """Called once, before all else"""

    def initial(self) -> list[Tensor]:
        """Parameters of one net; with a last dimension of 1 where they are added to (features, batch)"""
        return []

    @abstractmethod
    def __call__(self, x: Tensor, parameters: Iterator[Tensor]) -> Tensor:
        """Takes its parameters from the iterator, (n_nets, ...) each"""


class Linear(Layer):
    """W x + b, or several of them with ReLU between; initialised as torch initialises ``nn.Linear``"""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def initial(self) -> list[Tensor]:
        linears = [nn.Linear(n_in, n_out) for n_in, n_out in pairwise(self.sizes)]
        return [each for linear in linears for each in (linear.weight.detach(), linear.bias.detach()[:, None])]

    def __call__(self, x: Tensor, parameters: Iterator[Tensor]) -> Tensor:
        return perceptron(x, list(islice(parameters, 2 * len(self.sizes) - 2)))


class Activation(Layer):
    """Any of torch's activations, one for all nets; ReLU works in place"""

    module: nn.Module

    def __init__(self, module: type[nn.Module]) -> None:
        self.module = module()

    def __call__(self, x: Tensor, parameters: Iterator[Tensor]) -> Tensor:
        if type(self.module) is nn.ReLU:
            return torch.relu_(x)
        out: Tensor = self.module(x)
        return out


@dataclass(frozen=True)
class LayerNorm(Layer):
    """w * (x - mean) / sqrt(var + 1e-5) + b over the features"""

    width: int

    def initial(self) -> list[Tensor]:
        return [torch.ones(self.width), torch.zeros(self.width)]

    def __call__(self, x: Tensor, parameters: Iterator[Tensor]) -> Tensor:
        weight, bias = next(parameters), next(parameters)
        return normalize(x, weight[..., None], bias[..., None], dim=-2, eps=1e-5)[0]


class Statistics(nn.Module):
    """Running mean and variance of many features"""

    mean: Tensor
    var: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))


def statistics(net: nn.Module) -> list[Tensor]:
    """All of BatchNorm's running means and variances in a net"""
    return [each for module in net.modules() if isinstance(module, Statistics) for each in module.buffers()]


class BatchNorm(Layer):
    """w * (x - mean) / sqrt(var + 1e-3) + b, each feature of each net over the batch.

    ``shared``: (x - mean) / sqrt(var + 1e-3) alone, of an x that all nets share. Mean and variance are the batch's
    while the nets learn (``learning``, which the ensemble sets pass by pass), otherwise running averages of them.
    """

    module: Statistics
    learning = False

    def __init__(self, width: int, shared: bool = False) -> None:
        self.width, self.shared = width, shared

    def build(self, n_nets: int) -> None:
        self.module = Statistics(self.width if self.shared else n_nets * self.width)

    def initial(self) -> list[Tensor]:
        return [] if self.shared else [torch.ones(self.width), torch.zeros(self.width)]

    def __call__(self, x: Tensor, parameters: Iterator[Tensor]) -> Tensor:
        if self.shared:
            weight, bias = x.new_ones(()), x.new_zeros(())
        else:
            weight, bias = next(parameters)[..., None], next(parameters)[..., None]
        shape = (*x.shape[:-1], 1)
        n = math.prod(shape)  # fewer than all where the first nets alone are asked
        running = self.module.mean[:n].view(shape), self.module.var[:n].view(shape)
        if not self.learning:
            scale = weight * torch.rsqrt(running[1] + EPS)
            return torch.addcmul(bias - running[0] * scale, x, scale)
        out, mean, var = normalize(x, weight, bias, dim=-1, eps=EPS)
        batch = x.shape[-1]
        running[0].lerp_(mean, MOMENTUM)
        running[1].lerp_(var * (batch / (batch - 1)), MOMENTUM)  # torch's modules keep the unbiased one, too
        return out


class Residual(Layer):
    """x + layers(x)"""

    def __init__(self, *layers: Layer) -> None:
        self.layers = layers
        modules = [layer.module for layer in layers if layer.module is not None]
        self.module = nn.ModuleList(modules) if modules else None

    def initial(self) -> list[Tensor]:
        return [each for layer in self.layers for each in layer.initial()]

    def __call__(self, x: Tensor, parameters: Iterator[Tensor]) -> Tensor:
        out = x
        for layer in self.layers:
            out = layer(out, parameters)
        return x + out


def mlp(n_inputs: int, hidden: Sequence[int], n_outputs: int, activation: type[nn.Module]) -> list[Layer]:
    sizes = (n_inputs, *hidden, n_outputs)
    if activation is nn.ReLU:
        return [Linear(*sizes)]  # one node of autograd's, which works in place
    active = Activation(activation)
    layers: list[Layer] = [each for a, b in pairwise(sizes) for each in (Linear(a, b), active)]
    return layers[:-1]


def layernorm(n_inputs: int, hidden: Sequence[int], n_outputs: int, activation: type[nn.Module]) -> list[Layer]:
    """A LayerNorm before each activation"""
    sizes, active = (n_inputs, *hidden), Activation(activation)
    layers = [each for a, b in pairwise(sizes) for each in (Linear(a, b), LayerNorm(b), active)]
    return [*layers, Linear(sizes[-1], n_outputs)]


def batchnorm(n_inputs: int, hidden: Sequence[int], n_outputs: int, activation: type[nn.Module]) -> list[Layer]:
    """A BatchNorm of the inputs and before each activation"""
    sizes, active = (n_inputs, *hidden), Activation(activation)
    layers = [each for a, b in pairwise(sizes) for each in (Linear(a, b), BatchNorm(b), active)]
    return [BatchNorm(n_inputs, shared=True), *layers, Linear(sizes[-1], n_outputs)]


def simba(n_inputs: int, hidden: Sequence[int], n_outputs: int, activation: type[nn.Module]) -> list[Layer]:
    """SimBa's trunk: a residual block x + W2 act(W1 LN(x)) of four times the width for each entry of ``hidden``"""
    if not hidden or len(set(hidden)) > 1:
        raise SettingError(f"net_arch is {list(hidden)}, but nets='simba' needs blocks of one width, [256, 256] say")
    h = hidden[0]
    blocks = [Residual(LayerNorm(h), *mlp(h, [4 * h], h, activation)) for _ in hidden]
    return [Linear(n_inputs, h), *blocks, LayerNorm(h), Linear(h, n_outputs)]


NETS = {"mlp": mlp, "layernorm": layernorm, "batchnorm": batchnorm, "simba": simba}
