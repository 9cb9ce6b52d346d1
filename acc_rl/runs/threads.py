"""How many threads a run gets where nobody says: fixed by the size of its nets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch as th

from acc_rl.algos.calibrated import Calibrated
from acc_rl.runs.spec import RunSpec
from acc_rl.store import records
from acc_rl.store.checkpoint import Checkpoints

THREADED = 1_000_000
"""weights from which on a run gets more than one thread: two critics of 2x256 have 0.5 million and gain nothing from a
second one, two of 2x512 have 1.4 million and gain a quarter; benchmarks/threads.py"""


def n_weights(model: Calibrated) -> int:
    """Of all nets of the policy, targets among them"""
    return sum(each.numel() for each in model.policy.parameters())


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """That many inside, as many as before afterwards"""
    before = th.get_num_threads()
    th.set_num_threads(number)
    try:
        yield
    finally:
        th.set_num_threads(before)


def threads_of(spec: RunSpec, folder: Path, model: Calibrated) -> int:
    """What is asked for; else what the run had when it was saved; else one thread for small nets, all for large ones"""
    if spec.threads:
        return spec.threads
    manifests = Checkpoints(folder / records.CHECKPOINTS).manifests()
    saved = [manifest.get("threads") for _, manifest in sorted(manifests.items())]
    if saved and isinstance(saved[-1], int) and saved[-1] >= 1:
        return saved[-1]
    return th.get_num_threads() if n_weights(model) >= THREADED else 1
