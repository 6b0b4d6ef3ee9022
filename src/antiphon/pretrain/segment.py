"""A stretch of a run between two states, and the newest of the states on the way."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from pathlib import Path

from antiphon.config import UserError
from antiphon.pretrain.config import Course
from antiphon.train import checkpoint


@dataclasses.dataclass(frozen=True)
class Segment:
    """A stretch of a run between two states.

    Attributes:
        course: the run.
        start, stop: steps; 0 starts from fresh weights.
        origin: the checkpoint of the state after `start` steps; None at step 0.
        target: where the checkpoint of the state after `stop` steps goes.
        partial: where states in between are kept until the target is there.
        log: the segment's reports.
    """

    course: Course
    start: int
    stop: int
    origin: Path | None
    target: Path
    partial: Path
    log: Path


def newest(segment: Segment) -> tuple[Path | None, int]:
    """The newest complete state of a segment, and its step; a damaged one is removed, and the one before is taken."""
    for folder in sorted(segment.partial.glob("step-*"), reverse=True):
        with contextlib.suppress(UserError):
            facts = checkpoint.read_facts(folder)
            if facts["identity"] == segment.course.identity(facts["step"]):
                return folder, facts["step"]
        # Out of the way: the state that is to be saved there anew would find its place taken.
        shutil.rmtree(folder, ignore_errors=True)
    if segment.origin is None:
        return None, 0
    return segment.origin, checkpoint.read_facts(segment.origin)["step"]


def keep_newest(partial: Path) -> None:
    """Drop all but the two newest states: one may be damaged by a machine that lost its power while writing."""
    for folder in sorted(partial.glob("step-*"))[:-2]:
        shutil.rmtree(folder, ignore_errors=True)
