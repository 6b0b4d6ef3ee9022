"""The only reader of the test split: choose on validation, then look."""

from __future__ import annotations

import dataclasses

from antiphon.results.table import Score


@dataclasses.dataclass(frozen=True)
class Observation:
    """A score with its place in a study.

    Attributes:
        arm: the name of what is compared ("mlm", "biphasic"); the study's axis value.
        pretraining_seed: seed of the pretraining run.
        reading: which checkpoint of the run: a label such as "20%" or "100%".
        tokens: tokens seen in pretraining at that checkpoint.
        score: the row itself.
    """

    arm: str
    pretraining_seed: int
    reading: str
    tokens: int
    score: Score
