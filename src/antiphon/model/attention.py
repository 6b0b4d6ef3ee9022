"""Who may see whom, and the kernel that computes it.

The one place that turns an attention mode and document numbers into what a kernel wants.
"""

from __future__ import annotations

import enum

import torch
from torch import Tensor


class Attention(enum.Enum):
    """Who may see whom within a document.

    CAUSAL sees the past of its document, BIDIRECTIONAL all of it, PREFIX the past and the tokens that are opened.
    """

    CAUSAL = "causal"
    BIDIRECTIONAL = "bidirectional"
    PREFIX = "prefix"


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


def visible(documents: Tensor, attention: Attention, opened: Tensor | None = None) -> Tensor:
    """Which key each query may see.

    Args:
        documents: (B, T) integers; equal numbers in a row are one document. Padding has the number -1 and sees only
            padding, so that no query is left without a key (a fully masked softmax is nan).
        attention: the mode.
        opened: (B, T) bool, only for PREFIX: tokens that all of their document may see.

    Returns:
        (B, 1, T, T) bool, True where query t (third axis) may see key s (fourth axis).
    """
    same = documents[:, None, :, None] == documents[:, None, None, :]
    if attention is Attention.BIDIRECTIONAL:
        return same
    length = documents.shape[1]
    past = torch.ones(length, length, dtype=torch.bool, device=documents.device).tril()
    if attention is Attention.CAUSAL:
        return same & past
    assert opened is not None, "PREFIX attention needs to know which tokens are opened"
    return same & (past | opened[:, None, None, :])


def kernel_mask(
    documents: Tensor, attention: Attention, kernel: Kernel, precision: torch.dtype, opened: Tensor | None = None
) -> Tensor | None:
    """The mask in the form the kernel takes.

    Rows that are one document from end to end need no mask tensor: the mode alone says it all, and the kernel can
    skip the work.

    Args:
        documents, attention, opened: as in `visible`.
        kernel: SDPA takes booleans; the matmul form adds the mask to the scores, and a boolean one would silently add
            0 or 1, so it gets 0 and the most negative finite number.
        precision: dtype of the additive mask.

    Returns:
        None, or (B, 1, T, T).
    """
    if kernel is Kernel.SDPA and attention is not Attention.PREFIX and bool((documents == documents[:, :1]).all()):
        return None
    allowed = visible(documents, attention, opened)
    if kernel is Kernel.SDPA:
        return allowed
    floor = torch.finfo(precision).min
    return torch.zeros(allowed.shape, dtype=precision, device=allowed.device).masked_fill_(~allowed, floor)
