"""Objectives: a pure function from a token batch to LM batches. What is shown, what is asked, who may see whom.

Invariant: labels[b, t] answers logits[b, t]. The objective aligns them; nobody downstream shifts or asks which it was.
A new one is a class with this face, in a file beside the others, and an entry in notation.OBJECTIVES.
No torch here: masks are drawn with numpy's counter-based generator, so they are the same for every device.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import ClassVar, Protocol, Self

import numpy as np

from antiphon.config import UserError
from antiphon.data.batches import PADDING, TokenBatch
from antiphon.data.tokenizer import Encoder
from antiphon.data.words import Words
from antiphon.pretrain.amount import plain
from antiphon.pretrain.reader import Reader

IGNORE = -100
CAUSAL, BIDIRECTIONAL, PREFIX = "causal", "bidirectional", "prefix"


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What an objective needs to know of the tokenizer.

    Attributes:
        size: V.
        mask: id of the mask token.
        specials: ids that are never asked by masking and never drawn as replacements.
        encoder: the tokenizer itself, which knows where words begin; only whole words need it.
    """

    size: int
    mask: int
    specials: tuple[int, ...]
    encoder: Encoder | None = dataclasses.field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, encoder: Encoder) -> Vocabulary:
        """The vocabulary of an opened tokenizer."""
        return cls(encoder.size, encoder.mask, encoder.specials, encoder)

    @cached_property
    def words(self) -> Words:
        """Where words begin; found out at the first call, so that who never asks pays nothing.

        Raises:
            UserError: the tokens of this tokenizer do not tell.
        """
        if self.encoder is None:
            raise UserError("whole words need a tokenizer that tells where words begin, and none was given")
        return self.encoder.words

    @cached_property
    def ordinary(self) -> np.ndarray:
        """All ids that are not special, sorted."""
        return np.setdiff1d(np.arange(self.size), self.specials)

    @cached_property
    def is_special(self) -> np.ndarray:
        """(V,) bool."""
        return np.isin(np.arange(self.size), self.specials)


@dataclasses.dataclass(frozen=True)
class LMBatch:
    """Rows with a question each.

    Attributes:
        inputs: (B, T) int64, what the model is shown.
        labels: (B, T) int64, the answer to logits[b, t], or IGNORE.
        documents, positions: (B, T), as in TokenBatch.
        attention: "causal", "bidirectional" or "prefix".
        opened: only with "prefix": (B, T) bool, the tokens that all of their document may see; the others are seen by
            what comes after them, as in causal attention.
    """

    inputs: np.ndarray
    labels: np.ndarray
    documents: np.ndarray
    positions: np.ndarray
    attention: str
    opened: np.ndarray | None = None

    @cached_property
    def count(self) -> int:
        """Number of labels that ask."""
        return int((self.labels != IGNORE).sum())

    def rows(self, chosen: slice | np.ndarray) -> LMBatch:
        """Some of the rows."""
        return LMBatch(
            self.inputs[chosen],
            self.labels[chosen],
            self.documents[chosen],
            self.positions[chosen],
            self.attention,
            None if self.opened is None else self.opened[chosen],
        )


class Objective(Protocol):
    """The face of an objective; str() gives its notation."""

    name: ClassVar[str]
    """What it is called in the notation, before any bracket."""

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read what follows the name."""
        ...

    @property
    def asked_share(self) -> float:
        """About which share of the tokens is asked, for counting cost; the mean over a ramp."""
        ...

    def at(self, progress: float) -> Objective:
        """The objective with its ramps resolved at a point 0 .. 1 of its phase."""
        ...

    def __call__(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> list[LMBatch]:
        """The batch as this objective asks it: a list, since a mixture asks its rows in several ways."""
        ...


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A share between 0 and 1, constant or ramping linearly over its phase."""

    start: float
    stop: float

    def at(self, progress: float) -> Ratio:
        """The constant ratio at a point of the phase."""
        value = self.start + (self.stop - self.start) * progress
        return Ratio(value, value)

    @property
    def mean(self) -> float:
        """Over the phase."""
        return (self.start + self.stop) / 2

    @classmethod
    def read(cls, reader: Reader, what: str) -> Ratio:
        """One share, or two with an arrow between; `what` says of what."""
        start = reader.share(what)
        return cls(start, reader.share(what) if reader.take("->") else start)

    def __str__(self) -> str:
        # Every digit: the notation is part of a state's identity, and equal identities must mean equal masks.
        return plain(self.start) if self.start == self.stop else f"{plain(self.start)} -> {plain(self.stop)}"


def moved_left(labels: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """(B, T): labels[t] = labels[t + 1] where both lie in one document; IGNORE at its last token and in padding."""
    moved = np.full_like(labels, IGNORE)
    same = (documents[:, :-1] == documents[:, 1:]) & (documents[:, :-1] != PADDING)
    moved[:, :-1] = np.where(same, labels[:, 1:], IGNORE)
    return moved


def askable(batch: TokenBatch, vocabulary: Vocabulary) -> np.ndarray:
    """(B, T) bool: the tokens that masking may ask, which are neither special nor padding."""
    return ~vocabulary.is_special[batch.tokens] & (batch.documents != PADDING)


def piece_starts(documents: np.ndarray) -> np.ndarray:
    """(B, T) bool: where another document begins in its row, or padding does, or the row itself."""
    starts = np.ones(documents.shape, dtype=bool)
    starts[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return starts
