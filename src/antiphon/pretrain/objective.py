"""Objectives: a pure function from a token batch to LM batches. What is shown, what is asked, who may see whom.

Invariant: labels[b, t] answers logits[b, t]. The objective aligns them; nobody downstream shifts or asks which it was.
No torch here: masks are drawn with numpy's counter-based generator, so they are the same for every device.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Protocol

import numpy as np

from antiphon.data.batches import PADDING, TokenBatch
from antiphon.draws import generator
from antiphon.pretrain.amount import plain

IGNORE = -100
CAUSAL, BIDIRECTIONAL, PREFIX = "causal", "bidirectional", "prefix"


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What an objective needs to know of the tokenizer.

    Attributes:
        size: V.
        mask: id of the mask token.
        specials: ids that are never asked by masking and never drawn as replacements.
    """

    size: int
    mask: int
    specials: tuple[int, ...]

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
    """A mask ratio, constant or ramping linearly over its phase."""

    start: float
    stop: float

    def at(self, progress: float) -> Ratio:
        """The constant ratio at a point of the phase."""
        value = self.start + (self.stop - self.start) * progress
        return Ratio(value, value)

    def __str__(self) -> str:
        # Every digit: the notation is part of a state's identity, and equal identities must mean equal masks.
        return plain(self.start) if self.start == self.stop else f"{plain(self.start)} -> {plain(self.stop)}"


@dataclasses.dataclass(frozen=True)
class CLM:
    """Causal language modelling: position t answers token t + 1 of its own document."""

    asked_share = 1.0

    def at(self, progress: float) -> CLM:
        return self

    def __call__(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> list[LMBatch]:
        labels = _moved_left(batch.tokens, batch.documents)
        return [LMBatch(batch.tokens, labels, batch.documents, batch.positions, CAUSAL)]

    def __str__(self) -> str:
        return "clm"


@dataclasses.dataclass(frozen=True)
class Fate:
    """What an asked token is shown as, in percent: the mask token, a random ordinary token, itself."""

    mask: int = 100
    random: int = 0
    keep: int = 0

    def __str__(self) -> str:
        return f"{self.mask}/{self.random}/{self.keep}"


@dataclasses.dataclass(frozen=True)
class MLM:
    """Masked language modelling: each ordinary token is asked with probability `ratio`, independently.

    Source: Devlin et al. 2019 (arXiv 1810.04805), section 3.1, which has the fate 80/10/10; the MLM-vs-CLM study
    (arXiv 2507.00994) masks every asked token, which is the default here.
    """

    ratio: Ratio
    fate: Fate = Fate()

    @property
    def asked_share(self) -> float:
        return (self.ratio.start + self.ratio.stop) / 2

    def at(self, progress: float) -> MLM:
        return dataclasses.replace(self, ratio=self.ratio.at(progress))

    def __call__(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> list[LMBatch]:
        draws = generator(seed, "mask", step)
        shape = batch.tokens.shape
        askable = ~vocabulary.is_special[batch.tokens] & (batch.documents != PADDING)
        asked = askable & (draws.random(shape) < self.ratio.start)
        fate = draws.random(shape) * 100
        replacement = vocabulary.ordinary[draws.integers(0, len(vocabulary.ordinary), shape)]
        shown = np.where(fate < self.fate.mask, vocabulary.mask, replacement)
        shown = np.where(fate < self.fate.mask + self.fate.random, shown, batch.tokens)
        inputs = np.where(asked, shown, batch.tokens)
        labels = np.where(asked, batch.tokens, IGNORE)
        return [LMBatch(inputs, labels, batch.documents, batch.positions, BIDIRECTIONAL)]

    def __str__(self) -> str:
        return f"mlm({self.ratio})" if self.fate == Fate() else f"mlm({self.ratio}, {self.fate})"


@dataclasses.dataclass(frozen=True)
class MNTP:
    """Masked next-token prediction: MLM's inputs, with the masked token t answered at position t - 1.

    Source: BehnamGhader et al. 2024 (arXiv 2404.05961), section 2.1.
    """

    ratio: Ratio
    fate: Fate = Fate()

    @property
    def asked_share(self) -> float:
        return (self.ratio.start + self.ratio.stop) / 2

    def at(self, progress: float) -> MNTP:
        return dataclasses.replace(self, ratio=self.ratio.at(progress))

    def __call__(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> list[LMBatch]:
        (masked,) = MLM(self.ratio, self.fate)(batch, vocabulary, seed, step)
        return [dataclasses.replace(masked, labels=_moved_left(masked.labels, batch.documents))]

    def __str__(self) -> str:
        return f"mntp({self.ratio})" if self.fate == Fate() else f"mntp({self.ratio}, {self.fate})"


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Several objectives in every batch, at an exact ratio of rows.

    Of any W consecutive rows of the run, W the sum of the weights, each objective gets exactly its weight; on one
    process as on many.

    Source: GPT-BERT (Charpentier and Samuel 2024, arXiv 2410.24159) mixes by GPU rank; here the rows are divided.
    """

    parts: tuple[tuple[Objective, int], ...]

    @property
    def asked_share(self) -> float:
        weights = [weight for _, weight in self.parts]
        return sum(objective.asked_share * weight for objective, weight in self.parts) / sum(weights)

    def at(self, progress: float) -> Mixture:
        return Mixture(tuple((objective.at(progress), weight) for objective, weight in self.parts))

    def __call__(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> list[LMBatch]:
        rows = len(batch.tokens)
        weights = np.cumsum([0, *(weight for _, weight in self.parts)])
        # Row n of the whole run has the slot n * stride modulo the total weight: a walk through all slots, as the
        # stride is coprime to the total, that spreads the rows of one objective out.
        total = int(weights[-1])
        slots = (np.arange(step * rows, (step + 1) * rows) * _stride(total)) % total
        owner = np.searchsorted(weights, slots, side="right") - 1
        batches = []
        for number, (objective, _) in enumerate(self.parts):
            chosen = np.flatnonzero(owner == number)
            if len(chosen):
                batches += [part.rows(chosen) for part in objective(batch, vocabulary, seed, step)]
        return batches

    def __str__(self) -> str:
        return "mix(" + ", ".join(f"{objective}: {weight}" for objective, weight in self.parts) + ")"


def _moved_left(labels: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """labels[t] = labels[t + 1] where both lie in one document; IGNORE at its last token and in padding."""
    moved = np.full_like(labels, IGNORE)
    same = (documents[:, :-1] == documents[:, 1:]) & (documents[:, :-1] != PADDING)
    moved[:, :-1] = np.where(same, labels[:, 1:], IGNORE)
    return moved


def _stride(total: int) -> int:
    """A number coprime to `total` near total / 1.618, which spreads consecutive rows evenly over the shares."""
    stride = max(1, round(total * 0.618))
    while np.gcd(stride, total) != 1:
        stride += 1
    return stride
