"""The kinds of schedules, each a run of a few steps on a text so short that it is shown several times."""

from __future__ import annotations

import dataclasses
from typing import Any

from antiphon.data.prepare import Prepared
from antiphon.pretrain.config import Course
from tests import tiny


@dataclasses.dataclass(frozen=True)
class Kind:
    """A way to say what rules when.

    Attributes:
        schedule: its notation, with {a} and {b} for the objectives.
        turns: which of them rules each step.
        budget: the whole that a schedule of shares divides.
        changes: values in place of the tiny ones, each a whole section.
    """

    schedule: str
    turns: str
    budget: str | None = None
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)


RESTART = {"at_switch": "restart"}
RATE = {"peak": 3e-3, "warmup": "1 steps", "decay": "1 steps"}

KINDS = {
    "one objective": Kind("{a}", "aaaaa", "5 steps"),
    "percent": Kind("40% {a} > 60% {b}", "aabbb", "5 steps"),
    "cycles": Kind("(1 {a} > 1 {b}) x 3", "ababab", "6 steps"),
    "cycles of cycles": Kind("((1 step {a} > 1 step {b}) x 2 > 1 step {b}) x 1 > 1 step {a}", "ababba"),
    "steps, with restarts": Kind(
        "2 steps {a} > 3 steps {b}", "aabbb", None, {"optimizer": RESTART, "learning_rate": {**RATE, **RESTART}}
    ),
    "tokens": Kind("230 tokens {a} > 345 tokens {b}", "aabbb"),
    "words": Kind("75 words {a} > 112 words {b}", "aabbb"),
    "epochs": Kind("1 epoch {a} > 1.2 epochs {b}", "aabbb"),
    "rows of other lengths": Kind(
        "50% {a} > 50% {b}",
        "aaabbb",
        "6 steps",
        {"batch": {"rows": 4, "length": "2 steps 16 > 2 steps 32 > 24", "packing": "pieces"}},
    ),
    "batches of other sizes": Kind(
        "256 tokens {a} > 384 tokens {b}",
        "aaabbb",
        None,
        {"batch": {"rows": "60% 2 -> 5 > 4", "length": 32, "packing": "documents"}},
    ),
}


def course(kind: Kind, prepared: Prepared, one: str, other: str) -> Course:
    """A run of a kind whose phases have these objectives."""
    changes = {"learning_rate": RATE, "validation": {"points": 0}, **kind.changes}
    return tiny.course(tiny.pretrain(kind.schedule.format(a=one, b=other), kind.budget, changes), prepared)
