"""Attention of packed rows without work across documents: flash attention on CUDA, documents as rows on CPU."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

Flash = Callable[[Tensor, Tensor, Tensor, Tensor, int, bool, float], Tensor]
"""(query, key, value, borders, longest, causal, scale) -> output; tensors are (N, H, E)."""


def _firsts(documents: Tensor) -> Tensor:
    """(F,) int64: the places, row after row, where a document or a stretch of padding begins."""
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return begins.flatten().nonzero().squeeze(1)


def borders(documents: Tensor) -> Tensor:
    """Where documents begin and end, in a tensor whose size does not follow their number.

    Compiled code is made for a size. So there is room for one document in 64 places, or for twice that and so on, and
    what is left over holds documents without tokens.

    Args:
        documents: (B, T), as in `attention.visible`; padding is a document too.

    Returns:
        (C,) int32, non-decreasing from 0 to B x T; document i lies between entries i and i + 1.
    """
    firsts = _firsts(documents)
    room = documents.shape[0] * -(-documents.shape[1] // 64)
    while room < firsts.shape[0]:
        room *= 2
    found = torch.full((room + 1,), documents.numel(), dtype=torch.int32, device=documents.device)
    found[: firsts.shape[0]] = firsts
    return found


def flash_kernel() -> Flash | None:
    """Flash attention for documents of any length: torch's own, else flash-attn's when installed, else None."""
    return _FLASH


def _found() -> Flash | None:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        try:
            package: Any = importlib.import_module("flash_attn")
        except ImportError:
            return None

        def other(
            query: Tensor, key: Tensor, value: Tensor, borders: Tensor, longest: int, causal: bool, scale: float
        ) -> Tensor:
            return package.flash_attn_varlen_func(
                query, key, value, borders, borders, longest, longest, softmax_scale=scale, causal=causal
            )

        return other

    def own(
        query: Tensor, key: Tensor, value: Tensor, borders: Tensor, longest: int, causal: bool, scale: float
    ) -> Tensor:
        window = (-1, 0) if causal else (-1, -1)
        output = varlen_attn(query, key, value, borders, borders, longest, longest, scale=scale, window_size=window)
        assert isinstance(output, Tensor)
        return output

    return own


# Looked for here and not when it is called, which may be in code that is being compiled.
_FLASH = _found()


@dataclasses.dataclass(frozen=True)
class Pieces:
    """The documents of a micro-batch, grouped by length; a group is a batch whose rows are documents.

    Attributes:
        source: (M,) int64: which of the N places each slot of the groups holds; filled up with a place of the row.
        target: (N,) int64: the slot of each place.
        filled: (M,) bool: slots that only fill up a row; None when there are none.
        groups: rows and row length of each group; M slots in all.
        keys: for each group (G, 1, 1, L) bool, the keys that may be seen; None where the end of the row tells it.
    """

    source: Tensor
    target: Tensor
    filled: Tensor | None
    groups: tuple[tuple[int, int], ...]
    keys: tuple[Tensor | None, ...]


def pieces(documents: Tensor, causal: bool) -> Pieces:
    """Group the documents of a micro-batch by length: two lengths an octave, so that rows are two thirds full or more.

    Args:
        documents: (B, T), as in `attention.visible`.
        causal: what fills up a row comes last, and the past does not see it; otherwise its keys have to be hidden.
    """
    firsts = _firsts(documents).numpy(force=True)
    lengths = np.diff(firsts, append=documents.numel())
    rows = _row_length(lengths)
    sources, filled, groups, keys = [], [], [], []
    for length in np.unique(rows):
        chosen = np.flatnonzero(rows == length)
        steps = np.arange(length)
        over = steps >= lengths[chosen, None]
        sources.append((firsts[chosen, None] + np.where(over, 0, steps)).ravel())
        filled.append(over.ravel())
        groups.append((len(chosen), int(length)))
        keys.append(None if causal or not over.any() else torch.from_numpy(~over)[:, None, None].to(documents.device))
    source, over = np.concatenate(sources), np.concatenate(filled)
    target = np.empty(documents.numel(), dtype=np.int64)
    target[source[~over]] = np.flatnonzero(~over)
    return Pieces(
        torch.from_numpy(source).to(documents.device),
        torch.from_numpy(target).to(documents.device),
        torch.from_numpy(over).to(documents.device) if over.any() else None,
        tuple(groups),
        tuple(keys),
    )


def _row_length(lengths: np.ndarray) -> np.ndarray:
    """The length rounded up to 16, 24, 32, 48, 64, 96 and so on."""
    octave = 2 ** np.ceil(np.log2(np.maximum(lengths, 16))).astype(np.int64)
    return np.where((lengths <= octave // 4 * 3) & (octave > 16), octave // 4 * 3, octave)


def document_attention(query: Tensor, key: Tensor, value: Tensor, pieces: Pieces, causal: bool, scale: float) -> Tensor:
    """Attention within each document.

    Args:
        query: (N, H, E) for the N = B x T places, row after row.
        key, value: (N, K, E); each serves H / K heads.
        pieces: of the same micro-batch and mode.
        causal: whether a token sees the past only.
        scale: factor of the scores.

    Returns:
        (N, H, E).
    """
    return _by_groups(query, key, value, pieces, causal, scale)


def _documents_as_rows(query: Tensor, key: Tensor, value: Tensor, pieces: Pieces, causal: bool, scale: float) -> Tensor:
    move: Any = _Move.apply
    query, key, value = (move(part, pieces.source, pieces.target, None) for part in (query, key, value))
    outputs = []
    start = 0
    for (rows, length), keys in zip(pieces.groups, pieces.keys, strict=True):
        slots = slice(start, start + rows * length)
        start = slots.stop
        parts = (part[slots].unflatten(0, (rows, length)).transpose(1, 2) for part in (query, key, value))
        outputs.append(_dense(*parts, keys, causal, scale).transpose(1, 2).flatten(0, 1))
    return move(torch.cat(outputs), pieces.target, pieces.source, pieces.filled)


# The number and sizes of the groups differ from micro-batch to micro-batch: compiled, it would be compiled for ever.
_by_groups: Any = torch.compiler.disable(_documents_as_rows)


def _dense(query: Tensor, key: Tensor, value: Tensor, keys: Tensor | None, causal: bool, scale: float) -> Tensor:
    """(G, H, L, E): attention of G rows that are documents; the faster way for the row length."""
    length = query.shape[2]
    if query.dtype is not torch.bfloat16 or length > 256:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=keys, is_causal=causal, scale=scale, enable_gqa=True
        )
    copies = query.shape[1] // key.shape[1]
    if copies > 1:
        key, value = key.repeat_interleave(copies, 1), value.repeat_interleave(copies, 1)
    scores = (query @ key.transpose(2, 3)).float() * scale
    if causal:
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -torch.inf)
    elif keys is not None:
        scores = scores.masked_fill(~keys, -torch.inf)
    return scores.softmax(-1).to(value.dtype) @ value


class _Move(torch.autograd.Function):
    """Rows of a tensor in another order. The gradient is gathered the other way round, which is faster than adding."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, there: Tensor, back: Tensor, unused: Tensor | None) -> Tensor:
        ctx.save_for_backward(back, unused)
        return values.index_select(0, there)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        back, unused = ctx.saved_tensors
        gradient = outer[0].index_select(0, back)
        if unused is not None:
            gradient[unused] = 0
        return gradient, None, None, None
