"""Packing: stretches of a corpus are put together into blocks, once; the index of it is read like the shards.

One pass over the documents in a bounded amount of memory. A pool of stretches waits to be placed. Each block takes them
in the order they came in while they fit, then the longest that still fits, again and again. What is then left open is
closed by cutting one that waits (see `_close`).
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from antiphon.data.shards import Shards, mapped
from antiphon.files import lock, new_directory

VERSION = 1
WAITING = 4096
CRUMB = 8
READ_AT_ONCE = 2**16
BLOCKS_AT_ONCE = 2**14

_SIZE_BITS = 24

Stretch = tuple[int, int]
"""Where it starts in the stream of tokens, and how many tokens it has."""


def documents(shards: Shards, block: int) -> Iterator[list[Stretch]]:
    """Blocks of whole documents.

    A document longer than a block gives full blocks, and what is left of it is packed like any other document. At most
    one slot in 128 of a block stays open (one slot, in a shorter block), whatever lengths the documents have, the last
    block apart: if nothing that waits fits, it is cut. (Only where all that waits has 3 tokens can a block of fewer
    than 256 slots keep 2 of them open.) A piece that is cut off has 8 tokens or more, and so has what it is cut from,
    unless all that waits is so short or so long that the room can be closed in no other way.
    """
    crumb = _crumb(block)
    pool = _Pool()
    for start, size in _documents(shards):
        while size >= block + crumb:
            yield [(start, block)]
            start, size = start + block, size - block
        if size > block:
            # A full block would leave a crumb.
            pool.add(start, block - crumb)
            start, size = start + block - crumb, size - block + crumb
        pool.add(start, size)
        while len(pool) >= WAITING:
            yield _block(pool, block)
    while len(pool):
        yield _block(pool, block)


def _documents(shards: Shards) -> Iterator[Stretch]:
    start = 0
    for first in range(0, len(shards.ends), READ_AT_ONCE):
        for end in shards.ends[first : first + READ_AT_ONCE].tolist():
            yield start, end - start
            start = end


class _Pool:
    """Stretches that wait to be placed: by length, and by how long they have waited."""

    def __init__(self) -> None:
        self._by_size: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
        # Bit n is set where a stretch of n tokens waits: the longest that fits is found by looking at one number.
        self._sizes = 0
        self._arrivals: deque[tuple[int, int]] = deque()
        self._arrived = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, start: int, size: int) -> None:
        self._by_size[size].append((self._arrived, start))
        self._arrivals.append((self._arrived, size))
        self._sizes |= 1 << size
        self._arrived += 1
        self._waiting += 1

    def take(self, size: int) -> Stretch:
        """The oldest of this length."""
        same = self._by_size[size]
        _, start = same.popleft()
        if not same:
            self._sizes ^= 1 << size
        self._waiting -= 1
        return start, size

    def oldest(self) -> int:
        """Length of the stretch that has waited longest."""
        while True:
            arrival, size = self._arrivals[0]
            same = self._by_size[size]
            # Those of one length leave in the order they came in.
            if same and same[0][0] == arrival:
                return size
            self._arrivals.popleft()

    def longest(self, room: int | None = None) -> int:
        """Length of the longest stretch, or of the longest that fits into the room; 0 if there is none."""
        sizes = self._sizes if room is None else self._sizes & ((2 << room) - 1)
        return max(sizes.bit_length() - 1, 0)


def _crumb(block: int) -> int:
    """The shortest piece that is worth a place, in tokens."""
    return min(CRUMB, block // 4)


def _block(pool: _Pool, block: int) -> list[Stretch]:
    chosen = []
    room = block
    while len(pool) and (size := pool.oldest()) <= room:
        chosen.append(pool.take(size))
        room -= size
    while size := pool.longest(room):
        chosen.append(pool.take(size))
        room -= size
    if len(pool):
        _close(pool, chosen, room, _crumb(block), max(block // 128, 1))
    return chosen


def _close(pool: _Pool, chosen: list[Stretch], room: int, crumb: int, slack: int) -> None:
    """Fill the room that no waiting stretch fits into by cutting, if it is more than the slack.

    The first of these that can be done: cut the longest that waits, so that neither part is a crumb; cut the longest in
    the block and the longest that waits, which makes room for a better part of the latter; cut the longest that waits
    so that neither part is a single token.
    """
    if room <= slack:
        return
    start, size = pool.take(pool.longest())
    taken = min(room, size - crumb)
    if taken < crumb or room - taken > slack:
        index = max(range(len(chosen)), key=lambda at: chosen[at][1])
        placed, placed_size = chosen[index]
        moved = min(placed_size, size - room) // 2
        if moved >= crumb:
            chosen[index] = (placed, placed_size - moved)
            pool.add(placed + placed_size - moved, moved)
            taken = room + moved
        else:
            taken = min(room, size - 2)
    if taken >= 2:
        chosen.append((start, taken))
        start, size = start + taken, size - taken
    pool.add(start, size)


@dataclasses.dataclass(frozen=True)
class Index:
    """A packing on disk, memory-mapped: 8 bytes a block and 8 a piece.

    Attributes:
        folder: where it lies.
    """

    folder: Path

    @cached_property
    def ends(self) -> np.ndarray:
        """(blocks,) uint64: where the pieces of each block end in the list of all pieces."""
        return mapped(self.folder / "ends.bin", np.dtype(np.uint64))

    @cached_property
    def _pieces(self) -> np.ndarray:
        return mapped(self.folder / "pieces.bin", np.dtype(np.uint64))

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where pieces start in the stream of tokens, and their sizes; (P,) int64 each."""
        found = self._pieces[numbers]
        starts, sizes = found >> np.uint64(_SIZE_BITS), found & np.uint64(2**_SIZE_BITS - 1)
        return starts.astype(np.int64), sizes.astype(np.int64)


def open_index(shards: Shards, block: int, progress: Callable[[str], None]) -> Index:
    """The index of a packing, made first if it is not there. Whole or not there at all; two processes make it once.

    Args:
        shards: the corpus.
        block: slots in a block.
        progress: told now and then what has been packed.

    Raises:
        UserError: the disk is full or not writable.
    """
    folder = shards.folder / "packing" / f"documents-{block}-{VERSION}"
    if not folder.is_dir():
        with lock(folder.with_suffix(".lock"), True, "another process that packs"):
            if not folder.is_dir():
                with new_directory(folder) as work:
                    _write(work, documents(shards, block), shards.tokens, progress)
    return Index(folder)


def _write(folder: Path, blocks: Iterator[list[Stretch]], tokens: int, progress: Callable[[str], None]) -> None:
    written = placed = 0
    with open(folder / "pieces.bin", "wb") as numbers_file, open(folder / "ends.bin", "wb") as ends_file:
        while group := list(islice(blocks, BLOCKS_AT_ONCE)):
            numbers = [start << _SIZE_BITS | size for block in group for start, size in block]
            np.array(numbers, dtype=np.uint64).tofile(numbers_file)
            ends = np.cumsum([len(block) for block in group]) + written
            ends.astype(np.uint64).tofile(ends_file)
            written += len(numbers)
            placed += sum(size for block in group for _, size in block)
            progress(f"packing: {placed / tokens:.0%} of the tokens")
