"""The parser of the schedule notation, and the list of all objectives. Errors point at the character."""

from __future__ import annotations

from antiphon.pretrain import amount as amounts
from antiphon.pretrain.amount import Amount
from antiphon.pretrain.causal import CLM, Prefix
from antiphon.pretrain.cmlm import CMLM
from antiphon.pretrain.masking import MLM, MNTP
from antiphon.pretrain.mixture import Mixture
from antiphon.pretrain.objective import Objective
from antiphon.pretrain.reader import Reader
from antiphon.pretrain.schedule import Cycle, LengthError, Phase, Schedule, check

OBJECTIVES: tuple[type[Objective], ...] = (CLM, MLM, MNTP, Prefix, CMLM, Mixture)


def parse(text: str) -> Schedule:
    """A schedule from its notation.

    Raises:
        ValueError: what was expected, with the text and a mark under the place.
    """
    reader = _Reader(text, OBJECTIVES)
    schedule = Schedule(reader.items())
    if reader.place < len(text):
        reader.fail("expected '>' or the end")
    try:
        check(schedule)
    except LengthError as error:
        reader.fail(str(error), next(place for phase, place in reader.phases if phase is error.phase))
    return schedule


class _Reader(Reader):
    """It remembers where each phase began."""

    def __init__(self, text: str, objectives: tuple[type[Objective], ...]) -> None:
        super().__init__(text, objectives)
        self.phases: list[tuple[Phase, int]] = []

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
        self._move(match.end())
        return found
