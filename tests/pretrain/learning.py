"""What an objective asks, as a network is asked it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from antiphon.model.attention import Attention
from antiphon.model.loss import Loss
from antiphon.pretrain.objective import LMBatch


def arguments(part: LMBatch) -> tuple[Tensor, Tensor, Tensor, Tensor, Attention, Tensor | None]:
    """What a learner is called with."""
    inputs, labels, documents, positions = map(
        torch.from_numpy, (part.inputs, part.labels, part.documents, part.positions)
    )
    opened = None if part.opened is None else torch.from_numpy(part.opened)
    return inputs, labels, documents, positions, Attention(part.attention), opened


def loss(learner: nn.Module, part: LMBatch) -> Loss:
    """What a learner answers."""
    return Loss(learner(*arguments(part)), part.count)
