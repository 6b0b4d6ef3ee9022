"""A stretch of a run between two states, and the states on the way."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from pathlib import Path

from antiphon.config import UserError
from antiphon.machine import Machine
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

    def state(self, step: int) -> Path:
        """Where the state after a step on the way is kept."""
        return self.partial / f"step-{step:09d}"

    def states(self) -> dict[int, Path]:
        """The states on the way by their steps, newest first."""
        found = {int(folder.name.removeprefix("step-")): folder for folder in self.partial.glob("step-*")}
        return dict(sorted(found.items(), reverse=True))


def newest(segment: Segment) -> tuple[Path | None, int]:
    """The newest complete state of a segment, and its step; a damaged one is removed, and the one before is taken."""
    for leftover in segment.partial.glob(".step-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for folder in segment.states().values():
        with contextlib.suppress(UserError):
            facts = checkpoint.read_facts(folder)
            if facts["identity"] == segment.course.identity(facts["step"]):
                return folder, facts["step"]
        # Out of the way: the state that is to be saved there anew would find its place taken.
        shutil.rmtree(folder, ignore_errors=True)
    if segment.origin is None:
        return None, 0
    return segment.origin, checkpoint.read_facts(segment.origin)["step"]


def tidy(segment: Segment, machine: Machine) -> None:
    """Drop the states that the machine does not keep: to be called when the newest one is complete, not before."""
    passing = [folder for step, folder in segment.states().items() if not _stays(step, machine)]
    for folder in passing[machine.keep_last :]:
        shutil.rmtree(folder, ignore_errors=True)


def finish(segment: Segment, machine: Machine) -> None:
    """Move the states that are kept for good to the other states, by their identities, and drop the rest."""
    for step, folder in segment.states().items():
        kept = segment.target.parent / segment.course.identity(step)
        if _stays(step, machine) and not kept.exists():
            folder.rename(kept)
    shutil.rmtree(segment.partial, ignore_errors=True)


def _stays(step: int, machine: Machine) -> bool:
    return machine.keep_every > 0 and step % machine.keep_every == 0
