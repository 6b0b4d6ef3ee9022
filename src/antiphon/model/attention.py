"""Who may see whom, and the kernel that computes it.

The one place that turns an attention mode and document numbers into what a kernel wants.
"""

from __future__ import annotations

import enum

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from antiphon.model.packed import Pieces, borders, flash_kernel, pieces

DOCUMENTS_FROM = 512
"""Row length in tokens from which documents get rows of their own on CPU."""


class Attention(enum.Enum):
    """Who may see whom within a document.

    CAUSAL sees the past of its document, BIDIRECTIONAL all of it, PREFIX the past and the tokens that are opened.
    """

    CAUSAL = "causal"
    BIDIRECTIONAL = "bidirectional"
    PREFIX = "prefix"


class Kernel(enum.Enum):
    """How attention is computed; the values are the names under which transformers knows the implementations.

    SDPA and MATMUL take a dense mask where rows hold several documents. DOCUMENTS (CPU) gives each document a row of
    its own, FLASH (CUDA) is flash attention for documents of any length; both do no work across documents. FLEX (CUDA)
    takes any rule, by blocks. PREFIX attention is computed densely under DOCUMENTS and by FLEX under FLASH.
    """

    SDPA = "sdpa"
    MATMUL = "eager"
    DOCUMENTS = "documents"
    FLASH = "variable_length"
    FLEX = "flex_attention"


def choose_kernel(device: torch.device, precision: torch.dtype, length: int) -> Kernel:
    """The fastest kernel for this device, precision and row length.

    On CPU with bfloat16 the backward of SDPA is slow on short rows, and the plain matmul form wins up to about 256
    positions; on long rows it pays to give each document a row of its own (benchmarks/attention.py prints the ratios).
    Flash attention computes in 16 bits only.
    """
    if device.type == "cuda":
        return Kernel.FLASH if precision in (torch.bfloat16, torch.float16) and flash_kernel() else Kernel.SDPA
    if length >= DOCUMENTS_FROM:
        return Kernel.DOCUMENTS
    if precision is torch.bfloat16 and length <= 256:
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
) -> Tensor | Pieces | BlockMask | None:
    """Who may see whom in the form the kernel takes; made once for a micro-batch, read by every layer.

    Rows that are one document from end to end need no mask tensor: the mode alone says it all, and the kernel can
    skip the work.

    Args:
        documents, attention, opened: as in `visible`.
        kernel: SDPA takes booleans; the matmul form adds the mask to the scores, and a boolean one would silently add
            0 or 1, so it gets 0 and the most negative finite number; the others take borders, pieces or blocks.
        precision: dtype of the additive mask.

    Returns:
        None, or (B, 1, T, T), or (C,) borders of documents, or their pieces, or blocks.
    """
    prefix = attention is Attention.PREFIX
    if kernel is Kernel.FLEX or (kernel is Kernel.FLASH and prefix):
        return _blocks(documents, attention, opened)
    if kernel is Kernel.FLASH:
        return borders(documents)
    if kernel is not Kernel.MATMUL and not prefix:
        if bool((documents == documents[:, :1]).all()):
            return None
        if kernel is Kernel.DOCUMENTS:
            return pieces(documents, attention is Attention.CAUSAL)
    allowed = visible(documents, attention, opened)
    if kernel is not Kernel.MATMUL:
        return allowed
    floor = torch.finfo(precision).min
    return torch.zeros(allowed.shape, dtype=precision, device=allowed.device).masked_fill_(~allowed, floor)


def _blocks(documents: Tensor, attention: Attention, opened: Tensor | None) -> BlockMask:
    """The same rule as `visible`, as blocks for FlexAttention."""
    rows, length = documents.shape

    def rule(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = documents[row, query] == documents[row, key]
        if attention is Attention.BIDIRECTIONAL:
            return same
        if attention is Attention.CAUSAL:
            return same & (key <= query)
        assert opened is not None, "PREFIX attention needs to know which tokens are opened"
        return same & ((key <= query) | opened[row, key])

    return create_block_mask(rule, rows, None, length, length, device=str(documents.device))
