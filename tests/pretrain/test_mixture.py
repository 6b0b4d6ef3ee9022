"""Mixtures: an exact ratio of rows or of batches."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from antiphon.data.batches import TokenBatch
from antiphon.pretrain.causal import CLM
from antiphon.pretrain.masking import MLM, MNTP
from antiphon.pretrain.mixture import Mixture, Per
from antiphon.pretrain.objective import BIDIRECTIONAL, CAUSAL, IGNORE, PREFIX, LMBatch, Ratio
from tests import tiny
from tests.pretrain.asking import EVERY, VOCABULARY, objective, packed

# Per row


def _tagged(rows: int, first_row: int) -> TokenBatch:
    """Rows that tell which row of the run they are: token 4 + n at position 1."""
    batch = tiny.token_batch([[8]] * rows, 8)
    tokens = batch.tokens.copy()
    tokens[:, 1] = 4 + (first_row + np.arange(rows)) % 96
    return dataclasses.replace(batch, tokens=tokens, first_row=first_row)


def _owners(notation: str, sizes: Sequence[int]) -> list[int]:
    """For each row of a run, in steps of so many rows, the number of the objective it got."""
    mixture = objective(notation)
    assert isinstance(mixture, Mixture)
    owners: list[int] = []
    for step, rows in enumerate(sizes):
        found: dict[int, LMBatch] = {}
        first = len(owners)
        for part in mixture(_tagged(rows, first), VOCABULARY, 0, step):
            # What stood there before masking: the label where masking asked, else the input.
            masked = (part.labels != IGNORE) & (part.attention != CAUSAL)
            for tag in np.where(masked, part.labels, part.inputs)[:, 1]:
                assert int(tag) not in found
                found[int(tag)] = part
        assert len(found) == rows
        owners += [_number(mixture, found[4 + (first + row) % 96]) for row in range(rows)]
    return owners


def _number(mixture: Mixture, found: LMBatch) -> int:
    kinds = [CAUSAL if isinstance(part, CLM) else BIDIRECTIONAL for part, _ in mixture.parts]
    return kinds.index(found.attention)


@pytest.mark.parametrize(
    ("notation", "weights"),
    [
        ("mix(clm: 1, mlm(0.4): 15)", [1, 15]),
        ("mix(mlm(0.2): 2, clm: 3)", [2, 3]),
        ("mix(clm: 1, mlm(0.4): 1)", [1, 1]),
    ],
)
@pytest.mark.parametrize("sizes", [[1] * 80, [3] * 27, [7] * 12, [16] * 5, [2, 2, 3, 5, 7, 16, 1, 1, 30]])
def test_any_run_of_rows_as_long_as_the_weights_has_the_exact_ratio(
    notation: str, weights: list[int], sizes: list[int]
) -> None:
    owners = _owners(notation, sizes)
    total = sum(weights)
    for start in range(len(owners) - total + 1):
        counts = Counter(owners[start : start + total])
        assert [counts[number] for number in range(len(weights))] == weights


@pytest.mark.parametrize("weights", [(1, 2, 3), (1, 1, 1, 1), (5, 1), (13, 8), (1, 31)])
def test_the_ratio_is_exact_for_any_number_of_objectives(weights: tuple[int, ...]) -> None:
    parts = tuple((MLM(Ratio(0.001, 0.001)) if index else CLM(), weight) for index, weight in enumerate(weights))
    total = sum(weights)
    asked = Mixture(parts)(tiny.token_batch([[8]] * total, 8), VOCABULARY, 0, 3)
    assert [len(part.inputs) for part in asked] == list(weights)


def test_the_rows_of_a_mixture_are_asked_as_each_objective_would_ask_the_whole_batch() -> None:
    batch = packed(rows=12)
    mixture = objective("mix(clm: 1, mlm(0.4): 2)")
    assert isinstance(mixture, Mixture)
    parts = mixture(batch, VOCABULARY, 3, 5)
    alone = [part(batch, VOCABULARY, 3, 5)[0] for part, _ in mixture.parts]
    assert sum(len(part.inputs) for part in parts) == 12
    for part, whole in zip(parts, alone, strict=True):
        for labels, inputs in zip(part.labels, part.inputs, strict=True):
            assert any(
                np.array_equal(labels, row) and np.array_equal(inputs, shown)
                for row, shown in zip(whole.labels, whole.inputs, strict=True)
            )


def test_the_rows_of_one_objective_are_spread_out() -> None:
    owners = _owners("mix(clm: 4, mlm(0.4): 12)", [16] * 4)
    gaps = np.diff(np.flatnonzero(np.array(owners) == 0))
    assert gaps.max() <= 8


def test_every_objective_can_be_part_of_a_mixture() -> None:
    batch = packed(rows=len(EVERY))
    mixture = objective(f"mix({', '.join(f'{notation}: 1' for notation in EVERY)})")
    parts = mixture(batch, VOCABULARY, 0, 4)
    assert [len(part.inputs) for part in parts] == [1] * len(EVERY)
    for notation, part in zip(EVERY, parts, strict=True):
        (alone,) = objective(notation)(batch, VOCABULARY, 0, 4)
        row = next(row for row in range(len(EVERY)) if np.array_equal(alone.labels[row], part.labels[0]))
        assert np.array_equal(alone.inputs[row], part.inputs[0])
        if part.attention == PREFIX:
            assert part.opened is not None
            assert alone.opened is not None
            assert np.array_equal(alone.opened[row], part.opened[0])


# Per batch


@pytest.mark.parametrize("weights", [(1, 15), (2, 3), (1, 1), (1, 2, 3), (5, 1), (1, 31)])
def test_any_run_of_steps_as_long_as_the_weights_has_the_exact_ratio(weights: tuple[int, ...]) -> None:
    kinds = [CLM(), MLM(Ratio(0.5, 0.5)), MNTP(Ratio(0.5, 0.5))][: len(weights)]
    mixture = Mixture(tuple(zip(kinds, weights, strict=True)), Per.BATCH)
    batch = packed(rows=2)
    total = sum(weights)
    owners = []
    for step in range(3 * total):
        found = mixture(batch, VOCABULARY, 0, step)
        (owner,) = (
            number
            for number, kind in enumerate(kinds)
            if np.array_equal(kind(batch, VOCABULARY, 0, step)[0].labels, found[0].labels)
        )
        assert len(found) == 1
        assert len(found[0].inputs) == 2
        owners.append(owner)
    for start in range(2 * total + 1):
        counts = Counter(owners[start : start + total])
        assert [counts[number] for number in range(len(weights))] == list(weights)


# Ramps


def test_the_ramps_of_the_parts_are_resolved() -> None:
    ratio = Ratio(0.3, 0.15)
    for per in Per:
        mixture = Mixture(((CLM(), 1), (MNTP(ratio), 15)), per)
        assert mixture.at(0.5) == Mixture(((CLM(), 1), (MNTP(ratio.at(0.5)), 15)), per)
