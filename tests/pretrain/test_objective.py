"""The next token, and what an LM batch holds together."""

from __future__ import annotations

import numpy as np
import pytest

from antiphon.data.batches import PADDING
from antiphon.data.prepare import Prepared
from antiphon.pretrain.causal import CLM
from antiphon.pretrain.masking import MLM
from antiphon.pretrain.objective import CAUSAL, IGNORE, Ratio
from antiphon.pretrain.schedule import Schedule
from tests import tiny
from tests.pretrain.asking import VOCABULARY, packed

# CLM


def test_clm_asks_for_the_next_token_of_the_same_document_and_for_nothing_else() -> None:
    batch = packed()
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


# Ramps


def test_a_ramp_is_linear_over_its_phase() -> None:
    ratio = Ratio(0.3, 0.15)
    assert [ratio.at(progress).start for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.3, 0.225, 0.15])


@pytest.mark.parametrize(
    ("notation", "share"),
    [
        ("clm", 1.0),
        ("mlm(0.4)", 0.4),
        ("mntp(0.3 -> 0.15)", 0.225),
        ("mix(clm: 1, mlm(0.2): 3)", 0.4),
        ("prefix(0.75)", 0.25),
    ],
)
def test_the_asked_share_counts_the_cost(notation: str, share: float) -> None:
    assert Schedule.parse(notation).phases[0].objective.asked_share == pytest.approx(share)


# Rows


def test_rows_of_a_batch_keep_everything_together() -> None:
    (whole,) = MLM(Ratio(0.4, 0.4))(packed(rows=6), VOCABULARY, 0, 0)
    parts = [whole.rows(slice(start, start + 4)) for start in (0, 4)]
    assert sum(part.count for part in parts) == whole.count
    for name in ("inputs", "labels", "documents", "positions"):
        assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
