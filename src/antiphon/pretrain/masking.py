"""Objectives that hide tokens and ask what they were, reading both ways."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

import numpy as np

from antiphon.data.batches import TokenBatch
from antiphon.draws import generator
from antiphon.pretrain.grain import Grain, Tokens, read_grain
from antiphon.pretrain.objective import (
    BIDIRECTIONAL,
    IGNORE,
    LMBatch,
    Ratio,
    Vocabulary,
    askable,
    moved_left,
    piece_starts,
)
from antiphon.pretrain.reader import Reader


@dataclasses.dataclass(frozen=True)
class Fate:
    """What an asked token is shown as, in percent: the mask token, a random ordinary token, itself."""

    mask: int = 100
    random: int = 0
    keep: int = 0

    @classmethod
    def read(cls, reader: Reader) -> Fate:
        place = reader.place
        parts = [reader.number("a percentage, as in 80/10/10")]
        while reader.take("/"):
            parts.append(reader.number("a percentage, as in 80/10/10"))
        if len(parts) != 3 or sum(parts) != 100 or any(part != int(part) for part in parts):
            reader.fail(
                "the fate of an asked token is mask/random/keep in whole percent, as in 80/10/10, 100 together", place
            )
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return f"{self.mask}/{self.random}/{self.keep}"


@dataclasses.dataclass(frozen=True)
class MLM:
    """Masked language modelling: ordinary tokens are asked with probability `ratio`, one by one or in groups.

    Source: Devlin et al. 2019 (arXiv 1810.04805), section 3.1, which has the fate 80/10/10; the MLM-vs-CLM study
    (arXiv 2507.00994) masks every asked token, which is the default here.

    Attributes:
        ratio: the probability of every ordinary token to be asked; no special and no padding ever is.
        fate: what asked tokens are shown as.
        grain: what is asked as one.
    """

    ratio: Ratio
    fate: Fate = Fate()
    grain: Grain = dataclasses.field(default_factory=Tokens)
    name: ClassVar[str] = "mlm"

    @property
    def asked_share(self) -> float:
        return self.ratio.mean

    @classmethod
    def read(cls, reader: Reader) -> Self:
        reader.need("(", f"and a mask ratio after {cls.name!r}, as in {cls.name}(0.4)")
        ratio, fate, grain = Ratio.read(reader, "a mask ratio"), Fate(), Tokens()
        before, comma = "the mask ratio", reader.take(",")
        if comma and not reader.at_number:
            grain, before, comma = read_grain(reader), "what is asked as one", reader.take(",")
        if comma:
            fate, before = Fate.read(reader), "the fate, which comes last"
        reader.need(")", f"after {before}")
        return cls(ratio, fate, grain)

    def at(self, progress: float) -> Self:
        return dataclasses.replace(self, ratio=self.ratio.at(progress))

    def __call__(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> list[LMBatch]:
        draws = generator(seed, "mask", step)
        shape = batch.tokens.shape
        free = askable(batch, vocabulary)
        leaders = _leaders(self.grain.starts(batch, vocabulary, seed, step), batch, free)
        asked = free & (_of(draws.random(shape), leaders) < self.ratio.start)
        fate = _of(draws.random(shape), leaders if self.grain.one_fate else None) * 100
        replacement = vocabulary.ordinary[draws.integers(0, len(vocabulary.ordinary), shape)]
        shown = np.where(fate < self.fate.mask, vocabulary.mask, replacement)
        shown = np.where(fate < self.fate.mask + self.fate.random, shown, batch.tokens)
        return [hidden(batch, asked, shown)]

    def __str__(self) -> str:
        fate = "" if self.fate == Fate() else str(self.fate)
        return f"{self.name}({', '.join(part for part in (str(self.ratio), str(self.grain), fate) if part)})"


@dataclasses.dataclass(frozen=True)
class MNTP(MLM):
    """Masked next-token prediction: MLM's inputs, with the masked token t answered at position t - 1.

    Source: BehnamGhader et al. 2024 (arXiv 2404.05961), section 2.1.
    """

    name: ClassVar[str] = "mntp"

    def __call__(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> list[LMBatch]:
        (masked,) = super().__call__(batch, vocabulary, seed, step)
        return [dataclasses.replace(masked, labels=moved_left(masked.labels, batch.documents))]


def hidden(batch: TokenBatch, asked: np.ndarray, shown: np.ndarray | int) -> LMBatch:
    """The batch with the asked tokens shown as something else, each to be answered where it stands.

    Args:
        batch: B rows of T tokens.
        asked: (B, T) bool.
        shown: (B, T), what stands in place of asked tokens, or one token for all of them.
    """
    inputs = np.where(asked, shown, batch.tokens)
    labels = np.where(asked, batch.tokens, IGNORE)
    return LMBatch(inputs, labels, batch.documents, batch.positions, BIDIRECTIONAL)


def _leaders(starts: np.ndarray | None, batch: TokenBatch, free: np.ndarray) -> np.ndarray | None:
    """(B, T): for each token the place, among all B * T, of the first token of its group; None if that is itself."""
    if starts is None:
        return None
    # A special token within a document ends a group: it leads the next one, though it is never asked itself.
    starts = starts | piece_starts(batch.documents) | ~free
    places = np.where(starts.ravel(), np.arange(starts.size), 0)
    return np.maximum.accumulate(places).reshape(starts.shape)


def _of(draws: np.ndarray, leaders: np.ndarray | None) -> np.ndarray:
    """(B, T): for each token the draw of its group's first."""
    return draws if leaders is None else draws.ravel()[leaders]
