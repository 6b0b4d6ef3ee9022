"""The held-out rows that validation losses are measured on: the same rows and masks each time. No torch here."""

from __future__ import annotations

from antiphon.data.batches import Batches
from antiphon.data.layout import Packing, sources
from antiphon.data.prepare import Prepared
from antiphon.pretrain.config import Course
from antiphon.pretrain.objective import LMBatch, Vocabulary


def held_out_batches(course: Course, prepared: Prepared) -> dict[str, list[LMBatch]]:
    """The held-out rows, asked by each objective with masks that never change; empty when nothing is held out."""
    settings = course.run.validation
    # In contiguous rows, however the training rows are packed: runs of any packing have the same held-out rows.
    split = [shards for shards in prepared.shards["validation"] if shards.tokens]
    if not split or not settings.points:
        return {}
    encoder = prepared.encoder
    block = course.run.batch.block
    corpora = sources(split, [1] * len(split), Packing.CONTIGUOUS, block, lambda note: None)
    rows = min(settings.rows, sum(corpus.layout.blocks for corpus in corpora))
    batch = Batches(corpora, block, encoder.pad, 0).take(0, rows, block)
    vocabulary = Vocabulary.of(encoder)
    held_out = {}
    for schedule in settings.objectives:
        for phase in schedule.phases:
            held_out[str(phase.objective)] = phase.objective.at(0.0)(batch, vocabulary, 0, 0)
    return held_out
