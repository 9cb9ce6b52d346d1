"""The squashed Gaussian of the soft actor-critics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
EPS = 1e-6
"""as in SAC's first implementation, and SB3's: keeps the logarithm finite where tanh saturates"""


def sample(outputs: Tensor, noise: Tensor, exact: bool = False) -> tuple[Tensor, Tensor]:
    """a = tanh(u), u = mean + exp(log_std) * noise, and log pi(a); (batch, n_actions) and (batch,).

    ``outputs`` are the means, then the logarithms of the standard deviations, (batch, 2 * n_actions); the latter are
    clipped to [-20, 2]. log(1 - a^2) is computed as SB3 does, log(1 - a^2 + 1e-6), which has no gradient where tanh
    saturates; ``exact``: as 2 * (log 2 - u - softplus(-2u)).
    """
    assert outputs.shape == (len(noise), 2 * noise.shape[1])
    return _sample(outputs, noise, exact)


class _Sample(torch.autograd.Function):
    """By hand: autograd takes some forty small calls for it"""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, noise: Tensor, exact: bool) -> tuple[Tensor, Tensor]:
        mean, raw = outputs.chunk(2, dim=1)
        log_std = raw.clamp(LOG_STD_MIN, LOG_STD_MAX)
        spread = log_std.exp() * noise
        u = mean + spread
        actions = u.tanh()
        slope = 1 - actions.square()  # da/du
        if exact:  # noqa: SIM108
            log_slope = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
        else:
            log_slope = (slope + EPS).log()
        log_prob = (-0.5 * noise.square() - log_std - log_slope).sum(1) - 0.5 * math.log(2 * math.pi) * mean.shape[1]
        ctx.exact = exact
        ctx.save_for_backward(raw, spread, actions, slope)
        return actions, log_prob

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_actions: Tensor, d_log_prob: Tensor) -> tuple[Tensor, None, None]:
        raw, spread, actions, slope = ctx.saved_tensors
        d_log_prob = d_log_prob[:, None]
        pull = 2 * actions  # -d log_slope / du
        if not ctx.exact:
            pull *= slope / (slope + EPS)
        d_mean = d_actions * slope + d_log_prob * pull
        # zero where the clip acts
        d_log_std = torch.ops.aten.hardtanh_backward(d_mean * spread - d_log_prob, raw, LOG_STD_MIN, LOG_STD_MAX)
        return torch.cat((d_mean, d_log_std), dim=1), None, None


_sample: Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor]] = _Sample.apply
