"""An encoded document is [BOS] tokens [EOS], and text never becomes a special token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models, pre_tokenizers

from antiphon.config import UserError
from antiphon.data import tokenizer as tokenizers
from antiphon.data.prepare import Prepared
from antiphon.data.tokenizer import Encoder, Tokenizer
from tests import tiny


def test_training_is_reproducible_and_keeps_to_the_size(tmp_path: Path) -> None:
    for name in ("one", "other"):
        tokenizers.train(Tokenizer(vocabulary=350), iter(tiny.texts(0, 100)), tmp_path / name)
    assert Encoder(tmp_path / "one").size == 350
    for name in tokenizers.FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_training_reads_only_the_beginning_of_the_text(tmp_path: Path) -> None:
    read = []

    def texts() -> Any:
        for text in tiny.texts(0, 100):
            read.append(text)
            yield text

    tokenizers.train(Tokenizer(vocabulary=300, train_characters=1000), texts(), tmp_path / "t")
    assert 1000 <= sum(map(len, read)) < 1600


def test_a_document_begins_with_bos_and_ends_with_eos(prepared: Prepared) -> None:
    encoder = prepared.encoder
    for array in encoder.encode(["", "a", *tiny.texts(1, 5)]):
        assert array.dtype == np.uint16
        assert (array[0], array[-1]) == (encoder.bos, encoder.eos)
        assert not np.isin(array[1:-1], encoder.specials).any()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.text(max_size=20), st.sampled_from(["[MASK]", "[PAD]", "[BOS]", "[EOS]", " [MASK] "])), max_size=6
    ).map("".join)
)
def test_any_text_comes_back_and_spells_no_special(prepared: Prepared, text: str) -> None:
    encoder = prepared.encoder
    ids = encoder.encode([text])[0][1:-1]
    assert not np.isin(ids, encoder.specials).any()
    decoded = encoder.fast.decode(ids.tolist(), skip_special_tokens=False)
    # A space is put in front of the first word, as of any other.
    assert decoded in (text, " " + text)


def test_the_specials_are_four(prepared: Prepared) -> None:
    encoder = prepared.encoder
    assert encoder.specials == tuple(sorted({encoder.pad, encoder.bos, encoder.eos, encoder.mask}))
    assert len(encoder.specials) == 4
    assert encoder.size == 320


def test_the_tokenizer_opens_with_transformers(prepared: Prepared) -> None:
    from transformers import AutoTokenizer

    encoder = prepared.encoder
    opened = AutoTokenizer.from_pretrained(prepared.folder / "tokenizer")
    text = tiny.texts(2, 1)[0]
    encoded = opened(text, return_offsets_mapping=True)
    assert encoded["input_ids"] == encoder.encode([text])[0].tolist()
    assert set(encoded) >= {"input_ids", "attention_mask"}
    assert opened.mask_token_id == encoder.mask
    assert opened.pad_token_id == encoder.pad
    words = {text[start:stop].strip() for start, stop in encoded["offset_mapping"]} - {""}
    assert all(word in text for word in words)
    assert "".join(text[start:stop] for start, stop in encoded["offset_mapping"]) == text
    assert opened.decode(encoded["input_ids"], skip_special_tokens=True).strip() == text
    pair = opened("a", "b")["input_ids"]
    assert [pair[0], pair[-1], pair.count(encoder.eos)] == [encoder.bos, encoder.eos, 2]


@pytest.mark.parametrize(
    ("text", "expected", "offsets"),
    [
        ("the [MASK] of", ["Ġthe", "[MASK]", "Ġof"], [(0, 3), (3, 10), (10, 13)]),
        ("the [MASK].", ["Ġthe", "[MASK]", "."], [(0, 3), (3, 10), (10, 11)]),
        ("[MASK] of the", ["[MASK]", "Ġof", "Ġthe"], [(0, 6), (6, 9), (9, 13)]),
        ("the [MASK] [MASK] of", ["Ġthe", "[MASK]", "[MASK]", "Ġof"], [(0, 3), (3, 10), (10, 17), (17, 20)]),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_mask_that_a_user_types_takes_the_place_of_a_word(
    tmp_path: Path, text: str, expected: list[str], offsets: list[tuple[int, int]], again: bool
) -> None:
    from transformers import AutoTokenizer

    tokenizers.train(Tokenizer(vocabulary=400), ["the cat of the house. " * 9, "of the cat."], tmp_path / "t")
    opened = AutoTokenizer.from_pretrained(tmp_path / "t")
    if again:
        opened.save_pretrained(tmp_path / "again")
        opened = AutoTokenizer.from_pretrained(tmp_path / "again")
    encoder = Encoder(tmp_path / "t")
    encoded = opened(text, return_offsets_mapping=True)
    assert encoded["input_ids"][1:-1] == [encoder.fast.token_to_id(token) for token in expected]
    assert encoded["offset_mapping"][1:-1] == offsets
    # What pretraining shows: the same words, one of them replaced.
    ids = encoder.encode([text.replace("[MASK]", "cat")])[0]
    assert np.where(ids == encoder.fast.token_to_id("Ġcat"), encoder.mask, ids).tolist() == encoded["input_ids"]


def _bring(folder: Path, vocabulary: dict[str, int], settings: dict[str, Any]) -> Path:
    folder.mkdir()
    fast = FastTokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    fast.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


WORDS = {"[UNK]": 0, "[PAD]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
NAMES = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": {"content": "[MASK]"}}


def test_a_tokenizer_of_another_make_can_be_brought(tmp_path: Path) -> None:
    encoder = Encoder(_bring(tmp_path / "t", WORDS, NAMES))
    assert encoder.encode(["a b"])[0].tolist() == [2, 5, 6, 3]
    assert (encoder.pad, encoder.mask, encoder.size) == (1, 4, 7)


def test_the_size_covers_every_id(tmp_path: Path) -> None:
    # Ids may have gaps; the embedding needs a row for the largest.
    encoder = Encoder(_bring(tmp_path / "t", WORDS | {"c": 40}, NAMES))
    assert encoder.encode(["c"])[0].tolist() == [2, 40, 3]
    assert encoder.size == 41


@pytest.mark.parametrize("missing", ["pad_token", "cls_token", "sep_token", "mask_token"])
def test_a_tokenizer_without_a_special_is_refused(tmp_path: Path, missing: str) -> None:
    folder = _bring(tmp_path / "t", WORDS, {name: token for name, token in NAMES.items() if name != missing})
    with pytest.raises(UserError, match=missing):
        Encoder(folder)


def test_a_mask_token_that_is_not_in_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no mask token"):
        Encoder(_bring(tmp_path / "t", WORDS, NAMES | {"mask_token": "<mask>"}))


@pytest.mark.parametrize("name", tokenizers.FILES)
def test_a_folder_without_the_files_is_refused(tmp_path: Path, name: str) -> None:
    folder = _bring(tmp_path / "t", WORDS, NAMES)
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"no {name} there"):
        Encoder(folder)
    with pytest.raises(UserError, match=f"no {name} there"):
        tokenizers.revision(Tokenizer(path=str(folder)))


@pytest.mark.parametrize("name", tokenizers.FILES)
def test_a_file_that_is_damaged_is_named(tmp_path: Path, name: str) -> None:
    folder = _bring(tmp_path / "t", WORDS, NAMES)
    (folder / name).write_text("{broken", encoding="utf-8")
    with pytest.raises(UserError, match=name):
        Encoder(folder)
