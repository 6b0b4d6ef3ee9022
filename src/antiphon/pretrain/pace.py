"""How far into the data each step of a run is: what turns tokens, words and epochs into steps and back."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from antiphon.data.supply import Supply
from antiphon.pretrain.amount import Amount, Unit
from antiphon.pretrain.programme import Programme


@dataclasses.dataclass(frozen=True)
class Pace:
    """Rows and row length of every step.

    A slot is a place for one token in a row; a few hold padding. Everything is counted in slots, and tokens and words
    are spread evenly over them.

    Attributes:
        supply: what one epoch holds.
        rows, lengths: (S,) int64, of each of S steps.
    """

    supply: Supply
    rows: np.ndarray
    lengths: np.ndarray

    @cached_property
    def first_rows(self) -> np.ndarray:
        """(S + 1,) int64: rows shown before each step, and in all."""
        return np.concatenate([[0], np.cumsum(self.rows)])

    @cached_property
    def slots(self) -> np.ndarray:
        """(S + 1,) int64: slots shown before each step, and in all."""
        return np.concatenate([[0], np.cumsum(self.rows * self.lengths)])

    def tokens(self, step: float) -> float:
        """Tokens expected to be seen after so many steps."""
        return self._shown(step) * self.supply.tokens / self.supply.slots

    def words(self, step: float) -> float:
        """Words expected to be seen after so many steps."""
        return self._shown(step) * self.supply.words / self.supply.slots

    def after(self, step: float, amount: Amount) -> float:
        """The step, not rounded, that an absolute amount of training after `step` leads to."""
        if amount.unit is Unit.STEPS:
            return step + amount.value
        return self._step(self._shown(step) + self._slots(amount))

    def before(self, step: float, amount: Amount) -> float:
        """The step, not rounded, that an absolute amount of training before `step` begins at; not below 0."""
        if amount.unit is Unit.STEPS:
            return max(step - amount.value, 0.0)
        return self._step(max(self._shown(step) - self._slots(amount), 0.0))

    def _slots(self, amount: Amount) -> float:
        of_an_epoch = {
            Unit.TOKENS: 1 / self.supply.tokens,
            Unit.WORDS: 1 / self.supply.words,
            Unit.EPOCHS: 1.0,
        }
        return amount.value * self.supply.slots * of_an_epoch[amount.unit]

    def _shown(self, step: float) -> float:
        # Beyond its end the run is thought to go on as its last step did.
        whole = min(int(step), len(self.rows) - 1)
        return float(self.slots[whole]) + (step - whole) * float(self.rows[whole] * self.lengths[whole])

    def _step(self, slots: float) -> float:
        whole = min(int(np.searchsorted(self.slots, slots, side="right")) - 1, len(self.rows) - 1)
        return whole + (slots - float(self.slots[whole])) / float(self.rows[whole] * self.lengths[whole])


@dataclasses.dataclass(frozen=True)
class Pacing:
    """The batch sizes of a run whose number of steps is not known yet.

    Attributes:
        rows, length: programmes over the run.
        supply: what one epoch holds.
    """

    rows: Programme
    length: Programme
    supply: Supply

    @property
    def changes(self) -> bool:
        """Whether steps differ in size."""
        return not (self.rows.constant and self.length.constant)

    def over(self, steps: int) -> Pace:
        """The pace of a run of so many steps."""
        return Pace(self.supply, self.rows.at(steps), self.length.at(steps))

    def steps(self, amounts: list[Amount]) -> int:
        """The number of steps that absolute amounts, one after the other, come to; at least 1.

        Where the batch changes in percent of the run, its pace depends on the number of steps that is asked: the
        smallest number is taken that is enough.
        """
        if not self.changes:
            return max(round(self._end(amounts, 1)), 1)
        high = 1
        while round(self._end(amounts, high)) > high:
            high *= 2
        low = high // 2
        while low < high - 1:
            middle = (low + high) // 2
            low, high = (low, middle) if round(self._end(amounts, middle)) <= middle else (middle, high)
        # The last step may be so much larger than those before that one step less is nearer.
        return max(round(self._end(amounts, high)), 1)

    def _end(self, amounts: list[Amount], steps: int) -> float:
        pace, place = self.over(steps), 0.0
        for amount in amounts:
            place = pace.after(place, amount)
        return place
