"""The face of a kind: all that the run needs to know of classify, tag, extract or retrieve."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from tokenizers import Tokenizer

from antiphon.finetune.features import Rows
from antiphon.finetune.network import Network
from antiphon.finetune.task import Dataset, Split
from antiphon.model.loss import Loss


class Features(Protocol):
    """One split as arrays; each kind adds what it needs.

    Attributes:
        rows: what is encoded (extract: the windows; retrieve: the queries).
        num_examples: N.
        num_truncated: how many of them did not fit and were cut.
    """

    @property
    def rows(self) -> Rows: ...
    @property
    def num_examples(self) -> int: ...
    @property
    def num_truncated(self) -> int: ...


F = TypeVar("F", bound=Features)


@dataclasses.dataclass(frozen=True)
class Face(Generic[F]):
    """What a kind does.

    Attributes:
        features: makes the arrays of all splits, with rows of at most the given number of tokens.
        outputs: numbers the head gives for each vector; 0 for no head.
        order: the batches of one epoch, each an array of training items: (features, batch size, generator).
        micro: cuts a batch into micro-batches of at most so many items (0: any number), where the kind allows it.
        count: how many things the loss of some training items sums.
        loss: that loss.
        evaluate: metrics of each of some splits, as fractions.
        metrics: the names of those metrics.
    """

    features: Callable[[Dataset, Tokenizer, int], Mapping[Split, F]]
    outputs: Callable[[Dataset], int]
    order: Callable[[F, int, np.random.Generator], list[np.ndarray]]
    micro: Callable[[np.ndarray, int], list[np.ndarray]]
    count: Callable[[F, np.ndarray], int]
    loss: Callable[[Network, F, np.ndarray], Loss]
    evaluate: Callable[[Network, Sequence[F]], list[dict[str, float]]]
    metrics: tuple[str, ...]


def shuffled(features: Features, size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Every row once, in random order; the last batch may be smaller."""
    order = generator.permutation(len(features.rows))
    return np.split(order, range(size, len(order), size))


def by_rows(batch: np.ndarray, most: int) -> list[np.ndarray]:
    """Pieces of at most `most` items; all in one when `most` is 0."""
    return np.split(batch, range(most, len(batch), most)) if most else [batch]


def whole(batch: np.ndarray, most: int) -> list[np.ndarray]:
    """The batch in one piece, whatever the device would like: its items are compared with each other."""
    return [batch]
