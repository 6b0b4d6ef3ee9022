"""Objectives that ask for the next token: all of it causal, or causal after a prefix that is read both ways."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from antiphon.data.batches import PADDING, TokenBatch
from antiphon.draws import generator
from antiphon.pretrain.objective import CAUSAL, IGNORE, PREFIX, LMBatch, Ratio, Vocabulary, moved_left, piece_starts
from antiphon.pretrain.reader import Reader


@dataclasses.dataclass(frozen=True)
class CLM:
    """Causal language modelling: position t answers token t + 1 of its own document."""

    name: ClassVar[str] = "clm"
    asked_share = 1.0

    @classmethod
    def read(cls, reader: Reader) -> CLM:
        return cls()

    def at(self, progress: float) -> CLM:
        return self

    def __call__(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> list[LMBatch]:
        labels = moved_left(batch.tokens, batch.documents)
        return [LMBatch(batch.tokens, labels, batch.documents, batch.positions, CAUSAL)]

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True)
class Prefix:
    """Prefix language modelling: a prefix of each document is read both ways, the rest is asked token by token.

    The share of a document that is prefix is drawn for each document (or the piece of it that lies in the row) from
    the widest uniform distribution within 0 .. 1 whose mean is `ratio`: prefix(0.5) splits at a place that is uniform
    over the document, prefix(0.75) in its second half. The last token of a document is never prefix, so that
    there is something to ask; the last token of the prefix answers the first token of the rest.

    Source: Raffel et al. 2020 (arXiv 1910.10683), section 3.2.3: prefix and target meet at a random point; Tay et al.
    2022 (arXiv 2205.05131), section 3.1.2: the S-denoiser, whose target is a quarter of the text on average.
    """

    ratio: Ratio
    name: ClassVar[str] = "prefix"

    @property
    def asked_share(self) -> float:
        return 1 - self.ratio.mean

    @classmethod
    def read(cls, reader: Reader) -> Prefix:
        reader.need("(", f"and a share of each document after {cls.name!r}, as in {cls.name}(0.5)")
        ratio = Ratio.read(reader, "the mean share of a document that is prefix")
        reader.need(")", "after the share of the prefix")
        return cls(ratio)

    def at(self, progress: float) -> Prefix:
        return Prefix(self.ratio.at(progress))

    def __call__(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> list[LMBatch]:
        starts = np.flatnonzero(piece_starts(batch.documents))
        lengths = np.diff(starts, append=batch.tokens.size)
        mean = self.ratio.start
        # Each document takes the draw of the place where it begins, so that no row depends on the rows above it.
        draws = generator(seed, "prefix", step).random(batch.tokens.size)[starts]
        shares = mean + (2 * draws - 1) * min(mean, 1 - mean)
        sizes = np.minimum(np.rint(shares * lengths).astype(np.int64), lengths - 1)
        places = np.arange(batch.tokens.size) - np.repeat(starts, lengths)
        opened = (places < np.repeat(sizes, lengths)).reshape(batch.tokens.shape) & (batch.documents != PADDING)
        rest = np.where(opened, IGNORE, batch.tokens)
        labels = moved_left(rest, batch.documents)
        return [LMBatch(batch.tokens, labels, batch.documents, batch.positions, PREFIX, opened)]

    def __str__(self) -> str:
        return f"{self.name}({self.ratio})"
