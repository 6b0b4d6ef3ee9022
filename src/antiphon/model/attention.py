"""Who may see whom, and the kernel that computes it.

The one place that turns an attention mode and document numbers into what a kernel wants.
"""

from __future__ import annotations

import enum

import torch
from torch import Tensor


class Attention(enum.Enum):
    """The two attention modes. CAUSAL sees the past of its document, BIDIRECTIONAL all of its document."""

    CAUSAL = "causal"
    BIDIRECTIONAL = "bidirectional"


class Kernel(enum.Enum):
    """How attention is computed; the values are transformers' names for the implementations."""

    SDPA = "sdpa"
    MATMUL = "eager"


def choose_kernel(device: torch.device, precision: torch.dtype, length: int) -> Kernel:
    """The faster kernel for this device, precision and row length.

    On CPU with bfloat16 the backward of SDPA is slow on short rows, and the plain matmul form wins up to about 256
    positions; everywhere else SDPA is as fast or faster (benchmarks/attention.py prints the ratios).
    """
    if device.type == "cpu" and precision is torch.bfloat16 and length <= 256:
        return Kernel.MATMUL
    return Kernel.SDPA


def visible(documents: Tensor, attention: Attention) -> Tensor:
    """Which key each query may see.

    Args:
        documents: (B, T) integers; equal numbers in a row are one document. Padding has the number -1 and sees only
            padding, so that no query is left without a key (a fully masked softmax is nan).
        attention: the mode.

    Returns:
        (B, 1, T, T) bool, True where query t (third axis) may see key s (fourth axis).
    """
    same = documents[:, None, :, None] == documents[:, None, None, :]
    if attention is Attention.CAUSAL:
        length = documents.shape[1]
        same = same & torch.ones(length, length, dtype=torch.bool, device=documents.device).tril()
    return same


def kernel_mask(documents: Tensor, attention: Attention, kernel: Kernel, precision: torch.dtype) -> Tensor | None:
    """The mask in the form the kernel takes.

    Rows that are one document from end to end need no mask tensor: the mode alone says it all, and the kernel can
    skip the work.

    Args:
        documents: (B, T), as in `visible`.
        attention: the mode.
        kernel: SDPA takes booleans; the matmul form adds the mask to the scores, and a boolean one would silently add
            0 or 1, so it gets 0 and the most negative finite number.
        precision: dtype of the additive mask.

    Returns:
        None, or (B, 1, T, T).
    """
    if kernel is Kernel.SDPA and bool((documents == documents[:, :1]).all()):
        return None
    allowed = visible(documents, attention)
    if kernel is Kernel.SDPA:
        return allowed
    floor = torch.finfo(precision).min
    return torch.zeros(allowed.shape, dtype=precision, device=allowed.device).masked_fill_(~allowed, floor)
