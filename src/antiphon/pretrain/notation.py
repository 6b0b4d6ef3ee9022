"""The parser of the schedule notation. Errors point at the character."""

from __future__ import annotations

import re
from typing import NoReturn

from antiphon.config import nearest
from antiphon.pretrain import amount as amounts
from antiphon.pretrain.amount import Amount
from antiphon.pretrain.objective import CLM, MLM, MNTP, Fate, Mixture, Objective, Ratio
from antiphon.pretrain.schedule import Cycle, LengthError, Phase, Schedule, check

OBJECTIVES = ["clm", "mlm", "mntp", "mix"]
NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")
NAME = re.compile(r"[A-Za-z_]\w*")


def parse(text: str) -> Schedule:
    """A schedule from its notation.

    Raises:
        ValueError: what was expected, with the text and a mark under the place.
    """
    reader = _Reader(text)
    schedule = Schedule(reader.items())
    if reader.place < len(text):
        reader.fail("expected '>' or the end")
    try:
        check(schedule)
    except LengthError as error:
        reader.fail(str(error), next(place for phase, place in reader.phases if phase is error.phase))
    return schedule


class _Reader:
    """A recursive-descent reader; `place` is the next character that is not a blank."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.phases: list[tuple[Phase, int]] = []
        self._skip()

    def fail(self, message: str, place: int | None = None) -> NoReturn:
        mark = self.place if place is None else place
        raise ValueError(f"{message}\n  {self.text}\n  {' ' * mark}^")

    def items(self) -> tuple[Phase | Cycle, ...]:
        found = [self.item()]
        while self.take(">"):
            found.append(self.item())
        return tuple(found)

    def item(self) -> Phase | Cycle:
        if self.take("("):
            inner = self.items()
            self.need(")", "after the phases of a cycle")
            self.need("x", "and a number of times after a cycle")
            place = self.place
            times = self.number("a number of times")
            if times < 1 or times != int(times):
                self.fail(f"a cycle comes round a whole number of times, got {times:g}", place)
            return Cycle(inner, int(times))
        place = self.place
        phase = Phase(self.amount(), self.objective())
        self.phases.append((phase, place))
        return phase

    def amount(self) -> Amount | None:
        match = amounts.PATTERN.match(self.text, self.place)
        if match is None:
            if self.place < len(self.text) and self.text[self.place].isdigit():
                self.fail(
                    "not an amount; write '25%', '6 epochs', '400k tokens', '200 steps', '1M words' or a bare share"
                )
            return None
        try:
            found = Amount.of(match)
        except ValueError as error:
            self.fail(str(error))
        self.place = match.end()
        self._skip()
        return found

    def objective(self) -> Objective:
        place = self.place
        match = NAME.match(self.text, place)
        if match is None:
            self.fail(f"expected an objective ({', '.join(OBJECTIVES)})")
        name = match[0]
        if name not in OBJECTIVES:
            self.fail(f"unknown objective {name!r}; {nearest(name, OBJECTIVES)}")
        self.place = match.end()
        self._skip()
        if name == "clm":
            return CLM()
        if name == "mix":
            return self.mixture()
        self.need("(", f"and a mask ratio after {name!r}, as in {name}(0.4)")
        ratio = self.ratio()
        fate = self.fate() if self.take(",") else Fate()
        self.need(")", "after the mask ratio")
        return (MLM if name == "mlm" else MNTP)(ratio, fate)

    def mixture(self) -> Mixture:
        self.need("(", "after 'mix'")
        parts = []
        while not parts or self.take(","):
            place = self.place
            objective = self.objective()
            if isinstance(objective, Mixture):
                self.fail("a mix of mixes: give every objective its weight in one mix", place)
            self.need(":", "and a weight after each objective of a mix, as in mix(clm: 1, mlm(0.15): 15)")
            place = self.place
            weight = self.number("a weight")
            if weight < 1 or weight != int(weight):
                self.fail(f"a weight is a whole number of rows, at least 1; got {weight:g}", place)
            parts.append((objective, int(weight)))
        self.need(")", "after the parts of a mix")
        return Mixture(tuple(parts))

    def ratio(self) -> Ratio:
        start = self.share()
        stop = self.share() if self.take("->") else start
        return Ratio(start, stop)

    def share(self) -> float:
        place = self.place
        value = self.number("a mask ratio between 0 and 1")
        if not 0 < value < 1:
            hint = f"; did you mean {value / 100:g}?" if 1 < value < 100 else ""
            self.fail(f"a mask ratio lies between 0 and 1, got {value:g}{hint}", place)
        return value

    def fate(self) -> Fate:
        place = self.place
        parts = [self.number("a percentage, as in 80/10/10")]
        while self.take("/"):
            parts.append(self.number("a percentage, as in 80/10/10"))
        if len(parts) != 3 or sum(parts) != 100 or any(part != int(part) for part in parts):
            self.fail(
                "the fate of an asked token is mask/random/keep in whole percent, as in 80/10/10, 100 together", place
            )
        return Fate(*map(int, parts))

    def number(self, what: str) -> float:
        match = NUMBER.match(self.text, self.place)
        if match is None:
            self.fail(f"expected {what}")
        self.place = match.end()
        self._skip()
        return float(match[0])

    def take(self, mark: str) -> bool:
        if not self.text.startswith(mark, self.place):
            return False
        self.place += len(mark)
        self._skip()
        return True

    def need(self, mark: str, where: str) -> None:
        if not self.take(mark):
            self.fail(f"expected {mark!r} {where}")

    def _skip(self) -> None:
        while self.place < len(self.text) and self.text[self.place].isspace():
            self.place += 1
