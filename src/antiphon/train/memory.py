"""Memory that is given back to the system has to be fetched, and cleared, again: keep it."""

from __future__ import annotations

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Tell glibc to keep what is freed for the next tensor of this process, instead of giving it back to the system.

    A training step frees and fetches the same large tensors again and again. By default each of them is mapped anew,
    and the kernel clears every page of it: up to a quarter of the time of a step on CPU (docs/performance.md). The
    process keeps the memory of its largest moment until it ends. Tensors on other devices are not touched.

    Returns:
        Whether it was done; other C libraries have no such switch.

    Source: mallopt(3), M_MMAP_MAX and M_TRIM_THRESHOLD.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_MMAP_MAX, 0)) and bool(library.mallopt(_TRIM_THRESHOLD, 2**31 - 1))
