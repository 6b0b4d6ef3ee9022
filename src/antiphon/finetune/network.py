"""The module a fine-tuning trains: an encoder, a head, and how token rows go through them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.finetune.config import Protocol
from antiphon.finetune.features import Rows, blocks, pack
from antiphon.model import build
from antiphon.model.attention import Attention, choose_kernel
from antiphon.model.heads import Pooling, linear, pool
from antiphon.train.parallel import autocast


class NotFiniteError(Exception):
    """Evaluation met a hidden state that is not a finite number: the weights are of no use."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a network computes: device, dtype of the forward pass, and how much it evaluates at once."""

    device: torch.device
    precision: torch.dtype
    block_tokens: int = 4096
    block_rows: int = 0


class Network(nn.Module):
    """An encoder with a head, both with weights of their own.

    Attributes:
        body: the encoder.
        head: linear, or the identity where the vectors themselves are compared.
    """

    def __init__(
        self, base: build.LanguageModel, outputs: int, seed: int, protocol: Protocol, place: Place, longest: int
    ) -> None:
        """Copy the base and put a fresh head on it.

        Args:
            base: the pretrained network; never changed.
            outputs: numbers the head gives for each vector; 0 for no head.
            seed: of the head.
            protocol: attention, pooling and temperature.
            place: where to compute.
            longest: longest row there will be, which decides the attention kernel.
        """
        super().__init__()
        self.body = copy.deepcopy(base)
        self.head = linear(build.width(base), outputs, seed) if outputs else nn.Identity()
        self.attention = Attention(protocol.attention)
        self.pooling = Pooling(protocol.pooling)
        self.temperature = protocol.temperature
        self.place = place
        build.use_kernel(self.body, choose_kernel(place.device, place.precision, longest))
        self.to(place.device)

    def hidden(self, rows: Rows, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """Hidden states of the tokens of some rows.

        Returns:
            (S, D) float32, row after row without padding, and (N,) int64 lengths.

        Raises:
            NotFiniteError: in evaluation, a value that is not finite. In training the loop looks at the loss.
        """
        packed = pack(rows, indices, self.place.device)
        with autocast(self.place.device, self.place.precision):
            grid = build.encode(self.body, packed.inputs, packed.documents, packed.positions, self.attention)
        flat = grid.reshape(-1, grid.shape[-1]).index_select(0, packed.places).float()
        if not self.training and not bool(torch.isfinite(flat).all()):
            raise NotFiniteError
        return flat, packed.lengths

    def vectors(self, rows: Rows, indices: np.ndarray) -> Tensor:
        """(N, D) float32, one vector for each of some rows."""
        return pool(*self.hidden(rows, indices), self.pooling)

    def blocks(self, rows: Rows) -> Iterator[np.ndarray]:
        """All rows in blocks of a size that this place evaluates at once."""
        return iter(blocks(rows, self.place.block_tokens, self.place.block_rows))
