"""What an epoch holds, for one corpus and for mixtures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from antiphon.data.batches import Batches
from antiphon.data.layout import Packing, sources
from antiphon.data.prepare import Prepared
from antiphon.data.supply import Supply, an_epoch, supply
from tests.data.corpora import corpus


def test_one_corpus_is_shown_once(prepared: Prepared) -> None:
    (shards,) = prepared.shards["train"]
    for weight in (1, 7):
        found = supply(prepared.folder, [weight], Packing.CONTIGUOUS, 64)
        assert found == Supply(-(-shards.tokens // 64) * 64, shards.tokens, shards.words)


@pytest.mark.parametrize("way", list(Packing))
@pytest.mark.parametrize("weights", [[1, 1], [1, 9], [5, 2]])
def test_an_epoch_of_a_mixture_shows_as_many_tokens_as_all_hold(
    tmp_path: Path, way: Packing, weights: list[int]
) -> None:
    draws = np.random.default_rng(0)
    corpora = [corpus(tmp_path / str(number), draws.integers(5, 150, size)) for number, size in enumerate((900, 200))]
    laid_out = sources(corpora, weights, way, 64, lambda note: None)
    found = an_epoch(laid_out, 64)
    assert found.tokens == sum(shards.tokens for shards in corpora)
    # Over many epochs, the rows of the run hold what was promised.
    epochs = 20
    shown = Batches(laid_out, 64, 0, 0).take(0, round(epochs * found.slots) // 64, 64)
    assert shown.count == pytest.approx(epochs * found.tokens, rel=0.005)
    assert shown.words == pytest.approx(epochs * found.words, rel=0.005)
