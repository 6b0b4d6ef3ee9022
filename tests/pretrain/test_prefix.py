"""A prefix is read both ways, the rest is asked token by token."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from antiphon.data.batches import PADDING
from antiphon.pretrain.objective import IGNORE, PREFIX
from tests import tiny
from tests.pretrain.asking import VOCABULARY, objective, packed


@pytest.mark.parametrize("notation", ["prefix(0.1)", "prefix(0.5)", "prefix(0.9)"])
def test_each_document_has_a_prefix_and_the_rest_of_it_is_asked(notation: str) -> None:
    batch = packed()
    for step in range(5):
        (part,) = objective(notation)(batch, VOCABULARY, 0, step)
        assert part.attention == PREFIX
        assert part.opened is not None
        assert not part.opened[batch.documents == PADDING].any()
        for row in range(len(batch.tokens)):
            for number in range(batch.documents[row].max() + 1):
                places = np.flatnonzero(batch.documents[row] == number)
                opened = part.opened[row, places]
                size = int(opened.sum())
                assert opened[:size].all()
                assert size < len(places)
                # The last of the prefix answers the first of the rest, and the last of all answers nothing.
                expected = np.full(len(places), IGNORE)
                expected[max(size - 1, 0) : -1] = batch.tokens[row, places[max(size, 1) :]]
                assert np.array_equal(part.labels[row, places], expected)


@pytest.mark.parametrize(("ratio", "least", "most"), [(0.5, 0.0, 1.0), (0.75, 0.5, 1.0), (0.2, 0.0, 0.4)])
def test_the_share_of_the_prefix_is_uniform_about_its_mean(ratio: float, least: float, most: float) -> None:
    batch = tiny.token_batch([[500, 500]] * 500, 1000)
    (part,) = objective(f"prefix({ratio})")(batch, VOCABULARY, 0, 0)
    assert part.opened is not None
    shares = part.opened.reshape(1000, 500).mean(axis=1)
    assert shares.mean() == pytest.approx(ratio, abs=4 * (most - least) / np.sqrt(12 * 1000))
    found = scipy.stats.kstest(shares, scipy.stats.uniform(least, most - least).cdf)
    assert found.pvalue > 1e-4  # pyright: ignore[reportAttributeAccessIssue]
    # Documents of one row draw on their own.
    assert abs(np.corrcoef(shares[::2], shares[1::2])[0, 1]) < 4 / np.sqrt(500)


def test_short_documents_keep_something_to_ask() -> None:
    batch = tiny.token_batch([[1, 2, 3, 1], [2, 2, 2, 1]], 8)
    for step in range(20):
        (part,) = objective("prefix(0.9)")(batch, VOCABULARY, 0, step)
        # Each document of two or more tokens is asked for its last at least.
        assert part.count >= 5
        assert (part.labels[:, 1] != IGNORE).any()


def test_a_prefix_ramps() -> None:
    assert str(objective("prefix(0.6 -> 0.2)", 0.5)) == "prefix(0.4)"
