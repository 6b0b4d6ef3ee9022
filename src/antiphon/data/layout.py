"""Layouts: how a corpus is laid out in blocks of token places, before anyone asks for rows."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from antiphon.data.order import hashed, stride
from antiphon.data.packing import Index, open_index
from antiphon.data.shards import Shards

SHORTEST_PIECE = 12


class Packing(enum.Enum):
    """How documents come into blocks.

    CONTIGUOUS cuts the stream of all documents into blocks of equal length: full rows, most documents are cut.
    DOCUMENTS packs whole documents and cuts only those that are longer than a block, or that close a gap.
    PIECES cuts the stream into pieces of a random length, whatever documents they hold: the data of the MLM-vs-CLM
    study (arXiv 2507.00994, footnote 6, and its code, Optimus, `pack_dataset(random_size=True)`). Tokens of one piece
    see each other across the border of two documents, as in that study.
    """

    CONTIGUOUS = "contiguous"
    DOCUMENTS = "documents"
    PIECES = "pieces"


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Stretches of a corpus, each a document of its own in its row. Sorted by block and by slot.

    Attributes:
        owners: (P,) int64, which of the blocks that were asked for it lies in.
        slots: (P,) int64, where it begins in the block.
        starts: (P,) int64, where it begins in the corpus's stream of tokens.
        sizes: (P,) int64, its tokens.
    """

    owners: np.ndarray
    slots: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


class Layout(Protocol):
    """The face of a layout. Every token of the corpus lies in exactly one piece of one block."""

    @property
    def shards(self) -> Shards:
        """The corpus."""
        ...

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        ...

    @property
    def full(self) -> int:
        """How many of them, from the first, change places from epoch to epoch; the others, one at most, come last."""
        ...

    def pieces(self, blocks: np.ndarray) -> Pieces:
        """What lies in these blocks.

        Args:
            blocks: (N,) indices.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Source:
    """One corpus of a run.

    Attributes:
        layout: how it is laid out in blocks.
        weight: its share of the run's blocks, relative to the other sources'.
    """

    layout: Layout
    weight: int = 1


@dataclasses.dataclass(frozen=True)
class Contiguous:
    """The stream of all tokens in blocks of equal length, computed and never stored.

    Attributes:
        shards: the corpus.
        block: slots in a block.
    """

    shards: Shards
    block: int

    @property
    def blocks(self) -> int:
        return -(-self.shards.tokens // self.block)

    @property
    def full(self) -> int:
        return self.shards.tokens // self.block

    def pieces(self, blocks: np.ndarray) -> Pieces:
        ends = self.shards.ends
        starts = blocks * self.block
        stops = np.minimum(starts + self.block, self.shards.tokens)
        # The same type as the index: numpy would copy the whole index to compare it with another.
        first, last = (np.searchsorted(ends, at.astype(ends.dtype), side="right") for at in (starts, stops - 1))
        times = last - first + 1
        owners = np.repeat(np.arange(len(blocks)), times)
        documents = first[owners] + np.arange(len(owners)) - np.repeat(np.cumsum(times) - times, times)
        low = np.where(documents > 0, ends[np.maximum(documents - 1, 0)].astype(np.int64), 0)
        low = np.maximum(low, starts[owners])
        high = np.minimum(ends[documents].astype(np.int64), stops[owners])
        return Pieces(owners, low - starts[owners], low, high - low)


@dataclasses.dataclass(frozen=True)
class Uniform:
    """The stream in pieces of 12 to `block` tokens, each length as often as any other, computed and never stored.

    A block holds two pieces that complete each other, or one piece too long for another beside it. A cycle of blocks
    has each length exactly twice: a block for each first piece of 12 to `block` - 12 tokens, and two for each longer
    one. Where in the cycle the lengths begin is drawn for each cycle. 99.9% of the slots are filled in blocks of 512,
    and over 99% in blocks of 128 and more.

    Attributes:
        shards: the corpus.
        block: slots in a block.
    """

    shards: Shards
    block: int

    @property
    def blocks(self) -> int:
        cycles, rest = divmod(self.shards.tokens, int(self._ends[-1]))
        # The last block is the first that reaches the end of the stream.
        return cycles * self._cycle + int(np.searchsorted(self._ends, rest, side="left"))

    @property
    def full(self) -> int:
        return max(self.blocks - 1, 0)

    @property
    def _shortest(self) -> int:
        return min(SHORTEST_PIECE, self.block // 2)

    @property
    def _pairs(self) -> int:
        return self.block - 2 * self._shortest + 1

    @property
    def _cycle(self) -> int:
        return self._pairs + 2 * self._shortest

    @cached_property
    def _ends(self) -> np.ndarray:
        """(blocks of a cycle + 1,) int64: where its blocks end in the stream, counted from the cycle's beginning."""
        alone = np.repeat(np.arange(self.block, self.block - self._shortest, -1), 2)
        return np.cumsum(np.concatenate([[0], np.full(self._pairs, self.block), alone]))

    def pieces(self, blocks: np.ndarray) -> Pieces:
        cycles, places = np.divmod(blocks, self._cycle)
        starts = cycles * self._ends[-1] + self._ends[places]
        stops = np.minimum(cycles * self._ends[-1] + self._ends[places + 1], self.shards.tokens)
        shifts = hashed(cycles.astype(np.uint64)) % np.uint64(self._pairs)
        turns = (places * stride(self._pairs) + shifts.astype(np.int64)) % self._pairs
        first = np.where(places < self._pairs, self._shortest + turns, self.block)
        middles = np.minimum(starts + first, stops)
        begins = np.stack([starts, middles], axis=1)
        sizes = np.stack([middles - starts, stops - middles], axis=1)
        owners, _ = kept = np.nonzero(sizes)
        return Pieces(owners, begins[kept] - starts[owners], begins[kept], sizes[kept])


@dataclasses.dataclass(frozen=True)
class Packed:
    """Blocks of whole documents as far as they go, packed beforehand and read from an index.

    Attributes:
        shards: the corpus.
        index: of the packing.
    """

    shards: Shards
    index: Index

    @property
    def blocks(self) -> int:
        return len(self.index.ends)

    @property
    def full(self) -> int:
        return max(self.blocks - 1, 0)

    def pieces(self, blocks: np.ndarray) -> Pieces:
        ends = self.index.ends
        last = ends[blocks].astype(np.int64)
        first = np.where(blocks > 0, ends[np.maximum(blocks - 1, 0)].astype(np.int64), 0)
        times = last - first
        owners = np.repeat(np.arange(len(blocks)), times)
        begins = np.cumsum(times) - times
        starts, sizes = self.index.read(first[owners] + np.arange(len(owners)) - np.repeat(begins, times))
        filled = np.cumsum(sizes) - sizes
        return Pieces(owners, filled - filled[begins][owners], starts, sizes)


def sources(
    corpora: Sequence[Shards], weights: Sequence[int], way: Packing, block: int, progress: Callable[[str], None]
) -> tuple[Source, ...]:
    """Corpora laid out; those that no process has packed yet are packed first.

    Args:
        corpora: one split of each.
        weights: of each.
        way: how documents come into blocks.
        block: slots in a block.
        progress: told now and then what has been packed.

    Raises:
        UserError: the index of a packing could not be written.
    """
    laid_out = [_lay_out(shards, way, block, progress) for shards in corpora]
    return tuple(Source(layout, weight) for layout, weight in zip(laid_out, weights, strict=True))


def _lay_out(shards: Shards, way: Packing, block: int, progress: Callable[[str], None]) -> Layout:
    match way:
        case Packing.CONTIGUOUS:
            return Contiguous(shards, block)
        case Packing.DOCUMENTS:
            return Packed(shards, open_index(shards, block, progress))
        case Packing.PIECES:
            return Uniform(shards, block)
