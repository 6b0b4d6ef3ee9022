"""The held-out rows that validation losses are measured on: the same rows and masks each time. No torch here."""

from __future__ import annotations

import dataclasses

from antiphon.data.batches import Batches
from antiphon.data.prepare import Prepared
from antiphon.pretrain.config import Course
from antiphon.pretrain.objective import LMBatch, Vocabulary


def held_out_batches(course: Course, prepared: Prepared) -> dict[str, list[LMBatch]]:
    """The held-out rows, asked by each objective with masks that never change; empty when nothing is held out."""
    settings = course.run.validation
    shards = prepared.shards["validation"]
    if not shards.tokens or not settings.points:
        return {}
    encoder = prepared.encoder
    every = Batches(shards, settings.rows, course.run.batch.block, encoder.pad, 0)
    rows = min(settings.rows, every.rows_an_epoch)
    batch = dataclasses.replace(every, rows=rows)(0)
    vocabulary = Vocabulary(encoder.size, encoder.mask, encoder.specials)
    held_out = {}
    for schedule in settings.objectives:
        for phase in schedule.phases:
            held_out[str(phase.objective)] = phase.objective.at(0.0)(batch, vocabulary, 0, 0)
    return held_out
