"""A batch is a pure function of its place in the run: not of time, workers, ranks or what came before."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from antiphon.data.layout import Source
from antiphon.data.order import Turns, permute

PADDING = -1


@dataclasses.dataclass(frozen=True)
class TokenBatch:
    """Packed rows, before any objective.

    Attributes:
        tokens: (B, T) int64.
        documents: (B, T) int64, number of the document within the row; PADDING where there is no token.
        positions: (B, T) int64, position within the document, or within the piece of it that lies in this row.
        words: words presented by these rows. The first p of a document's n tokens present floor(p * w / n) of its w
            words, so that its pieces together present exactly w.
        first_row: how many rows of the run came before.
    """

    tokens: np.ndarray
    documents: np.ndarray
    positions: np.ndarray
    words: int = 0
    first_row: int = 0

    @cached_property
    def count(self) -> int:
        """Tokens that are not padding."""
        return int((self.documents != PADDING).sum())


@dataclasses.dataclass(frozen=True)
class Batches:
    """The rows of a run, which is an endless stream of blocks of token places (slots).

    Each block belongs to one source, by an exact walk over the weights. An epoch of a source shows each of its blocks
    once, in a keyed order of its own; a last block that is not full comes last. A row takes the next slots of the
    stream, be it shorter or longer than a block, so the length of rows may change at any point of a run and every token
    is still shown once an epoch. A piece of a document ends where its block or its row ends.

    Attributes:
        sources: the corpora.
        block: slots in a block, as in every layout.
        pad: token id of slots that hold no token.
        seed: keys the orders.
    """

    sources: tuple[Source, ...]
    block: int
    pad: int
    seed: int

    def take(self, first: int, rows: int, length: int) -> TokenBatch:
        """The next rows of the run.

        Args:
            first: slots that were shown before, padding included.
            rows: B.
            length: T.
        """
        total = rows * length
        blocks = np.arange(first // self.block, -(-(first + total) // self.block))
        owners, indices = self.order(blocks)
        tokens = np.full(total, self.pad, dtype=np.int64)
        documents = np.full_like(tokens, PADDING)
        positions = np.zeros_like(tokens)
        words = 0
        borders = []
        for number, source in enumerate(self.sources):
            mine = np.flatnonzero(owners == number)
            if not len(mine):
                continue
            pieces = source.layout.pieces(indices[mine])
            begins = blocks[mine][pieces.owners] * self.block + pieces.slots - first
            places, starts, sizes = _in_rows(begins, pieces.starts, pieces.sizes, total, length)
            inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            filled = np.repeat(places, sizes) + inside
            tokens[filled] = source.layout.shards.gather(np.repeat(starts, sizes) + inside)
            documents[filled] = np.repeat(places, sizes)
            positions[filled] = inside
            before, after = np.split(source.layout.shards.words_before(np.concatenate([starts, starts + sizes])), 2)
            words += int((after - before).sum())
            borders.append(places)
        _number(documents, np.sort(np.concatenate(borders)), length)
        shape = (rows, length)
        return TokenBatch(tokens.reshape(shape), documents.reshape(shape), positions.reshape(shape), words)

    def order(self, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which block of which source is shown as the n-th since the beginning.

        Args:
            blocks: (N,) non-negative integers.

        Returns:
            owners: (N,) numbers of sources.
            indices: (N,) indices of blocks in those sources.
        """
        owners, counts = self._turns.of(blocks)
        indices = np.zeros_like(counts)
        for number, source in enumerate(self.sources):
            epochs, places = np.divmod(counts, source.layout.blocks)
            for epoch in np.unique(epochs[owners == number]):
                shown = (owners == number) & (epochs == epoch)
                last = shown & (places >= source.layout.full)
                indices[last] = places[last]
                shown &= ~last
                indices[shown] = permute(places[shown], source.layout.full, self.seed, int(epoch), number)
        return owners, indices

    @cached_property
    def _turns(self) -> Turns:
        return Turns(tuple(source.weight for source in self.sources))


def _in_rows(
    begins: np.ndarray, starts: np.ndarray, sizes: np.ndarray, total: int, length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pieces cut where rows end, without what lies before the first row or after the last.

    Args:
        begins: (P,) slots where the pieces begin, counted from the beginning of the first row.
        starts: (P,) where they begin in the stream of tokens.
        sizes: (P,) tokens in them.
        total, length: slots in all rows and in one.

    Returns:
        The same three of the cut pieces, in the same order.
    """
    low, high = np.maximum(begins, 0), np.minimum(begins + sizes, total)
    kept = low < high
    begins, starts, low, high = begins[kept], starts[kept], low[kept], high[kept]
    first = low // length
    times = (high - 1) // length - first + 1
    which = np.repeat(np.arange(len(times)), times)
    rows = first[which] + np.arange(len(which)) - np.repeat(np.cumsum(times) - times, times)
    low = np.maximum(low[which], rows * length)
    high = np.minimum(high[which], (rows + 1) * length)
    return low, starts[which] + low - begins[which], high - low


def _number(documents: np.ndarray, borders: np.ndarray, length: int) -> None:
    """Replace the slot where a document begins by the document's number within its row.

    Args:
        documents: (B * T,) the slot where each token's document begins, or PADDING; changed in place.
        borders: all those slots, sorted.
        length: T.
    """
    rows = borders // length
    numbers = np.arange(len(borders)) - np.searchsorted(rows, rows)
    real = documents != PADDING
    documents[real] = numbers[np.searchsorted(borders, documents[real])]
