"""Schedules: which objective rules when, and their one-line notation.

mlm(0.4)                                              one objective
25% clm > 75% mlm(0.4)                                biphasic
6 epochs clm > 60 epochs mlm(0.15) > 6 epochs clm     AntLM
(1 clm > 4 mlm(0.15)) x 8                             many cycles; bare numbers are shares of the whole
mix(clm: 1, mntp(0.3 -> 0.15): 15)                    a ratio at every batch, mask ratio ramping down
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from antiphon.pretrain.amount import Amount
from antiphon.pretrain.objective import Objective
from antiphon.pretrain.pace import Pacing


@dataclasses.dataclass(frozen=True)
class Phase:
    """One objective for a while; without an amount it fills the whole."""

    amount: Amount | None
    objective: Objective

    def __str__(self) -> str:
        return str(self.objective) if self.amount is None else f"{self.amount} {self.objective}"


@dataclasses.dataclass(frozen=True)
class Cycle:
    """Phases that come round `times` times."""

    items: tuple[Phase | Cycle, ...]
    times: int

    def __str__(self) -> str:
        return f"({' > '.join(map(str, self.items))}) x {self.times}"


@dataclasses.dataclass(frozen=True)
class Span:
    """A phase in steps: it rules steps start .. stop-1."""

    start: int
    stop: int
    objective: Objective

    def at(self, step: int) -> Objective:
        """The objective at one step, its ramps resolved."""
        return self.objective.at((step - self.start) / (self.stop - self.start))


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A list of phases and cycles. str() gives the canonical notation, which parses to an equal schedule."""

    items: tuple[Phase | Cycle, ...]

    @classmethod
    def parse(cls, text: Any) -> Schedule:
        """Read the notation.

        Raises:
            ValueError: with the text and a mark under the character where it goes wrong.
        """
        from antiphon.pretrain.notation import parse

        return text if isinstance(text, Schedule) else parse(str(text))

    @property
    def phases(self) -> list[Phase]:
        """The phases in order, cycles written out."""
        return _written_out(self.items)

    @property
    def absolute(self) -> bool:
        """Whether the phases fix their own total; otherwise they are shares of a budget."""
        amount = self.phases[0].amount
        return amount is not None and amount.absolute

    def spans(self, budget: Amount | None, pacing: Pacing) -> list[Span]:
        """The phases in whole steps.

        Borders are rounded, not lengths, so rounding never adds up; equal schedules give equal borders.

        Args:
            budget: the whole, for a schedule of shares or percentages (of its steps); None for one that fixes its own
                total.
            pacing: what turns amounts into steps.

        Raises:
            ValueError: the budget is missing or superfluous, or a phase is shorter than one step.
        """
        phases = self.phases
        if self.absolute:
            if budget is not None:
                raise ValueError(f"budget {budget} and schedule '{self}' both fix the length; leave the budget out")
            borders = _absolute([phase.amount for phase in phases if phase.amount is not None], pacing)
        else:
            if budget is None:
                raise ValueError(f"schedule '{self}' divides a whole: give a budget such as '400k tokens'")
            shares = [1.0 if phase.amount is None else phase.amount.value for phase in phases]
            total = float(pacing.steps([budget]))
            borders = list(itertools.accumulate(total * share / sum(shares) for share in shares))
        spans, start, before = [], 0, 0.0
        for phase, exact in zip(phases, borders, strict=True):
            stop = round(exact)
            if stop == start:
                length = exact - before
                raise ValueError(f"phase '{phase}' of '{self}' is {length:.2g} steps long; it needs at least one step")
            spans.append(Span(start, stop, phase.objective))
            start, before = stop, exact
        return spans

    def __str__(self) -> str:
        return " > ".join(map(str, self.items))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="json")
        )


def _absolute(amounts: list[Amount], pacing: Pacing) -> list[float]:
    """The step, not rounded, at which each of these amounts ends."""
    steps = pacing.steps(amounts)
    pace, place, borders = pacing.over(steps), 0.0, []
    for amount in amounts:
        place = pace.after(place, amount)
        borders.append(place)
    # Where the batch changes, the pace of exactly so many steps may end a little elsewhere.
    return [*borders[:-1], float(steps)] if pacing.changes else borders


class LengthError(ValueError):
    """Lengths that do not go together, and the phase where that shows."""

    def __init__(self, message: str, phase: Phase) -> None:
        super().__init__(message)
        self.phase = phase


def check(schedule: Schedule) -> None:
    """Refuse lengths that do not go together.

    Raises:
        LengthError: percentages that are not 100 together, kinds of amounts mixed, or a phase without an amount.
    """
    phases = schedule.phases
    bare = next((phase for phase in phases if phase.amount is None), None)
    if bare is not None:
        if len(phases) > 1:
            raise LengthError(f"phase '{bare}' needs a length, such as '25% {bare}' or '1 {bare}'", bare)
        return
    for phase in phases:
        if _kind(phase) != _kind(phases[0]):
            raise LengthError(
                "lengths of different kinds: use percentages throughout, or shares, or steps/tokens/words/epochs", phase
            )
    if _kind(phases[0]) == "percent":
        sums = np.cumsum([phase.amount.value for phase in phases if phase.amount is not None])
        if abs(sums[-1] - 100) > 1e-6:
            beyond = int(np.argmax(sums > 100)) if sums[-1] > 100 else -1
            raise LengthError(f"the percentages add up to {sums[-1]:g}, not to 100", phases[beyond])


def _kind(phase: Phase) -> str:
    if phase.amount is None or phase.amount.absolute:
        return "absolute"
    return phase.amount.unit.name.lower()


def _written_out(items: tuple[Phase | Cycle, ...]) -> list[Phase]:
    phases: list[Phase] = []
    for item in items:
        phases += [item] if isinstance(item, Phase) else _written_out(item.items) * item.times
    return phases
