"""Memory that torch frees and wants again a moment later."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

# glibc's malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
MIB = 1 << 20


@cache
def keep_freed_memory() -> None:
    """Let glibc keep up to 1 GiB of freed memory for the next training step.

    By default it hands the gradients' memory back to the system after each backward pass and faults it in again, page
    by page, in the next. Other C libraries are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 32 * MIB)  # the largest value that glibc takes
        mallopt(M_TRIM_THRESHOLD, 1024 * MIB)
        mallopt(M_TOP_PAD, 64 * MIB)
