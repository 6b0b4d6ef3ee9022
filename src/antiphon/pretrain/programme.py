"""A whole number that changes over a run: rows in a batch, tokens in a row.

32                            the same throughout
20% 8 -> 32 > 32              rising over the first fifth, then 32
70% 128 > 20% 256 > 10% 512   in jumps
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from antiphon.pretrain.amount import PATTERN, Amount, Unit

VALUES = re.compile(r"(?P<start>\d+)(?:\s*->\s*(?P<stop>\d+))?")


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A value for a while, or a straight line from one to another; without an amount it lasts to the end."""

    amount: Amount | None
    start: int
    stop: int

    def __str__(self) -> str:
        value = str(self.start) if self.start == self.stop else f"{self.start} -> {self.stop}"
        return value if self.amount is None else f"{self.amount} {value}"


@dataclasses.dataclass(frozen=True)
class Programme:
    """Stretches in order. str() gives the canonical notation, which parses to an equal programme."""

    stretches: tuple[Stretch, ...]

    @classmethod
    def parse(cls, text: Any) -> Programme:
        """Read a whole number or the notation above.

        Raises:
            ValueError: what was expected, with the part where it goes wrong.
        """
        if isinstance(text, Programme):
            return text
        parts = str(text).split(">")
        # "8 -> 32" has the mark that parts stretches in it: put such halves together again.
        joined: list[str] = []
        for part in parts:
            if joined and joined[-1].endswith("-"):
                joined[-1] += ">" + part
            else:
                joined.append(part)
        stretches = tuple(_stretch(part.strip(), str(text)) for part in joined)
        _check(stretches, str(text))
        return cls(stretches)

    @property
    def constant(self) -> bool:
        """Whether the value never changes."""
        return len(self.values) == 1

    @property
    def values(self) -> set[int]:
        """The ends of all stretches."""
        return {value for stretch in self.stretches for value in (stretch.start, stretch.stop)}

    @property
    def jumps(self) -> bool:
        """Whether no stretch is a slope."""
        return all(stretch.start == stretch.stop for stretch in self.stretches)

    def at(self, steps: int) -> np.ndarray:
        """(steps,) int64: the value of every step of a run of so many steps."""
        found = np.full(steps, self.stretches[-1].stop, dtype=np.int64)
        start = 0
        exact = 0.0
        for stretch in self.stretches:
            amount = stretch.amount
            if amount is None:
                exact = float(steps)
            else:
                exact += amount.value * (steps / 100 if amount.unit is Unit.PERCENT else 1)
            stop = min(round(exact), steps)
            if stop > start:
                slope = np.arange(stop - start) / (round(exact) - start)
                found[start:stop] = np.rint(stretch.start + (stretch.stop - stretch.start) * slope)
                start = stop
        return found

    def __str__(self) -> str:
        return " > ".join(map(str, self.stretches))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(_plain, when_used="json")
        )


def _plain(programme: Programme) -> int | str:
    # A number that never changes stays a number in files.
    return programme.stretches[0].start if programme.constant else str(programme)


def _stretch(text: str, whole: str) -> Stretch:
    amount = None
    match = VALUES.fullmatch(text)
    if match is None:
        length = PATTERN.match(text)
        match = VALUES.fullmatch(text[length.end() :].strip()) if length else None
        if length is None or match is None:
            raise ValueError(f"{text!r} in {whole!r} is not a stretch such as '32', '20% 8 -> 32' or '500 steps 16'")
        amount = Amount.of(length)
        if amount.unit not in (Unit.PERCENT, Unit.STEPS):
            raise ValueError(
                f"{text!r} in {whole!r}: give the length of a stretch in percent or in steps, not {amount}"
            )
    start, stop = int(match["start"]), int(match["stop"] or match["start"])
    if min(start, stop) < 1:
        raise ValueError(f"{text!r} in {whole!r}: values are at least 1")
    return Stretch(amount, start, stop)


def _check(stretches: tuple[Stretch, ...], whole: str) -> None:
    for stretch in stretches[:-1]:
        if stretch.amount is None:
            raise ValueError(f"'{stretch}' in {whole!r} has no length; only the last stretch may go on to the end")
    lengths = [stretch.amount for stretch in stretches if stretch.amount is not None]
    percent = sum(amount.value for amount in lengths if amount.unit is Unit.PERCENT)
    open_end = stretches[-1].amount is None
    if percent > 100 + 1e-6 or (not open_end and abs(percent - 100) > 1e-6):
        raise ValueError(
            f"the percentages of {whole!r} add up to {percent:g}; let them come to 100, "
            "or give the last stretch no length"
        )
