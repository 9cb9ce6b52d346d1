"""The squashed Gaussian of the soft actor-critics."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
EPS = 1e-6
"""as in SAC's first implementation, and SB3's: keeps the logarithm finite where tanh saturates"""


def sample(outputs: Tensor, noise: Tensor, exact: bool = False) -> tuple[Tensor, Tensor]:
    """a = tanh(u), u = mean + exp(log_std) * noise, and log pi(a); (batch, n_actions) and (batch,).

    ``outputs`` are the means, then the logarithms of the standard deviations, (batch, 2 * n_actions); the latter are
    clipped to [-20, 2]. log(1 - a^2) is computed as SB3 does, log(1 - a^2 + 1e-6), which has no gradient where tanh
    saturates; ``exact``: as 2 * (log 2 - u - softplus(-2u)).
    """
    mean, raw = outputs.chunk(2, dim=1)
    assert mean.shape == noise.shape
    log_std = raw.clamp(LOG_STD_MIN, LOG_STD_MAX)
    u = torch.addcmul(mean, log_std.exp(), noise)
    actions = u.tanh()
    if exact:
        slope = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
    else:
        slope = (1 - actions.square() + EPS).log()
    log_prob = (-0.5 * noise.square() - log_std - slope).sum(1) - 0.5 * math.log(2 * math.pi) * mean.shape[1]
    return actions, log_prob
