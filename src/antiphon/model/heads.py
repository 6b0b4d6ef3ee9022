"""What stands on top of an encoder in fine-tuning: one vector for a text, and a linear layer."""

from __future__ import annotations

import enum

import torch
from torch import Tensor, nn

from antiphon.draws import seed_of


class Pooling(enum.Enum):
    """Which vector stands for a text: the mean over its tokens, specials included, or its first or last token."""

    MEAN = "mean"
    FIRST = "first"
    LAST = "last"


def pool(hidden: Tensor, lengths: Tensor, pooling: Pooling) -> Tensor:
    """One vector for each text.

    Args:
        hidden: (S, D), the tokens of N texts one after the other, without padding.
        lengths: (N,) int64, at least 1 each, S in sum.
        pooling: the rule.

    Returns:
        (N, D) float32.
    """
    ends = lengths.cumsum(0)
    if pooling is Pooling.FIRST:
        return hidden.index_select(0, ends - lengths).float()
    if pooling is Pooling.LAST:
        return hidden.index_select(0, ends - 1).float()
    text = torch.arange(lengths.shape[0], device=hidden.device).repeat_interleave(lengths, output_size=hidden.shape[0])
    sums = hidden.new_zeros(lengths.shape[0], hidden.shape[1], dtype=torch.float32)
    return sums.index_add(0, text, hidden.float()) / lengths[:, None]


def linear(width: int, outputs: int, seed: int) -> nn.Linear:
    """A linear head, the same for the same arguments.

    Args:
        width: D.
        outputs: numbers for each vector.
        seed: the fine-tuning seed; the head has a stream of its own.

    Source: the standard deviation is that of the encoder's own initialisation, as in BERT (arXiv 1810.04805).
    """
    generator = torch.Generator().manual_seed(seed_of(seed, "head"))
    # Made without numbers: the default initialisation would draw from the global stream.
    head = nn.Linear(width, outputs, device="meta").to_empty(device="cpu")
    nn.init.normal_(head.weight, std=0.02, generator=generator)
    nn.init.zeros_(head.bias)
    return head
