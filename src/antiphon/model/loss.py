"""Sums and counts, never a mean of means: whoever holds all the counts divides once."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.model.attention import Attention
from antiphon.model.build import LanguageModel, encode, output_matrix
from antiphon.model.cross_entropy import Softmax, linear_cross_entropy, softmax_of

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
    opened: Tensor | None = None,
    z_loss: float = 0.0,
    softmax: Softmax = softmax_of,
) -> Loss:
    """Cross-entropy of labels[b, t] against logits[b, t], computed only where a label asks.

    Nothing is shifted here: the objective has aligned labels with logits.

    Args:
        model: the network.
        inputs, labels, documents, positions: (B, T) integers; a label of IGNORE asks nothing.
        attention, opened: who may see whom.
        z_loss, softmax: as in `linear_cross_entropy`.
    """
    # Indices, not a boolean mask: the gather then has a known size and its backward is a plain scatter.
    asked = (labels.reshape(-1) != IGNORE).nonzero().squeeze(1)
    answers = labels.reshape(-1).index_select(0, asked)
    if asked.shape[0] > 1:
        # Compiled code is then made for any number of them. (One and none are cases of their own to the compiler.)
        torch._dynamo.maybe_mark_dynamic(asked, 0)
    states = encode(model, inputs, documents, positions, attention, opened, asked)
    return Loss(linear_cross_entropy(states, output_matrix(model), answers, z_loss, softmax), int(answers.numel()))


class Learner(nn.Module):
    """The network and its loss as one module, so that what wraps a module (DDP, FSDP) sees the whole computation."""

    def __init__(self, network: LanguageModel, z_loss: float = 0.0) -> None:
        super().__init__()
        self.network = network
        self.z_loss = z_loss
        self.softmax: Softmax = softmax_of

    def forward(
        self,
        inputs: Tensor,
        labels: Tensor,
        documents: Tensor,
        positions: Tensor,
        attention: Attention,
        opened: Tensor | None = None,
    ) -> Tensor:
        """The sum of the losses of one micro-batch (scalar, float32, nats); arguments as in `language_modelling`."""
        return language_modelling(
            self.network, inputs, labels, documents, positions, attention, opened, self.z_loss, self.softmax
        ).total


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
