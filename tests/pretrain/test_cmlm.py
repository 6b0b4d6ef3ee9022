"""The number of asked tokens of a document is uniform, and so is which ones."""

from __future__ import annotations

import numpy as np
import scipy.stats

from antiphon.pretrain.objective import BIDIRECTIONAL, IGNORE
from tests import tiny
from tests.pretrain.asking import VOCABULARY, askable, objective, packed


def test_the_number_of_asked_tokens_is_uniform_from_1_to_all() -> None:
    batch = tiny.token_batch([[10, 10]] * 1000, 20)
    (part,) = objective("cmlm")(batch, VOCABULARY, 0, 0)
    asked = (part.labels != IGNORE).reshape(2000, 10)
    numbers = np.bincount(asked.sum(axis=1), minlength=11)
    assert numbers[0] == 0
    assert scipy.stats.chisquare(numbers[1:]).pvalue > 1e-4
    # Each place is as likely: five and a half of ten; the documents of a row draw on their own.
    assert scipy.stats.chisquare(asked.sum(axis=0)).pvalue > 1e-4
    sizes = asked.sum(axis=1).reshape(1000, 2)
    assert abs(np.corrcoef(sizes.T)[0, 1]) < 4 / np.sqrt(1000)


def test_each_document_is_asked_something_and_only_ordinary_tokens_are() -> None:
    batch = packed()
    (part,) = objective("cmlm")(batch, VOCABULARY, 0, 0)
    asked = part.labels != IGNORE
    assert part.attention == BIDIRECTIONAL
    assert not (asked & ~askable(batch)).any()
    for row in range(len(batch.tokens)):
        for number in range(batch.documents[row].max() + 1):
            assert asked[row, batch.documents[row] == number].any()
    assert (part.inputs[asked] == VOCABULARY.mask).all()


def test_a_document_of_specials_alone_is_asked_nothing() -> None:
    batch = tiny.token_batch([[2, 6], [0]], 8)
    batch.tokens[0, :2] = 1, 2
    (part,) = objective("cmlm")(batch, VOCABULARY, 0, 0)
    assert part.count >= 1
    assert (part.labels[0, :2] == IGNORE).all()
    assert (part.labels[1] == IGNORE).all()
