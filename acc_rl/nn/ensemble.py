"""Many nets as one module with one flat parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from acc_rl.core.checks import hint
from acc_rl.core.errors import SettingError
from acc_rl.nn.layers import NETS, BatchNorm, Layer

MakeNet = Callable[[int, Sequence[int], int], nn.Module]
"""(inputs, hidden widths, outputs) -> a net of the user's own on (batch, inputs)"""


class Ensemble(nn.Module):
    """``n_nets`` nets of the same layers on the same input.

    All weights are one parameter, ``theta``: optimizers and target updates pass over it once. Each layer's weights are
    views of it, whose gradients are views of its gradient, into which autograd accumulates. The layers compute with the
    batch in the last dimension, where the first layer of all nets is one product with their shared input.
    """

    def __init__(self, n_nets: int, n_inputs: int, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.n_nets, self.n_inputs, self.layers = n_nets, n_inputs, list(layers)
        for layer in layers:
            layer.build(n_nets)
        self._over_batch = [layer for layer in layers if isinstance(layer, BatchNorm)]
        nets = [[each for layer in layers for each in layer.initial()] for _ in range(n_nets)]
        stacked = [torch.stack(each) for each in zip(*nets, strict=True)]
        self._lengths, self._shapes = [each.numel() for each in stacked], [each.shape for each in stacked]
        self.theta = nn.Parameter(torch.cat([each.flatten() for each in stacked]))
        self.modules_of_layers = nn.ModuleList({layer.module: None for layer in layers if layer.module is not None})
        self._views = _Views(self)

    @property
    def over_batch(self) -> bool:
        """An output depends on the other rows of the batch while the nets learn"""
        return len(self._over_batch) > 0

    def parts(self, flat: Tensor) -> list[Tensor]:
        """The parameters of the layers, (n_nets, ...) each, as views of a tensor like ``theta``"""
        return [part.view(shape) for part, shape in zip(flat.split(self._lengths), self._shapes, strict=True)]

    def forward(self, x: Tensor, frozen: bool = False, n_first: int | None = None, whole_batch: bool = False) -> Tensor:
        """(batch, n_inputs) -> (n_nets, batch, n_outputs); ``frozen``: as constants; ``n_first``: these nets alone.

        BatchNorm takes the batch's statistics where the nets learn, and with ``whole_batch``.
        """
        assert x.shape == (len(x), self.n_inputs)
        learned = torch.is_grad_enabled() and self.theta.requires_grad and not frozen
        parts = self._views.learned() if learned else self._views.frozen()
        if n_first is not None and not learned:
            parts = [part[:n_first] for part in parts]
        for norm in self._over_batch:
            norm.learning = whole_batch or (learned and self.training)
        parameters, h = iter(parts), x.t()
        for layer in self.layers:
            h = layer(h, parameters)
        if learned:
            h.register_hook(self._views.attach)  # the first that a backward pass comes to
        out = h.transpose(1, 2)
        return out if n_first is None else out[:n_first]


class _Views:
    """The views of an ensemble's parameter and of its gradient; made again when the parameter has moved."""

    def __init__(self, owner: Ensemble) -> None:
        self.owner, self.address = owner, -1

    def _make(self) -> None:
        theta = self.owner.theta
        self.address = theta.data_ptr()  # the views keep it alive, so no other tensor can get its address
        with torch.inference_mode(False):  # they are to be learned from later, whoever asks first
            self.constants = self.owner.parts(theta.detach())
            self.leaves = [part.detach().requires_grad_() for part in self.constants]
            self.flat = torch.zeros_like(theta)
        for leaf, grad in zip(self.leaves, self.owner.parts(self.flat), strict=True):
            leaf.grad = grad

    def attach(self, grad: Tensor) -> None:
        """What an optimizer's ``zero_grad`` has taken away from theta comes back, as zeros"""
        theta = self.owner.theta
        if theta.grad is not self.flat:
            self.flat.zero_()
            theta.grad = self.flat

    def frozen(self) -> list[Tensor]:
        if self.owner.theta.data_ptr() != self.address:
            self._make()
        return self.constants

    def learned(self) -> list[Tensor]:
        self.frozen()
        return self.leaves

    def __reduce__(self) -> tuple[Any, ...]:
        return _Views, (self.owner,)  # a copy has a tensor of its own


class Modules(nn.Module):
    """The same for nets of the user's own, one after the other."""

    def __init__(self, nets: Sequence[nn.Module]) -> None:
        super().__init__()
        self.nets, self.n_nets = nn.ModuleList(nets), len(nets)
        self.over_batch = False  # SB3's way with nets of one's own, whatever they contain

    def forward(self, x: Tensor, frozen: bool = False, n_first: int | None = None) -> Tensor:
        before = [parameter.requires_grad for parameter in self.parameters()]
        if frozen:
            self.requires_grad_(False)
        try:
            return torch.stack([net(x) for net in list(self.nets)[:n_first]])
        finally:
            for parameter, learned in zip(self.parameters(), before, strict=True):
                parameter.requires_grad_(learned)


def make_ensemble(
    kind: str | MakeNet,
    n_nets: int,
    n_inputs: int,
    hidden: Sequence[int],
    n_outputs: int,
    activation: type[nn.Module] = nn.ReLU,
) -> Ensemble | Modules:
    """``n_nets`` nets of a kind: mlp, layernorm, batchnorm, simba, or what a function of the user's own returns"""
    if callable(kind):
        return Modules([kind(n_inputs, hidden, n_outputs) for _ in range(n_nets)])
    if kind not in NETS:
        raise SettingError(f"nets is {kind!r}, but must be a function or one of them; {hint(kind, NETS)}")
    return Ensemble(n_nets, n_inputs, NETS[kind](n_inputs, hidden, n_outputs, activation))
