"""Amounts read and print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.pretrain.amount import Amount, Unit


@pytest.mark.parametrize(
    ("text", "value", "unit", "canonical"),
    [
        ("25%", 25, Unit.PERCENT, "25%"),
        ("12.5 %", 12.5, Unit.PERCENT, "12.5%"),
        ("400k tokens", 400_000, Unit.TOKENS, "400k tokens"),
        ("0.4M tokens", 400_000, Unit.TOKENS, "400k tokens"),
        ("1.5B words", 1_500_000_000, Unit.WORDS, "1.5B words"),
        ("6 epochs", 6, Unit.EPOCHS, "6 epochs"),
        ("1 epoch", 1, Unit.EPOCHS, "1 epoch"),
        ("1 epochs", 1, Unit.EPOCHS, "1 epoch"),
        ("200 steps", 200, Unit.STEPS, "200 steps"),
        (" 4 ", 4, Unit.SHARE, "4"),
        (4, 4, Unit.SHARE, "4"),
    ],
)
def test_amounts_read_and_print(text: object, value: float, unit: Unit, canonical: str) -> None:
    amount = Amount.parse(text)
    assert amount == Amount(value, unit)
    assert str(amount) == canonical
    assert Amount.parse(canonical) == amount


@given(st.floats(min_value=1e-6, max_value=1e15), st.sampled_from(Unit))
def test_any_amount_prints_so_that_it_reads_back_the_same(value: float, unit: Unit) -> None:
    amount = Amount(value, unit)
    assert Amount.parse(str(amount)) == amount


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("400k tokns", "did you mean 'tokens'?"),
        ("400x tokens", "is not an amount"),
        ("-5%", "is not an amount"),
        ("tokens", "is not an amount"),
        ("1e6 tokens", "is not an amount"),
        ("400 K tokens", "is not an amount"),
        ("", "add a unit"),
        ("0 steps", "must be more than zero"),
        ("0.0%", "must be more than zero"),
    ],
)
def test_what_is_no_amount_is_said(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint.replace("?", r"\?")):
        Amount.parse(text)


def test_absolute_amounts_need_no_whole() -> None:
    assert [unit for unit in Unit if Amount(1, unit).absolute] == [Unit.STEPS, Unit.TOKENS, Unit.WORDS, Unit.EPOCHS]
