"""What is made ahead is what would be made anyway."""

from __future__ import annotations

import threading

import pytest

from antiphon.train.ahead import Ahead


def test_values_are_those_of_the_steps_asked_for_in_any_order() -> None:
    ahead = Ahead(lambda step: step * step, 10)
    assert [ahead(step) for step in (3, 4, 5, 2, 3, 9, 8, 9)] == [9, 16, 25, 4, 9, 81, 64, 81]
    ahead.close()


def test_the_next_value_is_made_while_the_caller_is_busy_and_none_beyond_the_end() -> None:
    made: list[int] = []
    reached = threading.Event()

    def make(step: int) -> int:
        made.append(step)
        if step == 1:
            reached.set()
        return step

    ahead = Ahead(make, 2)
    ahead(0)
    assert reached.wait(10)
    ahead(1)
    ahead.close()
    assert made == [0, 1]


def test_an_exception_reaches_whoever_asks_for_that_step() -> None:
    def make(step: int) -> int:
        if step == 2:
            raise OSError("the disk is gone")
        return step

    ahead = Ahead(make, 5)
    assert [ahead(0), ahead(1)] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        ahead(2)
    ahead.close()
