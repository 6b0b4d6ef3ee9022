"""A batch is a pure function of its step: not of time, workers, ranks or what came before."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from antiphon.data.shards import Shards
from antiphon.draws import generator

PADDING = -1


@dataclasses.dataclass(frozen=True)
class TokenBatch:
    """Packed rows, before any objective.

    Attributes:
        tokens: (B, T) int64.
        documents: (B, T) int64, number of the document within the row; PADDING where there is no token.
        positions: (B, T) int64, position within the document, or within the piece of it that lies in this row.
    """

    tokens: np.ndarray
    documents: np.ndarray
    positions: np.ndarray


@dataclasses.dataclass(frozen=True)
class Batches:
    """The rows of a corpus, in an order of its own for each epoch.

    The stream of all tokens is cut into rows of T. An epoch shows every row once: the full rows in a keyed order that
    needs no memory, then the last, shorter one.

    Attributes:
        shards: the corpus.
        rows: B, rows in a batch.
        length: T, tokens in a row.
        pad: token id that fills the last row.
        seed: keys the order.
    """

    shards: Shards
    rows: int
    length: int
    pad: int
    seed: int

    @property
    def rows_an_epoch(self) -> int:
        """Rows it takes to show every token once."""
        return -(-self.shards.tokens // self.length)

    def __call__(self, step: int) -> TokenBatch:
        """The batch of a step; it may straddle two epochs."""
        numbers = np.arange(step * self.rows, (step + 1) * self.rows)
        return self.take(self.order(numbers))

    def order(self, numbers: np.ndarray) -> np.ndarray:
        """Which row is shown as the n-th since the beginning.

        Args:
            numbers: (N,) non-negative integers.

        Returns:
            (N,) row indices.
        """
        epochs, places = np.divmod(numbers, self.rows_an_epoch)
        full = self.shards.tokens // self.length
        shown = places.copy()
        for epoch in np.unique(epochs):
            chosen = (epochs == epoch) & (places < full)
            shown[chosen] = permute(places[chosen], full, self.seed, int(epoch))
        return shown

    def take(self, indices: np.ndarray) -> TokenBatch:
        """Rows by index."""
        tokens = np.full((len(indices), self.length), self.pad, dtype=np.int64)
        documents = np.full_like(tokens, PADDING)
        positions = np.zeros_like(tokens)
        ends = self.shards.ends
        for row, index in enumerate(indices):
            start = int(index) * self.length
            stop = min(start + self.length, self.shards.tokens)
            size = stop - start
            tokens[row, :size] = self.shards.read(start, stop)
            # The same type as the index: numpy would copy the whole index to compare it with another.
            first, last = np.searchsorted(ends, np.array([start, stop - 1], dtype=ends.dtype), side="right")
            borders = np.concatenate([[0], ends[first:last].astype(np.int64) - start])
            number = np.searchsorted(borders, np.arange(size), side="right") - 1
            documents[row, :size] = number
            positions[row, :size] = np.arange(size) - borders[number]
        return TokenBatch(tokens, documents, positions)

    def tokens_seen(self, step: int) -> int:
        """Tokens shown in the first `step` steps, padding not counted."""
        epochs, places = divmod(step * self.rows, self.rows_an_epoch)
        return epochs * self.shards.tokens + places * self.length


def permute(places: np.ndarray, size: int, seed: int, epoch: int) -> np.ndarray:
    """A keyed bijection of 0 .. size-1, computed point by point: no array of the permutation is ever made.

    A generalised Feistel network on pairs (left below a, right below b) with a * b just above `size`; the few values
    that fall outside are walked on until they fall inside (cycle walking).

    Args:
        places: (N,) integers below `size`.
        size: how many there are.
        seed, epoch: the key.

    Source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains", sections 3 to 5.
    """
    if size <= 1:
        return places.copy()
    lefts = math.isqrt(size - 1) + 1
    a, b = np.uint64(lefts), np.uint64(-(-size // lefts))
    values = places.astype(np.uint64)
    pending = np.arange(len(values))
    while len(pending):
        left, right = np.divmod(values[pending], b)
        for even, odd in _keys(seed, epoch):
            left = (left + _mix(right ^ even) % a) % a
            right = (right + _mix(left ^ odd) % b) % b
        values[pending] = left * b + right
        pending = pending[values[pending] >= np.uint64(size)]
    return values.astype(places.dtype)


@functools.lru_cache(maxsize=16)
def _keys(seed: int, epoch: int) -> np.ndarray:
    """(3, 2) uint64: the keys of the rounds, kept because every step asks for them."""
    return generator(seed, "rows", epoch).integers(0, 2**64, size=(3, 2), dtype=np.uint64)


def _mix(values: np.ndarray) -> np.ndarray:
    # The finaliser of splitmix64 (Steele et al. 2014): every input bit reaches every output bit.
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
