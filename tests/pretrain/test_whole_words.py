"""Whole words with a real tokenizer: all tokens of a word are asked, and none of its neighbours'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from antiphon.config import UserError
from antiphon.data import tokenizer
from antiphon.data.batches import PADDING, TokenBatch
from antiphon.data.tokenizer import Encoder
from antiphon.pretrain.objective import IGNORE, Vocabulary
from tests import tiny
from tests.pretrain.asking import objective


@pytest.mark.parametrize("notation", ["mlm(0.3, whole words)", "mntp(0.3, whole words, 80/10/10)"])
def test_the_asked_words_of_a_text_are_whole(tmp_path: Path, notation: str) -> None:
    texts = tiny.texts(3, 40)
    tokenizer.train(tokenizer.Tokenizer(vocabulary=300), texts, tmp_path)
    encoder = Encoder(tmp_path)
    vocabulary = Vocabulary.of(encoder)
    asked_words = all_words = 0
    for step, text in enumerate(texts):
        (tokens,) = encoder.encode([text])
        row = np.concatenate([tokens, [encoder.pad] * 5])[None]
        documents = np.where(np.arange(row.size) < len(tokens), 0, PADDING)[None]
        batch = TokenBatch(row, documents, np.arange(row.size)[None])
        (part,) = objective(notation)(batch, vocabulary, 0, step)
        asked = part.labels[0] != IGNORE
        if notation.startswith("mntp"):
            asked = np.concatenate([[False], asked[:-1]])
        # Which word each token of the text belongs to, told by the blanks before it.
        spelled = [encoder.fast.decode([token], skip_special_tokens=False) for token in tokens[1:-1]]
        assert "".join(spelled).strip() == text
        number = np.cumsum([index == 0 or piece.startswith(" ") for index, piece in enumerate(spelled)]) - 1
        assert number[-1] + 1 == len(text.split())
        for word in range(number[-1] + 1):
            chosen = asked[1 : len(tokens) - 1][number == word]
            assert chosen.all() or not chosen.any()
            asked_words += bool(chosen.all())
        all_words += int(number[-1]) + 1
        assert not asked[0]
        assert not asked[len(tokens) - 1 :].any()
    assert abs(asked_words - 0.3 * all_words) < 4 * np.sqrt(0.21 * all_words)


def test_whole_words_need_to_know_the_tokenizer() -> None:
    batch = tiny.token_batch([[8]], 8)
    with pytest.raises(UserError, match="whole words need a tokenizer"):
        objective("mlm(0.3, whole words)")(batch, Vocabulary(100, 3, (0, 1, 2, 3)), 0, 0)
