"""Whole numbers that change over a run read, print and resolve into steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.config import UserError
from antiphon.pretrain.config import Batch
from antiphon.pretrain.programme import Programme


@pytest.mark.parametrize(
    ("text", "canonical", "values"),
    [
        (32, "32", [32] * 10),
        ("32", "32", [32] * 10),
        ("8 -> 28", "8 -> 28", [8, 10, 12, 14, 16, 18, 20, 22, 24, 26]),
        ("50% 8->13 > 32", "50% 8 -> 13 > 32", [8, 9, 10, 11, 12] + [32] * 5),
        ("70% 128 > 20% 256 > 10% 512", "70% 128 > 20% 256 > 10% 512", [128] * 7 + [256] * 2 + [512]),
        ("2 steps 4 > 3 steps 6 > 8", "2 steps 4 > 3 steps 6 > 8", [4] * 2 + [6] * 3 + [8] * 5),
        ("30% 9 -> 6 > 3 steps 5 > 1", "30% 9 -> 6 > 3 steps 5 > 1", [9, 8, 7, 5, 5, 5, 1, 1, 1, 1]),
        # A slope that is longer than the run is as steep as it is written; the run ends on it.
        ("20 steps 20 -> 40 > 40", "20 steps 20 -> 40 > 40", list(range(20, 30))),
    ],
)
def test_programmes_read_print_and_resolve(text: object, canonical: str, values: list[int]) -> None:
    programme = Programme.parse(text)
    assert str(programme) == canonical
    assert Programme.parse(canonical) == programme
    assert list(programme.at(10)) == values


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=4),
    st.integers(1, 200),
)
def test_every_step_has_a_value_between_the_ends(parts: list[tuple[int, int, int]], steps: int) -> None:
    text = " > ".join(f"{length} steps {start} -> {stop}" for length, start, stop in parts) + " > 7"
    programme = Programme.parse(text)
    values = programme.at(steps)
    assert len(values) == steps
    assert min(programme.values) <= min(values)
    assert max(values) <= max(programme.values)
    assert Programme.parse(str(programme)) == programme


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' in '' is not a stretch such as '32', '20% 8 -> 32'"),
        ("many", "'many' in 'many' is not a stretch"),
        ("0", "values are at least 1"),
        ("50% 8 -> 0 > 4", "values are at least 1"),
        ("8.5", "is not a stretch"),
        ("20% 8 > 20% 16", "add up to 40; let them come to 100, or give the last stretch no length"),
        ("80% 8 > 40% 16", "add up to 120"),
        ("8 > 16", "'8' in '8 > 16' has no length; only the last stretch"),
        ("20k tokens 8 > 16", "give the length of a stretch in percent or in steps, not 20k tokens"),
    ],
)
def test_what_is_no_programme_is_said(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is looked at below
        Programme.parse(text)
    assert message in str(caught.value)


def test_a_batch_says_what_its_rows_may_be() -> None:
    with pytest.raises(UserError, match="changes in jumps, as in '50% 128 > 50% 256', not on a slope"):
        Batch.read({"length": "128 -> 256"})
    with pytest.raises(UserError, match="at least 8 tokens long"):
        Batch.read({"length": "50% 4 > 50% 16"})
    assert Batch.read({"length": "70% 128 > 20% 512 > 256"}).block == 512
    # A number stays a number in files and fingerprints.
    assert Batch().model_dump(mode="json") == {"rows": 32, "length": 128, "packing": "contiguous"}
