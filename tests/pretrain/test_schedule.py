"""A schedule in whole steps: borders rounded, the sum exact."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.data.supply import Supply
from antiphon.pretrain.amount import Amount
from antiphon.pretrain.causal import CLM
from antiphon.pretrain.masking import MLM, MNTP
from antiphon.pretrain.mixture import Mixture
from antiphon.pretrain.pace import Pacing
from antiphon.pretrain.programme import Programme
from antiphon.pretrain.schedule import Schedule, Span

SLOTS = 4096 * 250.5
PACING = Pacing(Programme.parse(32), Programme.parse(128), Supply(SLOTS, SLOTS, 0.75 * SLOTS))


def spans(notation: str, budget: str | None = None) -> list[Span]:
    return Schedule.parse(notation).spans(None if budget is None else Amount.parse(budget), PACING)


def borders(notation: str, budget: str | None = None) -> list[int]:
    found = spans(notation, budget)
    assert found[0].start == 0
    assert all(one.stop == other.start for one, other in itertools.pairwise(found))
    return [span.stop for span in found]


@pytest.mark.parametrize(
    ("notation", "budget", "expected"),
    [
        ("mlm(0.4)", "200 steps", [200]),
        ("25% clm > 75% mlm(0.4)", "200 steps", [50, 200]),
        ("25% clm > 75% mlm(0.4)", "819200 tokens", [50, 200]),
        ("1 clm > 3 mlm(0.4)", "200 steps", [50, 200]),
        ("(1 clm > 4 mlm(0.15)) x 2", "101 steps", [10, 50, 61, 101]),
        ("6 epochs clm > 60 epochs mlm(0.15) > 6 epochs clm", None, [1503, 16533, 18036]),
        ("100 steps clm > 409600 tokens mlm(0.4)", None, [100, 200]),
        ("307200 words clm", None, [100]),
        ("clm", "1 step", [1]),
        ("33.333333% clm > 33.333333% mlm(0.2) > 33.333334% clm", "10 steps", [3, 7, 10]),
    ],
)
def test_borders_at_named_steps(notation: str, budget: str | None, expected: list[int]) -> None:
    assert borders(notation, budget) == expected


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 3), st.integers(1, 5000))
def test_borders_are_rounded_and_the_sum_is_exact(shares: list[int], times: int, steps: int) -> None:
    notation = "(" + " > ".join(f"{share} clm" for share in shares) + f") x {times}"
    total = sum(shares) * times
    exact = [steps * sum((shares * times)[: place + 1]) / total for place in range(len(shares) * times)]
    try:
        found = borders(notation, f"{steps} steps")
    except ValueError:
        # Refused only when two borders meet.
        assert any(other - one < 1 + 1e-6 for one, other in zip([0, *exact], exact, strict=False))
        return
    assert found[-1] == steps
    assert all(abs(border - place) <= 0.5 + 1e-6 for border, place in zip(found, exact, strict=True))


@given(st.integers(4, 5000), st.integers(1, 99))
def test_equal_shares_give_equal_borders_however_they_are_written(steps: int, percent: int) -> None:
    # Sharing between runs hangs on this: the border must not depend on what follows, nor on the notation.
    if round(steps * percent / 100) in (0, steps):
        return
    one = borders(f"{percent}% clm > {100 - percent}% mlm(0.4)", f"{steps} steps")
    other = borders(f"{percent} clm > {100 - percent} mntp(0.2)", f"{steps} steps")
    assert one == other


@pytest.mark.parametrize(
    ("notation", "budget", "message"),
    [
        ("0.1% clm > 99.9% mlm(0.4)", "100 steps", "phase '0.1% clm' of .* is 0.1 steps long"),
        ("10 tokens clm", None, "is 0.0024 steps long; it needs at least one step"),
        ("clm", None, "divides a whole: give a budget such as"),
        ("25% clm > 75% mlm(0.4)", None, "divides a whole"),
        ("10 steps clm", "10 steps", "both fix the length; leave the budget out"),
    ],
)
def test_what_does_not_resolve_is_said(notation: str, budget: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spans(notation, budget)


def test_cycles_are_written_out_in_order() -> None:
    phases = Schedule.parse("((1 clm) x 2 > 3 mlm(0.2)) x 2 > 5 clm").phases
    assert [str(phase) for phase in phases] == ["1 clm", "1 clm", "3 mlm(0.2)"] * 2 + ["5 clm"]


def test_a_ramp_runs_over_its_own_phase() -> None:
    first, second = spans("1 clm > 1 mntp(0.3 -> 0.1)", "20 steps")
    assert first.at(5) == CLM()
    ratios = [second.at(step).ratio.start for step in (10, 15, 19)]  # pyright: ignore[reportAttributeAccessIssue]
    assert ratios == pytest.approx([0.3, 0.2, 0.12])
    assert isinstance(second.at(10), MNTP)


def test_a_ramp_in_a_mixture_runs_too() -> None:
    (span,) = spans("mix(clm: 1, mlm(0.3 -> 0.1): 3)", "10 steps")
    mixture = span.at(5)
    assert isinstance(mixture, Mixture)
    masked = mixture.parts[1][0]
    assert isinstance(masked, MLM)
    assert masked.ratio.start == pytest.approx(0.2)
