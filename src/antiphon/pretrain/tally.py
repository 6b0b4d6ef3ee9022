"""What a run says of itself, from report to report."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from antiphon.data.batches import TokenBatch
from antiphon.model.presets import training_flops
from antiphon.pretrain.config import Course
from antiphon.train.loop import Progress


class Tally:
    """The ledger of a run, and what has come together since its last report.

    Attributes:
        ledger: {"tokens_seen": ..., "words_seen": ...} since the beginning of the run, counted in the batches.
    """

    def __init__(self, course: Course, saved: Mapping[str, Any], vocabulary: int, peak: float | None) -> None:
        """Begin.

        Args:
            course: the run.
            saved: what `facts` gave where the run has come to; empty at its beginning.
            vocabulary: V.
            peak: floating-point operations a second that all devices together could do; None if that is not known.
        """
        self._course, self._vocabulary, self._peak = course, vocabulary, peak
        self.ledger: dict[str, int] = {name: saved.get(name, 0) for name in ("tokens_seen", "words_seen")}
        self._begin()
        # Else the first report of a resumed run would be the mean of fewer steps than that of an undisturbed one.
        self._sums = {name: (total, count) for name, (total, count) in saved.get("unreported", {}).items()}

    def facts(self) -> dict[str, Any]:
        """What a checkpoint keeps of it, as JSON: the ledger, and sums and counts of losses not reported yet."""
        return {**self.ledger, "unreported": dict(self._sums)}

    def _begin(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}
        self._parts: dict[str, float] = {}
        self._flops = 0.0
        self._at, self._seen = time.monotonic(), self.ledger["tokens_seen"]

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Count the seconds of a block under a name; those of no block are the training's."""
        began = time.monotonic()
        yield
        self._parts[part] = self._parts.get(part, 0.0) + time.monotonic() - began

    def show(self, batch: TokenBatch) -> None:
        """Enter a batch that is shown into the ledger."""
        self.ledger["tokens_seen"] += batch.count
        self.ledger["words_seen"] += batch.words

    def add(self, done: Progress) -> None:
        """Take one step in; one that was not applied has no loss."""
        step = done.step - 1
        tokens = self._course.tokens(done.step) - self._course.tokens(step)
        length = self._course.length(step)
        self._flops += training_flops(self._course.run.model, self._vocabulary, tokens, done.count, length / 2)
        if done.bad:
            return
        objective = self._objective(done)
        total, count = self._sums.get(objective, (0.0, 0))
        self._sums[objective] = (total + done.loss * done.count, count + done.count)

    def line(self, done: Progress, validation: dict[str, float]) -> dict[str, Any]:
        """The report after a step, as JSON; the next one begins here.

        "mfu" is the share of the peak that the training's own time came to (validation and saving left out), with as
        many keys a query as a causal row has.

        Args:
            done: the step.
            validation: losses by objective.
        """
        seconds = max(time.monotonic() - self._at, 1e-9)
        training = max(seconds - sum(self._parts.values()), 1e-9)
        at_work = training + self._parts.get("reading", 0.0)
        line = {
            "step": done.step,
            **self.ledger,
            "objective": self._objective(done),
            "loss": {name: total / max(count, 1) for name, (total, count) in self._sums.items()},
            "validation": validation,
            "learning_rate": done.learning_rate,
            "gradient_norm": done.gradient_norm if math.isfinite(done.gradient_norm) else None,
            "tokens_per_second": (self.ledger["tokens_seen"] - self._seen) / seconds,
            "mfu": None if self._peak is None else self._flops / at_work / self._peak,
            "seconds": seconds,
            "seconds_by_part": {"training": training, **self._parts},
        }
        if done.bad:
            line["not_applied"] = {"in_a_row": done.bad, "why": str(done.culprit or "not found when computed again")}
        self._begin()
        return line

    def place(self, done: Progress) -> dict[str, int]:
        """Where in the run a step is."""
        phase = self._course.spans.index(self._course.span(done.step - 1)) + 1
        return {"steps": self._course.steps, "phase": phase, "phases": len(self._course.spans)}

    def _objective(self, done: Progress) -> str:
        return str(self._course.span(done.step - 1).objective)
