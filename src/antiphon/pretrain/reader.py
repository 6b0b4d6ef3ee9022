"""What reads a notation character by character: numbers, words and marks. Errors point at the character."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from antiphon.config import nearest

if TYPE_CHECKING:
    from antiphon.pretrain.objective import Objective

NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")
NAME = re.compile(r"[A-Za-z_]\w*")


class Reader:
    """A recursive-descent reader; `place` is the next character that is not a blank."""

    def __init__(self, text: str, objectives: tuple[type[Objective], ...]) -> None:
        """Begin to read.

        Args:
            text: the notation.
            objectives: all there are.
        """
        self.text = text
        self.place = 0
        self.objectives = {kind.name: kind for kind in objectives}
        self._skip()

    def fail(self, message: str, place: int | None = None) -> NoReturn:
        """Refuse the text.

        Raises:
            ValueError: the message, the text and a mark under the place.
        """
        mark = self.place if place is None else place
        raise ValueError(f"{message}\n  {self.text}\n  {' ' * mark}^")

    def objective(self) -> Objective:
        """An objective: its name, and then what it reads itself."""
        names = list(self.objectives)
        name = self.word(names, f"an objective ({', '.join(names)})", "objective")
        return self.objectives[name].read(self)

    def word(self, allowed: list[str], what: str, kind: str = "word") -> str:
        """One of the allowed words.

        Args:
            allowed: the words.
            what: what was expected, where no word stands at all.
            kind: what an unknown word is called.
        """
        match = NAME.match(self.text, self.place)
        if match is None:
            self.fail(f"expected {what}")
        if match[0] not in allowed:
            self.fail(f"unknown {kind} {match[0]!r}; {nearest(match[0], allowed)}")
        self._move(match.end())
        return match[0]

    def number(self, what: str) -> float:
        """A number; `what` says of which kind."""
        match = NUMBER.match(self.text, self.place)
        if match is None:
            self.fail(f"expected {what}")
        self._move(match.end())
        return float(match[0])

    def whole(self, what: str, least: int = 1) -> int:
        """A whole number, not less than `least`; `what` is the beginning of a sentence that says so."""
        place = self.place
        value = self.number(what)
        if value < least or value != int(value):
            self.fail(f"{what} is a whole number, at least {least}; got {value:g}", place)
        return int(value)

    def share(self, what: str) -> float:
        """A number between 0 and 1, both left out."""
        place = self.place
        value = self.number(f"{what} between 0 and 1")
        if not 0 < value < 1:
            hint = f"; did you mean {value / 100:g}?" if 1 < value < 100 else ""
            self.fail(f"{what} lies between 0 and 1, got {value:g}{hint}", place)
        return value

    def take(self, mark: str) -> bool:
        """Whether the mark stands here; if so, it is read."""
        if not self.text.startswith(mark, self.place):
            return False
        self._move(self.place + len(mark))
        return True

    def take_word(self, word: str) -> bool:
        """Whether the word stands here as a whole; if so, it is read."""
        match = NAME.match(self.text, self.place)
        return match is not None and match[0] == word and self.take(word)

    def need(self, mark: str, where: str) -> None:
        """Read the mark; `where` goes on with "expected '(' ..."."""
        if not self.take(mark):
            self.fail(f"expected {mark!r} {where}")

    @property
    def at_number(self) -> bool:
        """Whether a number stands here."""
        return NUMBER.match(self.text, self.place) is not None

    def _move(self, place: int) -> None:
        self.place = place
        self._skip()

    def _skip(self) -> None:
        while self.place < len(self.text) and self.text[self.place].isspace():
            self.place += 1
