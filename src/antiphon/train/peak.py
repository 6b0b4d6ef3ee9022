"""What a device could do at most, so that what it does can be told as a share of it."""

from __future__ import annotations

import functools
import time

import torch

DENSE_BF16 = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10G": 70e12,
    "A40": 150e12,
    "A30": 165e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
    "MI300X": 1307e12,
}
"""Floating-point operations a second in bfloat16 with float32 sums, without sparsity, from the makers' data sheets. A
card is found by the first name that is part of its own, so longer names come first."""


def peak_flops(device: torch.device, precision: torch.dtype) -> float | None:
    """Most floating-point operations a second of one device.

    Args:
        device: a CUDA device is looked up; a CPU is measured once, with the threads torch has now.
        precision: dtype of the products.

    Returns:
        None for a device, or a precision of it, that nobody has looked up.
    """
    if device.type == "cpu":
        return _measured(precision, torch.get_num_threads())
    if device.type != "cuda" or precision not in (torch.bfloat16, torch.float16):
        return None
    return named(torch.cuda.get_device_name(device))


def named(card: str) -> float | None:
    """Peak of a card by the name its driver gives it, in bfloat16; None for one that is not known."""
    return next((peak for name, peak in DENSE_BF16.items() if name.lower() in card.lower()), None)


@functools.cache
def _measured(precision: torch.dtype, threads: int) -> float:
    """The best of some products of 1,024 x 1,024 matrices: what this processor reaches, not what its maker claims."""
    one, other = (torch.ones(1024, 1024, dtype=precision) for _ in range(2))
    best = float("inf")
    for _ in range(8):
        began = time.perf_counter()
        torch.mm(one, other)
        best = min(best, time.perf_counter() - began)
    return 2 * 1024**3 / best
