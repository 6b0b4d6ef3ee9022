"""Numbers as readers see them: scores times 100 with one decimal, real minus signs, a dash where there is nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from antiphon.results.compare import Estimate

NOTHING = "\N{EN DASH}"


def points(value: float) -> str:
    """A score in [0, 1] as points of 100: "71.3"."""
    return NOTHING if math.isnan(value) else _minus(f"{100 * value:.1f}")


def signed(value: float) -> str:
    """A difference of scores in points: "+1.2", "-0.4", "0.0"."""
    if math.isnan(value):
        return NOTHING
    text = f"{100 * value:+.1f}"
    return "0.0" if float(text) == 0 else _minus(text)


def span(estimate: Estimate | None) -> str:
    """The ends of a score's interval: "69.0 to 73.5"."""
    if estimate is None or math.isnan(estimate.low):
        return NOTHING
    return f"{points(estimate.low)} to {points(estimate.high)}"


def signed_span(estimate: Estimate | None) -> str:
    """The ends of a difference's interval: "-0.4 to +2.8"."""
    if estimate is None or math.isnan(estimate.low):
        return NOTHING
    return f"{signed(estimate.low)} to {signed(estimate.high)}"


def reach(estimate: Estimate | None) -> str:
    """How far an interval reaches to each side, in points: "1.2"."""
    if estimate is None or math.isnan(estimate.low):
        return NOTHING
    return points((estimate.high - estimate.low) / 2)


def probability(value: float) -> str:
    """A p value with two digits: "0.031", "<0.001"."""
    if math.isnan(value):
        return NOTHING
    return "<0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def rate(value: float) -> str:
    """A learning rate: "3e-4"."""
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def rates(values: Iterable[float]) -> str:
    """Learning rates, ascending: "3e-4, 1e-3"."""
    return ", ".join(rate(value) for value in values) or NOTHING


_STEPS = ((1e9, "B"), (1e6, "M"), (1e3, "k"))


def amount(count: float) -> str:
    """A large count: "850", "12.3k", "1.2M", "3B"."""
    size, letter = next((step for step in _STEPS if count >= step[0]), (1, ""))
    return f"{count / size:.1f}".removesuffix(".0") + letter


def listing(parts: Sequence[str]) -> str:
    """Names in a sentence: "a, b and c"."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1] if parts else "none"


def plural(count: int, singular: str) -> str:
    """A count with its noun: "1 run", "3 runs"."""
    return f"{count} {singular}" + ("" if count == 1 else "s")


def shortened(text: str, length: int) -> str:
    """At most `length` characters, the last an ellipsis when something was cut."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")
