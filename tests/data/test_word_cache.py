"""Words that are remembered have the ids that the library gives, whatever the text."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as FastTokenizer

from antiphon.data import word_cache as caches
from antiphon.data.prepare import Prepared
from antiphon.data.word_cache import WordCache, word_cache
from tests import tiny

DTYPE = np.dtype(np.uint16)
PIECES = st.sampled_from(
    [
        *("don't", "'s", "'", "'S", " ", "  ", "word", " word", "12", "a1", "_", "[MASK]", "<s>"),
        *("\n", "\t", "\r\n", "\x00", "\x1c", "\x85", "\xa0", "\u2028", "\u3000", "\u200b"),
        *("Ünï", "漢字", "e\u0301", "١٢", "²", "½", "Ⅷ", "🙂", "👩\u200d👩\u200d👧", "ǅ"),
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=30))


def _trained(pre_tokenizer: pre_tokenizers.PreTokenizer) -> FastTokenizer:
    fast = FastTokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizer  # pyright: ignore[reportAttributeAccessIssue]
    fast.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["[PAD]"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(tiny.texts(0, 50), trainer)
    fast.encode_special_tokens = True
    return fast


def _ids(cache: WordCache, text: str) -> list[int]:
    return np.frombuffer(cache.encode(text), DTYPE).tolist()


def _library(fast: FastTokenizer, text: str) -> list[int]:
    return fast.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="module")
def spaced() -> FastTokenizer:
    return _trained(pre_tokenizers.ByteLevel(add_prefix_space=True))


@pytest.fixture(scope="module")
def bare() -> FastTokenizer:
    return _trained(pre_tokenizers.ByteLevel(add_prefix_space=False))


@pytest.mark.parametrize("kind", ["own", "spaced", "bare"])
@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_any_text_has_the_ids_of_the_library(
    prepared: Prepared, spaced: FastTokenizer, bare: FastTokenizer, kind: str, text: str
) -> None:
    fast = {"own": prepared.encoder.fast, "spaced": spaced, "bare": bare}[kind]
    cache = word_cache(fast, DTYPE)
    assert cache is not None
    if text:
        for _ in range(2):  # new words, and words it knows
            assert _ids(cache, text) == _library(fast, text)


def test_every_character_is_of_the_kind_the_library_sees(bare: FastTokenizer) -> None:
    cache = word_cache(bare, DTYPE)
    assert cache is not None
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # Every 7th, and all that are space or number, among which the tables of two Unicode versions may differ.
    codes = [
        code
        for code in range(sys.maxunicode + 1)
        if not 0xD800 <= code < 0xE000 and (code % 7 == 0 or unicodedata.category(chr(code))[0] in "ZN" or code < 300)
    ]
    for first in range(0, len(codes), 4000):
        text = "".join(f"a{chr(code)}1{chr(code)}! {chr(code)} " for code in codes[first : first + 4000])
        spans = [span for _, span in cut.pre_tokenize_str(text)]
        ends = np.cumsum([len(word) for word in cache.words(text)]).tolist()
        assert sorted({stop for _, stop in spans}) == ends


def test_memory_is_bounded(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "WORDS", 50)
    cache = word_cache(prepared.encoder.fast, DTYPE)
    assert cache is not None
    for text in [*tiny.texts(0, 100), "x" * 1000]:
        assert _ids(cache, text) == _library(prepared.encoder.fast, text)
        assert len(cache) <= 50
        assert max(map(len, cache)) <= 64


def test_tokenizers_of_other_forms_are_left_to_the_library() -> None:
    def fresh() -> FastTokenizer:
        return _trained(pre_tokenizers.ByteLevel(add_prefix_space=False))

    normalized, added, cut, dropping = fresh(), fresh(), fresh(), fresh()
    normalized.normalizer = normalizers.NFC()  # pyright: ignore[reportAttributeAccessIssue]
    added.add_tokens([AddedToken("ab", special=False)])
    split = pre_tokenizers.Split(" ", "isolated")
    cut.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    dropping.model.dropout = 0.1  # pyright: ignore[reportAttributeAccessIssue]
    word = FastTokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    for fast in (normalized, added, cut, dropping, word):
        assert word_cache(fast, DTYPE) is None


def test_a_tokenizer_of_another_form_encodes_through_the_library(prepared: Prepared, tmp_path: Path) -> None:
    from antiphon.data.tokenizer import Encoder

    encoder = Encoder(prepared.folder / "tokenizer")
    expected = encoder.encode(tiny.texts(0, 5))
    other = Encoder(prepared.folder / "tokenizer")
    other.__dict__["_cache"] = None
    for one, same in zip(expected, other.encode(tiny.texts(0, 5)), strict=True):
        assert np.array_equal(one, same)
        assert one.dtype == same.dtype
