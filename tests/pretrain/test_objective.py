"""What is shown, what is asked, and that labels answer logits."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest

from antiphon.data.batches import PADDING, TokenBatch
from antiphon.data.prepare import Prepared
from antiphon.pretrain.causal import CLM
from antiphon.pretrain.masking import MLM, MNTP, Fate
from antiphon.pretrain.mixture import Mixture
from antiphon.pretrain.objective import BIDIRECTIONAL, CAUSAL, IGNORE, LMBatch, Objective, Ratio, Vocabulary
from antiphon.pretrain.schedule import Schedule
from tests import tiny

SPECIALS = (0, 1, 2, 3)
VOCABULARY = Vocabulary(100, 3, SPECIALS)


def _objective(notation: str) -> Objective:
    return Schedule.parse(notation).phases[0].objective.at(0.0)


def _packed(rows: int = 64, length: int = 64) -> TokenBatch:
    """Rows of two or three documents, [BOS] = 1 and [EOS] = 2 around each, and padding behind."""
    batch = tiny.token_batch([[20, 25, 10] if row % 2 else [40, 24] for row in range(rows)], length)
    tokens = batch.tokens.copy()
    tokens[(batch.positions == 0) & (batch.documents != PADDING)] = 1
    tokens[:, :-1][(batch.documents[:, :-1] != batch.documents[:, 1:]) & (batch.documents[:, :-1] != PADDING)] = 2
    return dataclasses.replace(batch, tokens=tokens)


def _askable(batch: TokenBatch) -> np.ndarray:
    return ~np.isin(batch.tokens, SPECIALS) & (batch.documents != PADDING)


# CLM


def test_clm_asks_for_the_next_token_of_the_same_document_and_for_nothing_else() -> None:
    batch = _packed()
    (asked,) = CLM()(batch, VOCABULARY, 0, 0)
    assert asked.attention == CAUSAL
    assert np.array_equal(asked.inputs, batch.tokens)
    rows, length = batch.tokens.shape
    for row in range(rows):
        for place in range(length):
            inside = (
                place + 1 < length
                and batch.documents[row, place] == batch.documents[row, place + 1]
                and batch.documents[row, place] != PADDING
            )
            expected = batch.tokens[row, place + 1] if inside else IGNORE
            assert asked.labels[row, place] == expected


def test_clm_on_real_rows_never_asks_across_a_border_nor_in_padding(prepared: Prepared) -> None:
    encoder = prepared.encoder
    rows = -(-prepared.shards["train"][0].tokens // 32)
    batch = tiny.batches(prepared, rows, 32)(0)
    (asked,) = CLM()(batch, tiny.vocabulary(encoder), 0, 0)
    # [BOS] begins a document, so nobody can be asked for one; after [EOS] nothing follows.
    assert not (asked.labels == encoder.bos).any()
    assert not (asked.labels == encoder.pad).any()
    assert (asked.labels[batch.tokens == encoder.eos] == IGNORE).all()
    assert asked.count == sum(
        len(np.flatnonzero(np.diff(numbers[numbers != PADDING]) == 0)) for numbers in batch.documents
    )


# MLM


@pytest.mark.parametrize("ratio", [0.05, 0.15, 0.4, 0.9])
def test_mlm_asks_the_ratio_of_the_askable_tokens(ratio: float) -> None:
    batch = _packed()
    total = count = 0
    for step in range(20):
        (asked,) = MLM(Ratio(ratio, ratio))(batch, VOCABULARY, 0, step)
        total, count = total + int(_askable(batch).sum()), count + asked.count
    assert abs(count - ratio * total) < 4 * math.sqrt(ratio * (1 - ratio) * total)


@pytest.mark.parametrize("fate", [Fate(), Fate(80, 10, 10), Fate(0, 100, 0), Fate(0, 0, 100)])
def test_mlm_asks_no_special_and_no_padding_and_leaves_the_unasked_alone(fate: Fate) -> None:
    batch = _packed()
    for step in range(20):
        (asked,) = MLM(Ratio(0.4, 0.4), fate)(batch, VOCABULARY, 0, step)
        asking = asked.labels != IGNORE
        assert not (asking & ~_askable(batch)).any()
        assert np.array_equal(asked.inputs[~asking], batch.tokens[~asking])
        assert np.array_equal(asked.labels[asking], batch.tokens[asking])
        assert asked.attention == BIDIRECTIONAL
        assert np.array_equal(asked.documents, batch.documents)
        assert np.array_equal(asked.positions, batch.positions)


def test_mlm_shows_the_mask_token_by_default() -> None:
    (asked,) = MLM(Ratio(0.4, 0.4))(_packed(), VOCABULARY, 0, 0)
    assert (asked.inputs[asked.labels != IGNORE] == VOCABULARY.mask).all()


def test_mlm_80_10_10_by_chi_square() -> None:
    batch = _packed()
    counts: Counter[str] = Counter()
    replacements: Counter[int] = Counter()
    for step in range(40):
        (asked,) = MLM(Ratio(0.4, 0.4), Fate(80, 10, 10))(batch, VOCABULARY, 0, step)
        asking = asked.labels != IGNORE
        shown, answer = asked.inputs[asking], asked.labels[asking]
        counts["mask"] += int((shown == VOCABULARY.mask).sum())
        counts["keep"] += int((shown == answer).sum())
        other = shown[(shown != VOCABULARY.mask) & (shown != answer)]
        counts["random"] += len(other)
        replacements.update(other.tolist())
    total = sum(counts.values())
    # A random token is by chance the right one in 1 of 96 draws.
    expected = {"mask": 0.8, "random": 0.1 * 95 / 96, "keep": 0.1 + 0.1 / 96}
    chi_square = sum((counts[name] - share * total) ** 2 / (share * total) for name, share in expected.items())
    assert total > 30_000
    assert chi_square < 13.8  # 0.1% point with 2 degrees of freedom
    # Replacements: no special, every ordinary token, evenly.
    assert set(replacements) == set(range(4, 100))
    mean = counts["random"] / 96
    assert (
        sum((replacements[token] - mean) ** 2 / mean for token in range(4, 100)) < 150
    )  # 0.1% point: 141, and a little


def test_masks_depend_on_step_and_seed_alone() -> None:
    batch = _packed()
    mlm = MLM(Ratio(0.3, 0.3), Fate(80, 10, 10))
    labels = [mlm(batch, VOCABULARY, seed, step)[0].labels.tobytes() for seed in (0, 1) for step in (0, 1)]
    assert len(set(labels)) == 4
    assert mlm(batch, VOCABULARY, 1, 1)[0].labels.tobytes() == labels[-1]


def test_masks_of_different_rows_and_places_are_independent() -> None:
    batch = tiny.token_batch([[64]] * 400, 64)
    (asked,) = MLM(Ratio(0.5, 0.5))(batch, VOCABULARY, 0, 0)
    asking = (asked.labels != IGNORE).astype(float) - 0.5
    assert abs((asking[:, 1:] * asking[:, :-1]).mean() * 4) < 4 / math.sqrt(400 * 63)
    assert abs((asking[1:] * asking[:-1]).mean() * 4) < 4 / math.sqrt(399 * 64)


# MNTP


def test_mntp_is_mlm_with_its_labels_moved_one_left_within_documents() -> None:
    batch = _packed()
    ratio, fate = Ratio(0.4, 0.4), Fate(80, 10, 10)
    (mlm,) = MLM(ratio, fate)(batch, VOCABULARY, 5, 7)
    (mntp,) = MNTP(ratio, fate)(batch, VOCABULARY, 5, 7)
    assert np.array_equal(mntp.inputs, mlm.inputs)
    assert mntp.attention == BIDIRECTIONAL
    rows, length = batch.tokens.shape
    for row in range(rows):
        for place in range(length):
            same = place + 1 < length and batch.documents[row, place] == batch.documents[row, place + 1]
            assert mntp.labels[row, place] == (mlm.labels[row, place + 1] if same else IGNORE)
    # Here documents begin with a special, which is never asked, so that no question is lost but at the end of a row.
    assert mntp.count == mlm.count


# Mixture


def _tagged(rows: int, step: int) -> TokenBatch:
    """Rows that tell which row of the run they are: token 4 + n at position 1."""
    batch = tiny.token_batch([[8]] * rows, 8)
    tokens = batch.tokens.copy()
    tokens[:, 1] = 4 + (step * rows + np.arange(rows)) % 96
    return dataclasses.replace(batch, tokens=tokens)


def _owners(notation: str, rows: int, steps: int) -> list[int]:
    """For each row of a run the number of the objective it got."""
    objective = _objective(notation)
    assert isinstance(objective, Mixture)
    owners = []
    for step in range(steps):
        found: dict[int, LMBatch] = {}
        for part in objective(_tagged(rows, step), VOCABULARY, 0, step):
            # What stood there before masking: the label where masking asked, else the input.
            masked = (part.labels != IGNORE) & (part.attention != CAUSAL)
            for tag in np.where(masked, part.labels, part.inputs)[:, 1]:
                assert int(tag) not in found
                found[int(tag)] = part
        assert len(found) == rows
        owners += [_number(objective, found[4 + (step * rows + row) % 96]) for row in range(rows)]
    return owners


def _number(mixture: Mixture, part: LMBatch) -> int:
    kinds = [CAUSAL if isinstance(objective, CLM) else BIDIRECTIONAL for objective, _ in mixture.parts]
    return kinds.index(part.attention)


@pytest.mark.parametrize(
    ("notation", "weights"),
    [
        ("mix(clm: 1, mlm(0.4): 15)", [1, 15]),
        ("mix(mlm(0.2): 2, clm: 3)", [2, 3]),
        ("mix(clm: 1, mlm(0.4): 1)", [1, 1]),
    ],
)
@pytest.mark.parametrize("rows", [1, 3, 7, 16])
def test_any_run_of_rows_as_long_as_the_weights_has_the_exact_ratio(
    notation: str, weights: list[int], rows: int
) -> None:
    owners = _owners(notation, rows, -(-80 // rows))
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
    batch = _packed(rows=12)
    mixture = _objective("mix(clm: 1, mlm(0.4): 2)")
    assert isinstance(mixture, Mixture)
    parts = mixture(batch, VOCABULARY, 3, 5)
    alone = [objective(batch, VOCABULARY, 3, 5)[0] for objective, _ in mixture.parts]
    assert sum(len(part.inputs) for part in parts) == 12
    for part, whole in zip(parts, alone, strict=True):
        for labels, inputs in zip(part.labels, part.inputs, strict=True):
            assert any(
                np.array_equal(labels, row) and np.array_equal(inputs, shown)
                for row, shown in zip(whole.labels, whole.inputs, strict=True)
            )


def test_the_rows_of_one_objective_are_spread_out() -> None:
    owners = _owners("mix(clm: 4, mlm(0.4): 12)", 16, 4)
    gaps = np.diff(np.flatnonzero(np.array(owners) == 0))
    assert gaps.max() <= 8


# Ramps


def test_a_ramp_is_linear_over_its_phase() -> None:
    ratio = Ratio(0.3, 0.15)
    assert [ratio.at(progress).start for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.3, 0.225, 0.15])
    mixture = Mixture(((CLM(), 1), (MNTP(ratio), 15)))
    assert mixture.at(0.5) == Mixture(((CLM(), 1), (MNTP(ratio.at(0.5)), 15)))


@pytest.mark.parametrize(
    ("notation", "share"),
    [("clm", 1.0), ("mlm(0.4)", 0.4), ("mntp(0.3 -> 0.15)", 0.225), ("mix(clm: 1, mlm(0.2): 3)", 0.4)],
)
def test_the_asked_share_counts_the_cost(notation: str, share: float) -> None:
    assert Schedule.parse(notation).phases[0].objective.asked_share == pytest.approx(share)


# All


@pytest.mark.parametrize("notation", ["clm", "mlm(0.4)", "mlm(0.4, 80/10/10)", "mntp(0.4)", "mix(clm: 1, mlm(0.4): 2)"])
def test_objectives_are_pure(notation: str) -> None:
    batch = _packed(rows=6)
    before = [np.copy(value) for value in dataclasses.astuple(batch)]
    first = _objective(notation)(batch, VOCABULARY, 0, 2)
    second = _objective(notation)(batch, VOCABULARY, 0, 2)
    for array, copy in zip(dataclasses.astuple(batch), before, strict=True):
        assert np.array_equal(array, copy)
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one.inputs, other.inputs)
        assert np.array_equal(one.labels, other.labels)
        assert one.count == int((one.labels != IGNORE).sum())


def test_rows_of_a_batch_keep_everything_together() -> None:
    (whole,) = MLM(Ratio(0.4, 0.4))(_packed(rows=6), VOCABULARY, 0, 0)
    parts = [whole.rows(slice(start, start + 4)) for start in (0, 4)]
    assert sum(part.count for part in parts) == whole.count
    for name in ("inputs", "labels", "documents", "positions"):
        assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
