"""Masking: how many are asked, what they are shown as, and what is asked as one."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import scipy.stats

from antiphon.data.batches import TokenBatch
from antiphon.pretrain.grain import GeometricSpans, Grain, Spans, Tokens, Words
from antiphon.pretrain.masking import MLM, MNTP, Fate
from antiphon.pretrain.objective import BIDIRECTIONAL, IGNORE, Ratio
from tests import tiny
from tests.pretrain.asking import VOCABULARY, askable, packed

GRAINS: list[Grain] = [Tokens(), Words(), Spans(1, 3), Spans(5, 5), GeometricSpans(3), GeometricSpans(5, 10)]

# Documents without specials, and one that has them within.
BARE = tiny.token_batch([[7, 6, 5] * 3] * 64, 64)
SPRINKLED = tiny.token_batch([[64]] * 64, 64)
SPRINKLED.tokens[:, 3::5] = 2

# One by one


@pytest.mark.parametrize("ratio", [0.05, 0.15, 0.4, 0.9])
def test_mlm_asks_the_ratio_of_the_askable_tokens(ratio: float) -> None:
    batch = packed()
    total = count = 0
    for step in range(20):
        (asked,) = MLM(Ratio(ratio, ratio))(batch, VOCABULARY, 0, step)
        total, count = total + int(askable(batch).sum()), count + asked.count
    assert abs(count - ratio * total) < 4 * math.sqrt(ratio * (1 - ratio) * total)


@pytest.mark.parametrize("fate", [Fate(), Fate(80, 10, 10), Fate(0, 100, 0), Fate(0, 0, 100)])
def test_mlm_asks_no_special_and_no_padding_and_leaves_the_unasked_alone(fate: Fate) -> None:
    batch = packed()
    for step in range(20):
        (asked,) = MLM(Ratio(0.4, 0.4), fate)(batch, VOCABULARY, 0, step)
        asking = asked.labels != IGNORE
        assert not (asking & ~askable(batch)).any()
        assert np.array_equal(asked.inputs[~asking], batch.tokens[~asking])
        assert np.array_equal(asked.labels[asking], batch.tokens[asking])
        assert asked.attention == BIDIRECTIONAL
        assert np.array_equal(asked.documents, batch.documents)
        assert np.array_equal(asked.positions, batch.positions)


def test_mlm_shows_the_mask_token_by_default() -> None:
    (asked,) = MLM(Ratio(0.4, 0.4))(packed(), VOCABULARY, 0, 0)
    assert (asked.inputs[asked.labels != IGNORE] == VOCABULARY.mask).all()


def test_mlm_80_10_10_by_chi_square() -> None:
    batch = packed()
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
    batch = packed()
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
    batch = packed()
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


# In groups


@pytest.mark.parametrize("grain", GRAINS, ids=str)
@pytest.mark.parametrize("ratio", [0.1, 0.5])
def test_every_askable_token_is_asked_with_the_ratio_wherever_it_stands(grain: Grain, ratio: float) -> None:
    batch = packed(rows=400)
    free = askable(batch)
    ask = MLM(Ratio(ratio, ratio), grain=grain)
    counts = np.sum([ask(batch, VOCABULARY, 1, step)[0].labels != IGNORE for step in range(10)], axis=0)
    # Over all: rows are independent, so their sums tell the spread, whatever is asked as one.
    over = (counts - 10 * ratio * free).sum(axis=1)
    assert abs(over.sum()) < 4 * math.sqrt((over**2).sum())
    # At each place of the row, at the borders of documents as within: 3.3 standard deviations for 64 places.
    for rows in (slice(0, None, 2), slice(1, None, 2)):
        trials = 10 * free[rows].sum(axis=0)
        found = counts[rows].sum(axis=0)
        spread = np.sqrt(ratio * (1 - ratio) * np.maximum(trials, 1))
        assert (np.abs(found - ratio * trials) / spread).max() < 4.5


@pytest.mark.parametrize("grain", GRAINS[1:], ids=str)
@pytest.mark.parametrize("batch", [packed(), BARE, SPRINKLED], ids=["around", "none", "within"])
def test_a_group_is_asked_whole_and_ends_at_documents_and_specials(grain: Grain, batch: TokenBatch) -> None:
    free = askable(batch)
    starts = grain.starts(batch, VOCABULARY, 2, 3)
    assert starts is not None
    (part,) = MLM(Ratio(0.5, 0.5), grain=grain)(batch, VOCABULARY, 2, 3)
    asked = part.labels != IGNORE
    chances = []
    for row in range(64):
        group: list[bool] = []
        for place in range(65):
            ends = place == 64 or not free[row, place]
            if group and (ends or starts[row, place] or batch.documents[row, place] != batch.documents[row, place - 1]):
                assert len(set(group)) == 1
                chances.append(group[0])
                group = []
            if not ends:
                group.append(bool(asked[row, place]))
    # And each group is on its own: neighbours, also across a border, agree half of the time.
    agree = np.mean(np.array(chances[1:]) == np.array(chances[:-1]))
    assert abs(agree - 0.5) < 4 * 0.5 / math.sqrt(len(chances))


@pytest.mark.parametrize(
    ("grain", "probabilities"),
    [
        (Spans(1, 3), np.full(3, 1 / 3)),
        (Spans(4, 4), np.array([0, 0, 0, 1.0])),
        (GeometricSpans(3), scipy.stats.geom.pmf(np.arange(1, 60), 1 / 3)),
        (GeometricSpans(5, 10), scipy.stats.geom.pmf(np.arange(1, 11), 1 / 5) / scipy.stats.geom.cdf(10, 1 / 5)),
    ],
    ids=["spans 1-3", "spans 4-4", "spans ~3", "spans ~5 up to 10"],
)
def test_the_lengths_of_spans_have_their_distribution(grain: Grain, probabilities: np.ndarray) -> None:
    starts = grain.starts(tiny.token_batch([[100]] * 1000, 100), VOCABULARY, 0, 0)
    assert starts is not None
    lengths = np.diff(np.flatnonzero(starts))
    assert lengths.max() <= len(probabilities)
    found = np.bincount(lengths, minlength=len(probabilities) + 1)[1:]
    expected = probabilities * len(lengths)
    many = expected > 20
    chi_square = (((found - expected) ** 2)[many] / expected[many]).sum()
    assert chi_square < scipy.stats.chi2(max(many.sum() - 1, 1)).ppf(0.9999)


def test_spanberts_spans_are_3_8_tokens_on_average() -> None:
    starts = GeometricSpans(5, 10).starts(tiny.token_batch([[100]] * 1000, 100), VOCABULARY, 0, 0)
    assert starts is not None
    assert np.diff(np.flatnonzero(starts)).mean() == pytest.approx(3.8, abs=0.05)


@pytest.mark.parametrize("grain", [Words(), Spans(3, 3)], ids=str)
def test_a_span_has_one_fate_and_each_token_of_a_word_its_own(grain: Grain) -> None:
    batch = tiny.token_batch([[60]] * 200, 60)
    starts = grain.starts(batch, VOCABULARY, 0, 0)
    assert starts is not None
    (part,) = MLM(Ratio(0.9, 0.9), Fate(50, 0, 50), grain)(batch, VOCABULARY, 0, 0)
    asked, masked = part.labels != IGNORE, part.inputs == VOCABULARY.mask
    inside = ~starts[:, 1:] & asked[:, 1:] & asked[:, :-1]
    same = (masked[:, 1:] == masked[:, :-1])[inside]
    if isinstance(grain, Spans):
        assert same.all()
    else:
        assert abs(same.mean() - 0.5) < 4 * 0.5 / math.sqrt(len(same))


@pytest.mark.parametrize("grain", GRAINS, ids=str)
def test_80_10_10_holds_whatever_is_asked_as_one(grain: Grain) -> None:
    batch = packed()
    counts = np.zeros(3)
    for step in range(60):
        (part,) = MLM(Ratio(0.4, 0.4), Fate(80, 10, 10), grain)(batch, VOCABULARY, 0, step)
        asking = part.labels != IGNORE
        shown, answer = part.inputs[asking], part.labels[asking]
        kinds = [shown == VOCABULARY.mask, shown == answer]
        counts += [kinds[0].sum(), kinds[1].sum(), (~kinds[0] & ~kinds[1]).sum()]
    expected = np.array([0.8, 0.1 + 0.1 / 96, 0.1 * 95 / 96]) * counts.sum()
    # Tokens of one span share their fate, so that there are fewer draws than tokens: at most 10 to a draw.
    assert ((counts - expected) ** 2 / expected).sum() < 13.8 * (10 if grain.one_fate else 1)


@pytest.mark.parametrize("grain", GRAINS, ids=str)
def test_the_edges_of_shapes_are_no_trouble(grain: Grain) -> None:
    for batch in (tiny.token_batch([[1]], 1), tiny.token_batch([[0], [0]], 4), tiny.token_batch([[1, 1, 1, 1]], 4)):
        (part,) = MLM(Ratio(0.999, 0.999), grain=grain)(batch, VOCABULARY, 0, 0)
        assert part.count <= askable(batch).sum()
