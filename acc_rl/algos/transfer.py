"""Minibatches on their way to a GPU."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import torch as th

ALIGN = 64
"""bytes: every tensor begins where the device can read it in its widest words"""

Samples = TypeVar("Samples", bound=NamedTuple)


def to_device(samples: Samples, device: th.device) -> Samples:
    """Tensors and dictionaries of tensors on the host, copied as the bytes of one block and split on the device.

    A copy costs about as much for ten bytes as for ten thousand. The block is pinned for CUDA, so that the host need
    not wait; torch keeps such blocks and uses none again before its copy has ended.
    """
    if device.type == "cpu":
        return samples
    hosts: dict[tuple[str, str], th.Tensor] = {}
    for field, value in samples._asdict().items():
        parts = value if isinstance(value, dict) else {"": value}
        hosts |= {(field, key): part for key, part in parts.items() if part is not None}
    starts = np.cumsum([0, *(-(-host.nbytes // ALIGN) * ALIGN for host in hosts.values())]).tolist()
    block = th.empty(starts[-1], dtype=th.uint8, pin_memory=device.type == "cuda")
    flat = block.numpy()
    for host, start in zip(hosts.values(), starts, strict=False):
        flat[start : start + host.nbytes] = host.numpy().reshape(-1).view(np.uint8)
    there = block.to(device, non_blocking=True)
    moved = {
        name: there[start : start + host.nbytes].view(host.dtype).view(host.shape)
        for (name, host), start in zip(hosts.items(), starts, strict=False)
    }
    fields = {
        field: {key: moved[field, key] for key in value} if isinstance(value, dict) else moved.get((field, ""))
        for field, value in samples._asdict().items()
    }
    return samples._replace(**fields)
