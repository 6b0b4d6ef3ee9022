"""Several objectives at an exact ratio, of rows or of whole batches."""

from __future__ import annotations

import dataclasses
import enum
from typing import ClassVar

import numpy as np

from antiphon.data.batches import TokenBatch
from antiphon.pretrain.objective import LMBatch, Objective, Vocabulary
from antiphon.pretrain.reader import Reader


class Per(enum.Enum):
    """What belongs to one objective as a whole."""

    ROW = "row"
    BATCH = "batch"


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Several objectives at an exact ratio, on one process as on many.

    Per row, the objectives share every batch: of any W consecutive rows of the run, W the sum of the weights, each
    objective gets exactly its weight, also where the number of rows in a batch changes. Per batch, each step belongs to
    one objective: of any W consecutive steps each gets exactly its weight.

    Source: GPT-BERT (Charpentier and Samuel 2024, arXiv 2410.24159) mixes by GPU rank; here the rows are divided.
    """

    parts: tuple[tuple[Objective, int], ...]
    per: Per = Per.ROW
    name: ClassVar[str] = "mix"

    @property
    def asked_share(self) -> float:
        weights = [weight for _, weight in self.parts]
        return sum(objective.asked_share * weight for objective, weight in self.parts) / sum(weights)

    @classmethod
    def read(cls, reader: Reader) -> Mixture:
        reader.need("(", f"after {cls.name!r}")
        parts = []
        while not parts or reader.take(","):
            start = reader.place
            objective = reader.objective()
            if isinstance(objective, cls):
                reader.fail("a mix of mixes: give every objective its weight in one mix", start)
            reader.need(":", "and a weight after each objective of a mix, as in mix(clm: 1, mlm(0.15): 15)")
            parts.append((objective, reader.whole("a weight")))
        reader.need(")", "after the parts of a mix")
        per = Per.ROW
        if reader.take_word("per"):
            per = Per(reader.word([each.value for each in Per], "'row' or 'batch' after 'per'"))
        return cls(tuple(parts), per)

    def at(self, progress: float) -> Mixture:
        return Mixture(tuple((objective.at(progress), weight) for objective, weight in self.parts), self.per)

    def __call__(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> list[LMBatch]:
        rows = len(batch.tokens)
        if self.per is Per.BATCH:
            (owner,) = self._owners(np.array([step]))
            return self.parts[owner][0](batch, vocabulary, seed, step)
        owners = self._owners(np.arange(batch.first_row, batch.first_row + rows))
        batches = []
        for number, (objective, _) in enumerate(self.parts):
            chosen = np.flatnonzero(owners == number)
            if len(chosen):
                batches += [part.rows(chosen) for part in objective(batch, vocabulary, seed, step)]
        return batches

    def _owners(self, numbers: np.ndarray) -> np.ndarray:
        """(N,) which part the rows or steps of these numbers belong to."""
        weights = np.cumsum([0, *(weight for _, weight in self.parts)])
        # Number n has the slot n * stride modulo the total weight: a walk through all slots, as the stride is coprime
        # to the total, that spreads what belongs to one objective out.
        total = int(weights[-1])
        return np.searchsorted(weights, (numbers * _stride(total)) % total, side="right") - 1

    def __str__(self) -> str:
        parts = ", ".join(f"{objective}: {weight}" for objective, weight in self.parts)
        return f"{self.name}({parts})" if self.per is Per.ROW else f"{self.name}({parts}) per {self.per.value}"


def _stride(total: int) -> int:
    """A number coprime to `total` near total / 1.618, which spreads consecutive numbers evenly over the shares."""
    stride = max(1, round(total * 0.618))
    while np.gcd(stride, total) != 1:
        stride += 1
    return stride
