"""What a run says of itself, from report to report."""

from __future__ import annotations

import math
import time
from typing import Any

from antiphon.pretrain.config import Course
from antiphon.train.loop import Progress


class Tally:
    """Sums of losses by objective since the last report."""

    def __init__(self, course: Course, seen: int) -> None:
        """Args: course: the run; seen: tokens seen so far."""
        self._course = course
        self._sums: dict[str, tuple[float, int]] = {}
        self._at, self._seen = time.monotonic(), seen

    def add(self, done: Progress) -> None:
        """Take one step in; one that was not applied has no loss."""
        if done.bad:
            return
        objective = self._objective(done)
        total, count = self._sums.get(objective, (0.0, 0))
        self._sums[objective] = (total + done.loss * done.count, count + done.count)

    def line(self, done: Progress, ledger: dict[str, int], validation: dict[str, float]) -> dict[str, Any]:
        """The report after a step, as JSON; the next one begins here.

        Args:
            done: the step.
            ledger: {"tokens_seen": ..., "words_seen": ...}.
            validation: losses by objective.
        """
        now = time.monotonic()
        line = {
            "step": done.step,
            **ledger,
            "objective": self._objective(done),
            "loss": {name: total / max(count, 1) for name, (total, count) in self._sums.items()},
            "validation": validation,
            "learning_rate": done.learning_rate,
            "gradient_norm": done.gradient_norm if math.isfinite(done.gradient_norm) else None,
            "tokens_per_second": (ledger["tokens_seen"] - self._seen) / max(now - self._at, 1e-9),
            "seconds": now - self._at,
        }
        if done.bad:
            line["not_applied"] = {"in_a_row": done.bad, "why": str(done.culprit or "not found when computed again")}
        self._sums, self._at, self._seen = {}, now, ledger["tokens_seen"]
        return line

    def place(self, done: Progress) -> dict[str, int]:
        """Where in the run a step is."""
        phase = self._course.spans.index(self._course.span(done.step - 1)) + 1
        return {"steps": self._course.steps, "phase": phase, "phases": len(self._course.spans)}

    def _objective(self, done: Progress) -> str:
        return str(self._course.span(done.step - 1).objective)
