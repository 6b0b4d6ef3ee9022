"""Cross-entropy straight from hidden states: the scores over the vocabulary exist for a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

Softmax = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]

CPU_SCORES = 2**25
"""Scores held at once on CPU: 128 MiB in float32. Smaller pieces pay for adding up the weight's gradient more often,
larger ones for memory that no cache holds (benchmarks/memory.py)."""
CUDA_SCORES = 2**29


def rows_at_once(vocabulary: int, device: torch.device) -> int:
    """How many hidden states get their scores at once."""
    return max(1, (CUDA_SCORES if device.type == "cuda" else CPU_SCORES) // vocabulary)


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, answers: Tensor, z_loss: float = 0.0, softmax: Softmax | None = None
) -> Tensor:
    """The sum over N items of cross-entropy(hidden @ weight.T, answers), plus the z-loss.

    When all N x V scores are few they are simply computed; otherwise piece by piece, and the gradients along with
    them, so that memory grows with N + V and not with N x V.

    Args:
        hidden: (N, D).
        weight: (V, D), the output matrix.
        answers: (N,) int64, below V.
        z_loss: weight of the squared log of the softmax's normaliser, which keeps logits from drifting (Chowdhery et
            al. 2022, arXiv 2204.02311, section 5).
        softmax: computes one piece; `softmax_of` compiled, or None for `softmax_of` as it is.

    Returns:
        Scalar, float32 (float64 for float64 arguments). Products are taken in the autocast dtype where autocast is
        on, softmax and sums in float32.
    """
    if hidden.shape[0] <= rows_at_once(weight.shape[0], hidden.device):
        scores = functional.linear(hidden, weight)
        scores = scores.to(_wide(scores.dtype))
        total = functional.cross_entropy(scores, answers, reduction="sum")
        return total + z_loss * scores.logsumexp(-1).square().sum() if z_loss else total
    device = hidden.device.type
    narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    with torch.autocast(device, enabled=False):
        pieces: Any = _Pieces.apply
        return pieces(hidden.to(narrow), weight, answers, z_loss, softmax or softmax_of)


def softmax_of(scores: Tensor, answers: Tensor, z_loss: float) -> tuple[Tensor, Tensor]:
    """The summed loss of one piece and its gradient by the scores.

    Args:
        scores: (n, V); overwritten.
        answers: (n,) int64.
        z_loss: as in `linear_cross_entropy`.

    Returns:
        Scalar in float32 or wider, and (n, V) in the dtype of the scores.
    """
    wide = scores.to(_wide(scores.dtype))
    normaliser = wide.logsumexp(-1, keepdim=True)
    total = (normaliser - wide.gather(1, answers[:, None])).sum()
    # In place: nobody else holds these scores, and memory for more of them would have to be found.
    gradient = wide.sub_(normaliser).exp_()
    if z_loss:
        total = total + z_loss * normaliser.square().sum()
        gradient.mul_(1 + 2 * z_loss * normaliser)
    if torch.compiler.is_compiling():
        # The same, in a form that becomes a part of the pass above.
        places = torch.arange(scores.shape[1], device=scores.device)
        gradient = torch.where(places == answers[:, None], gradient - 1, gradient)
    else:
        gradient[torch.arange(scores.shape[0], device=scores.device), answers] -= 1
    return total, gradient.to(scores.dtype)


class _Pieces(torch.autograd.Function):
    """Loss and gradients piece by piece, in the forward pass: the backward pass only scales them."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, answers: Tensor, z_loss: float, softmax: Softmax) -> Tensor:
        narrow = weight.to(hidden.dtype)
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        hidden_gradient = torch.empty_like(hidden) if wants_hidden else None
        weight_gradient = None
        total = torch.zeros((), dtype=_wide(hidden.dtype), device=hidden.device)
        pieces = -(-hidden.shape[0] // rows_at_once(weight.shape[0], hidden.device))
        # Pieces of one size, but for a row: the work is balanced, and compiled code sees few sizes.
        for part, asked, place in zip(
            hidden.tensor_split(pieces), answers.tensor_split(pieces), _starts(hidden.shape[0], pieces), strict=True
        ):
            some, gradient = softmax(part @ narrow.T, asked, z_loss)
            total += some
            if hidden_gradient is not None:
                torch.mm(gradient, narrow, out=hidden_gradient[place : place + part.shape[0]])
            if wants_weight:
                product = _product(gradient, part, weight.dtype)
                weight_gradient = product if weight_gradient is None else weight_gradient.add_(product)
        ctx.gradients = (hidden_gradient, weight_gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("the gradients of linear_cross_entropy were used up by an earlier backward pass")
        scaled = tuple(None if gradient is None else gradient.mul_(outer[0]) for gradient in ctx.gradients)
        # Scaled in place, since the weight's is as large as the embedding; so they can be given out only once.
        ctx.gradients = None
        return *scaled, None, None, None


def _starts(number: int, pieces: int) -> list[int]:
    size, longer = divmod(number, pieces)
    return [piece * size + min(piece, longer) for piece in range(pieces)]


def _product(gradient: Tensor, hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """gradient.T @ hidden, in the weight's dtype; on CUDA also summed in it."""
    if gradient.dtype != dtype and gradient.is_cuda:
        return torch.mm(gradient.T, hidden, out_dtype=dtype)
    return (gradient.T @ hidden).to(dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
