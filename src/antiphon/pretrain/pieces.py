"""A batch divided among ranks and into micro-batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from antiphon.machine import Machine
from antiphon.pretrain.objective import IGNORE, LMBatch
from antiphon.train.parallel import Parallel


@dataclasses.dataclass(frozen=True)
class Piece:
    """One micro-batch.

    Attributes:
        batch: what is computed.
        rows: which rows of the whole batch these are, in words; of a mixture, which rows of which of its parts.
    """

    batch: LMBatch
    rows: str

    @property
    def count(self) -> int:
        """Number of labels that ask."""
        return self.batch.count


def pieces(parts: Sequence[LMBatch], machine: Machine, ranks: Parallel) -> list[Piece]:
    """A rank's micro-batches: its share of the rows of each part, in pieces of what the machine computes at once.

    Every rank gets as many, since ranks compute in step: one that has fewer gets a row that asks nothing.
    """
    every = [
        [
            (number, first, min(first + size, share.stop))
            for number, part in enumerate(parts)
            for share in [dataclasses.replace(ranks, rank=rank).share(len(part.inputs))]
            for size in [machine.rows(part.inputs.shape[1]) or len(part.inputs)]
            for first in range(share.start, share.stop, size)
        ]
        for rank in range(ranks.world)
    ]
    mine = [
        Piece(parts[number].rows(slice(first, stop)), _rows(first, stop, number, len(parts)))
        for number, first, stop in every[ranks.rank]
    ]
    return mine + [_silent(parts[0])] * (max(map(len, every)) - len(mine))


def _rows(first: int, stop: int, number: int, parts: int) -> str:
    return f"rows {first} to {stop - 1}" + (f" of part {number + 1} of {parts}" if parts > 1 else "")


def _silent(part: LMBatch) -> Piece:
    row = part.rows(slice(0, 1))
    return Piece(dataclasses.replace(row, labels=np.full_like(row.labels, IGNORE)), "no row")
