"""Conditional masked language modelling: as many tokens as chance wants."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from antiphon.data.batches import TokenBatch
from antiphon.draws import generator
from antiphon.pretrain.masking import hidden
from antiphon.pretrain.objective import LMBatch, Vocabulary, askable, piece_starts
from antiphon.pretrain.reader import Reader


@dataclasses.dataclass(frozen=True)
class CMLM:
    """The number of asked tokens of each document is uniform from 1 to all, and which ones is uniform too.

    Of a document that lies in several rows, each piece draws a number. Every asked token is shown as the mask.

    Source: Ghazvininejad et al. 2019 (arXiv 1904.09324), section 3.2. With weights 1 / number in place of a plain sum
    it would be masked diffusion's bound (Sahoo et al. 2024, arXiv 2406.07524).
    """

    name: ClassVar[str] = "cmlm"
    asked_share = 0.5

    @classmethod
    def read(cls, reader: Reader) -> CMLM:
        return cls()

    def at(self, progress: float) -> CMLM:
        return self

    def __call__(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> list[LMBatch]:
        draws = generator(seed, "cmlm", step)
        free = np.flatnonzero(askable(batch, vocabulary))
        piece = np.cumsum(piece_starts(batch.documents))[free]
        order = np.lexsort((draws.random(batch.tokens.size)[free], piece))
        _, first, sizes = np.unique(piece, return_index=True, return_counts=True)
        numbers = 1 + np.floor(draws.random(batch.tokens.size)[free[first]] * sizes)
        rank = np.arange(len(free)) - np.repeat(first, sizes)
        asked = np.zeros(batch.tokens.size, dtype=bool)
        asked[free[order]] = rank < np.repeat(numbers, sizes)
        return [hidden(batch, asked.reshape(batch.tokens.shape), vocabulary.mask)]

    def __str__(self) -> str:
        return self.name
