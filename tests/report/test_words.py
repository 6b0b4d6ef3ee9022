"""Numbers in the reader's form."""

from __future__ import annotations

import math

import pytest

from antiphon.report import words
from antiphon.results.compare import Estimate, Method

MINUS = "\N{MINUS SIGN}"
DASH = "\N{EN DASH}"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (words.points(0.7128), "71.3"),
        (words.points(math.nan), DASH),
        (words.signed(0.012), "+1.2"),
        (words.signed(-0.004), f"{MINUS}0.4"),
        (words.signed(-0.0001), "0.0"),
        (words.signed(math.nan), DASH),
        (words.probability(0.0004), "<0.001"),
        (words.probability(0.0314), "0.031"),
        (words.probability(0.314), "0.31"),
        (words.probability(math.nan), DASH),
        (words.rates((3e-4, 1.5e-3)), "3e-4, 1.5e-3"),
        (words.rates(()), DASH),
        (words.amount(850), "850"),
        (words.amount(12_345), "12.3k"),
        (words.amount(4_000_000), "4M"),
        (words.amount(3.2e9), "3.2B"),
        (words.listing(["a"]), "a"),
        (words.listing(["a", "b", "c"]), "a, b and c"),
        (words.listing([]), "none"),
        (words.plural(1, "run"), "1 run"),
        (words.shortened("mlm(0.4)", 8), "mlm(0.4)"),
        (words.shortened("mlm(0.15)", 8), "mlm(0.1\N{HORIZONTAL ELLIPSIS}"),
    ],
)
def test_forms(found: str, expected: str) -> None:
    assert found == expected


def test_intervals() -> None:
    estimate = Estimate(0.01, -0.012, 0.032, 3, Method.PRETRAINING_SEEDS)
    assert words.signed_span(estimate) == f"{MINUS}1.2 to +3.2"
    assert words.span(estimate) == f"{MINUS}1.2 to 3.2"
    assert words.reach(estimate) == "2.2"
    for absent in (None, Estimate(0.5, math.nan, math.nan, 1, Method.NONE)):
        assert words.span(absent) == words.signed_span(absent) == words.reach(absent) == DASH
