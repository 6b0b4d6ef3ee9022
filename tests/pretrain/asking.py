"""Rows to ask, a vocabulary to ask them with, and the objectives that every rule is held against."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from antiphon.data.batches import PADDING, TokenBatch
from antiphon.data.words import Words
from antiphon.pretrain.objective import IGNORE, LMBatch, Objective, Vocabulary
from antiphon.pretrain.schedule import Schedule
from tests import tiny

SPECIALS = (0, 1, 2, 3)
# Every third token begins a word; after token 99 one begins in any case.
WORDS = Words(np.arange(100) % 3 == 0, np.arange(100) == 99)
VOCABULARY = Vocabulary.of(cast(Any, SimpleNamespace(size=100, mask=3, specials=SPECIALS, words=WORDS)))

EVERY = [
    "clm",
    "mlm(0.4)",
    "mlm(0.4, 80/10/10)",
    "mlm(0.3, spans 1-3)",
    "mlm(0.3, spans 5-5, 80/10/10)",
    "mlm(0.15, spans ~3)",
    "mlm(0.15, spans ~5 up to 10, 80/10/10)",
    "mlm(0.15, whole words)",
    "mlm(0.3, whole words, 80/10/10)",
    "mlm(0.6 -> 0.2)",
    "mntp(0.4)",
    "mntp(0.3, spans 1-3, 80/10/10)",
    "mntp(0.6 -> 0.2, whole words)",
    "prefix(0.5)",
    "prefix(0.75)",
    "prefix(0.6 -> 0.2)",
    "cmlm",
]
"""Each objective in its forms, mixtures aside. A new objective goes here, and all general rules are held against it."""

MIXTURES = ["mix(clm: 1, mlm(0.4): 2)", "mix(clm: 1, prefix(0.5): 2, mntp(0.3, spans 1-3): 1) per batch"]
"""Mixtures of them, of the rows of a batch and of whole batches."""

IN_PLACE = ("mlm", "cmlm")
"""Those whose token t is answered at t; in the others it is answered at t - 1."""


def objective(notation: str, progress: float = 0.0) -> Objective:
    """An objective at a point of its phase."""
    return Schedule.parse(notation).phases[0].objective.at(progress)


def moved(notation: str) -> bool:
    """Whether token t + 1 is answered at t."""
    return notation.partition("(")[0] not in IN_PLACE


def packed(rows: int = 64, length: int = 64) -> TokenBatch:
    """Rows of two or three documents, [BOS] = 1 and [EOS] = 2 around each, and padding behind."""
    batch = tiny.token_batch([[20, 25, 10] if row % 2 else [40, 23] for row in range(rows)], length)
    tokens = batch.tokens.copy()
    tokens[(batch.positions == 0) & (batch.documents != PADDING)] = 1
    tokens[:, :-1][(batch.documents[:, :-1] != batch.documents[:, 1:]) & (batch.documents[:, :-1] != PADDING)] = 2
    return dataclasses.replace(batch, tokens=tokens)


def askable(batch: TokenBatch) -> np.ndarray:
    """(B, T) bool: neither special nor padding."""
    return ~np.isin(batch.tokens, SPECIALS) & (batch.documents != PADDING)


def answered(batch: TokenBatch, part: LMBatch, moved: bool) -> np.ndarray:
    """(B, T) bool: the tokens that are asked for, at their own places.

    Args:
        batch: what the objective was given.
        part: how it asks all rows of it.
        moved: whether token t + 1 is answered at t.
    """
    asking = part.labels != IGNORE
    if not moved:
        return asking
    assert not asking[:, -1].any()
    return np.concatenate([np.zeros((len(asking), 1), dtype=bool), asking[:, :-1]], axis=1)
