"""Amounts of training: `25%`, `400k tokens`, `6 epochs`, `2000 steps`, or a bare number of shares."""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import Any

import numpy as np
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from antiphon.config import nearest


class Unit(enum.Enum):
    """What an amount is counted in. SHARE is relative to the other phases; PERCENT to the whole."""

    SHARE = ""
    PERCENT = "%"
    STEPS = "steps"
    TOKENS = "tokens"
    WORDS = "words"
    EPOCHS = "epochs"


SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9}
PATTERN = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)(?P<scale>[kMB]?)(?![A-Za-z0-9.])\s*(?P<unit>%|(?:steps?|tokens?|words?|epochs?)\b)?"
)


def plain(number: float) -> str:
    """The shortest digits that read back as exactly this number, without an exponent."""
    return np.format_float_positional(number, trim="-")


@dataclasses.dataclass(frozen=True)
class Amount:
    """A positive number and its unit."""

    value: float
    unit: Unit

    @classmethod
    def parse(cls, text: Any) -> Amount:
        """Read an amount such as "400k tokens".

        Raises:
            ValueError: it does not read as a positive number with a known unit.
        """
        if isinstance(text, Amount):
            return text
        match = PATTERN.fullmatch(str(text).strip())
        if match is None:
            words = re.findall(r"[A-Za-z%]+", str(text))
            hint = nearest(words[-1], [unit.value for unit in Unit if unit.value]) if words else "add a unit"
            raise ValueError(f"{str(text)!r} is not an amount such as '400k tokens', '200 steps' or '5%'; {hint}")
        return cls.of(match)

    @classmethod
    def of(cls, match: re.Match[str]) -> Amount:
        """The amount a match of PATTERN stands for."""
        value = float(match["number"]) * SCALES[match["scale"]]
        if value <= 0:
            raise ValueError(f"{match[0]!r} must be more than zero")
        unit = (match["unit"] or "").rstrip("s")
        return cls(value, Unit(unit + "s" if unit not in ("", "%") else unit))

    @property
    def absolute(self) -> bool:
        """Whether it stands for itself, without a whole to be a part of."""
        return self.unit not in (Unit.SHARE, Unit.PERCENT)

    def __str__(self) -> str:
        number = plain(self.value)
        for scale, size in SCALES.items():
            # The largest scale whose number reads back as exactly this value.
            scaled = plain(self.value / size)
            if self.value >= size and float(scaled) * size == self.value:
                number = f"{scaled}{scale}"
        if self.unit is Unit.PERCENT or self.unit is Unit.SHARE:
            return f"{number}{self.unit.value}"
        return f"{number} {self.unit.value.removesuffix('s') if self.value == 1 else self.unit.value}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="json")
        )
