"""Sums and counts, never a mean of means: whoever holds all the counts divides once."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as functional
from torch import Tensor

from antiphon.model.attention import Attention
from antiphon.model.build import LanguageModel, encode, logits

IGNORE = -100


@dataclasses.dataclass(frozen=True)
class Loss:
    """A sum of losses (scalar tensor, float32, nats) and the number of items it sums."""

    total: Tensor
    count: int


def language_modelling(
    model: LanguageModel,
    inputs: Tensor,
    labels: Tensor,
    documents: Tensor,
    positions: Tensor,
    attention: Attention,
) -> Loss:
    """Cross-entropy of labels[b, t] against logits[b, t], computed only where a label asks.

    Nothing is shifted here: the objective has aligned labels with logits.

    Args:
        model: the network.
        inputs, labels, documents, positions: (B, T) integers; a label of IGNORE asks nothing.
        attention: who may see whom.
    """
    hidden = encode(model, inputs, documents, positions, attention)
    # Indices, not a boolean mask: the gather then has a known size and its backward is a plain scatter.
    asked = (labels.reshape(-1) != IGNORE).nonzero().squeeze(1)
    scores = logits(model, hidden.reshape(-1, hidden.shape[-1]).index_select(0, asked))
    answers = labels.reshape(-1).index_select(0, asked)
    total = functional.cross_entropy(scores.float(), answers, reduction="sum")
    return Loss(total, int(answers.numel()))


def infonce(queries: Tensor, documents: Tensor, temperature: float) -> Loss:
    """InfoNCE with in-batch negatives: query i belongs to document i.

    Args:
        queries, documents: (B, D), normalised here.
        temperature: divides the cosine similarities.

    Source: van den Oord et al. 2018 (arXiv 1807.03748), equation 4, with the other documents of the batch as negatives.
    """
    similarity = functional.normalize(queries.float(), dim=-1) @ functional.normalize(documents.float(), dim=-1).T
    answers = torch.arange(queries.shape[0], device=queries.device)
    return Loss(functional.cross_entropy(similarity / temperature, answers, reduction="sum"), queries.shape[0])
