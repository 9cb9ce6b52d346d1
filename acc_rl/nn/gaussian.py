"""The squashed Gaussian of the soft actor-critics, with its gradient by hand."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
EPS = 1e-6
"""as in SAC's first implementation, and SB3's: keeps the logarithm finite where tanh saturates"""


def sample(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """a = tanh(mean + exp(log_std) * noise), log pi(a), (batch, n_actions) and (batch,), and what ``gradient`` needs.

    ``outputs`` are the means, then the logarithms of the standard deviations, (batch, 2 * n_actions); the latter are
    clipped to [-20, 2].
    """
    mean, raw = outputs.chunk(2, dim=1)
    assert mean.shape == noise.shape
    log_std = raw.clamp(LOG_STD_MIN, LOG_STD_MAX)
    spread = log_std.exp() * noise
    actions = (mean + spread).tanh_()
    slope = 1 - actions.square()
    inside = slope + EPS
    log_prob = noise.square().mul_(-0.5).sub_(log_std).sub_(inside.log()).sum(1)
    log_prob.sub_(0.5 * math.log(2 * math.pi) * mean.shape[1])
    return actions, log_prob, (raw, spread, actions, slope, inside)


def gradient(saved: tuple[Tensor, ...], d_actions: Tensor, d_log_prob: Tensor) -> Tensor:
    """With respect to the outputs, (batch, 2 * n_actions)"""
    raw, spread, actions, slope, inside = saved
    d_log_prob = d_log_prob[:, None]
    d_mean = (d_actions + 2 * d_log_prob * actions / inside).mul_(slope)
    # zero where the clip acts
    d_log_std = torch.ops.aten.hardtanh_backward((d_mean * spread).sub_(d_log_prob), raw, LOG_STD_MIN, LOG_STD_MAX)
    return torch.cat((d_mean, d_log_std), dim=1)
