"""Schedules: which objective rules when, and their one-line notation.

mlm(0.4)                                              one objective
25% clm > 75% mlm(0.4)                                biphasic
6 epochs clm > 60 epochs mlm(0.15) > 6 epochs clm     AntLM
(1 clm > 4 mlm(0.15)) x 8                             many cycles; bare numbers are shares of the whole
mix(clm: 1, mntp(0.3 -> 0.15): 15)                    a ratio at every batch, mask ratio ramping down
"""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from antiphon.pretrain.amount import Amount, Sizes, Unit
from antiphon.pretrain.objective import Objective


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

    def spans(self, budget: Amount | None, sizes: Sizes) -> list[Span]:
        """The phases in whole steps.

        Borders are rounded, not lengths, so rounding never adds up; equal schedules give equal borders.

        Args:
            budget: the whole, for a schedule of shares or percentages; None for one that fixes its own total.
            sizes: what turns amounts into steps.

        Raises:
            ValueError: the budget is missing or superfluous, or a phase is shorter than one step.
        """
        phases = self.phases
        if self.absolute:
            if budget is not None:
                raise ValueError(f"budget {budget} and schedule '{self}' both fix the length; leave the budget out")
            lengths = [phase.amount.steps(sizes) for phase in phases if phase.amount is not None]
        else:
            if budget is None:
                raise ValueError(f"schedule '{self}' divides a whole: give a budget such as '400k tokens'")
            shares = [1.0 if phase.amount is None else phase.amount.value for phase in phases]
            total = float(max(round(budget.steps(sizes)), 1))
            lengths = [total * share / sum(shares) for share in shares]
        spans, start, exact = [], 0, 0.0
        for phase, length in zip(phases, lengths, strict=True):
            exact += length
            stop = round(exact)
            if stop == start:
                raise ValueError(f"phase '{phase}' of '{self}' is {length:.2g} steps long; it needs at least one step")
            spans.append(Span(start, stop, phase.objective))
            start = stop
        return spans

    def __str__(self) -> str:
        return " > ".join(map(str, self.items))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="json")
        )


def check(schedule: Schedule) -> None:
    """Refuse lengths that do not go together.

    Raises:
        ValueError: percentages that are not 100 together, kinds of amounts mixed, or a phase without an amount.
    """
    phases = schedule.phases
    amounts = [phase.amount for phase in phases if phase.amount is not None]
    if len(amounts) < len(phases):
        if len(phases) > 1:
            bare = next(phase for phase in phases if phase.amount is None)
            raise ValueError(f"phase '{bare}' needs a length, such as '25% {bare}' or '1 {bare}'")
        return
    kinds = {"absolute" if amount.absolute else amount.unit.name.lower() for amount in amounts}
    if len(kinds) > 1:
        raise ValueError(
            "lengths of different kinds: use percentages throughout, or shares, or steps/tokens/words/epochs"
        )
    total = sum(amount.value for amount in amounts)
    if amounts[0].unit is Unit.PERCENT and abs(total - 100) > 1e-6:
        raise ValueError(f"the percentages add up to {total:g}, not to 100")


def _written_out(items: tuple[Phase | Cycle, ...]) -> list[Phase]:
    phases: list[Phase] = []
    for item in items:
        phases += [item] if isinstance(item, Phase) else _written_out(item.items) * item.times
    return phases
