"""Texts as rows, rows as packed grids."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from antiphon.config import UserError
from antiphon.finetune.features import Rows, blocks, encode, open_tokenizer, pack, rows_of, unite

CPU = torch.device("cpu")
lengths_of = st.lists(st.integers(1, 20), min_size=1, max_size=30)


def rows(lengths: list[int]) -> Rows:
    """Rows of distinct tokens."""
    return Rows(np.arange(1, sum(lengths) + 1), np.concatenate([[0], np.cumsum(lengths)]))


@settings(deadline=None, max_examples=60)
@given(lengths_of, st.randoms(use_true_random=False))
def test_packing_keeps_every_token_with_its_row_and_position(lengths: list[int], draws) -> None:
    all_rows = rows(lengths)
    indices = np.array(draws.sample(range(len(lengths)), draws.randint(1, len(lengths))))
    packed = pack(all_rows, indices, CPU)
    inputs, documents, positions = (grid.reshape(-1) for grid in (packed.inputs, packed.documents, packed.positions))
    assert packed.lengths.tolist() == [lengths[index] for index in indices]
    at = 0
    for number, index in enumerate(indices):
        place = packed.places[at : at + lengths[index]]
        expected = all_rows.tokens[all_rows.starts[index] : all_rows.starts[index + 1]]
        assert inputs[place].tolist() == expected.tolist()
        assert set(documents[place].tolist()) == {number}
        assert positions[place].tolist() == list(range(lengths[index]))
        assert len(set((place // packed.inputs.shape[1]).tolist())) == 1, "a row is broken over two lines"
        at += lengths[index]
    padding = torch.ones(inputs.shape[0], dtype=torch.bool)
    padding[packed.places] = False
    assert bool((documents[padding] == -1).all())
    assert int(padding.sum()) == inputs.shape[0] - sum(lengths[index] for index in indices)
    assert packed.inputs.shape[1] == max(lengths[index] for index in indices)
    assert packed.inputs.shape[0] <= len(indices)


def test_short_rows_share_a_line() -> None:
    assert pack(rows([10, 4, 6, 3, 3, 4]), np.arange(6), CPU).inputs.shape == (3, 10)


@settings(deadline=None, max_examples=60)
@given(lengths_of, st.integers(1, 60), st.integers(0, 5))
def test_blocks_hold_every_row_once_and_keep_their_bounds(lengths: list[int], tokens: int, most: int) -> None:
    found = blocks(rows(lengths), tokens, most)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    for block in found:
        longest = max(lengths[index] for index in block)
        assert len(block) == 1 or longest * len(block) <= tokens
        assert not most or len(block) <= most


def test_taking_and_uniting_rows() -> None:
    some = rows([2, 3, 1])
    taken = some.take(np.array([2, 0, 2]))
    assert taken.tokens.tolist() == [6, 1, 2, 6]
    both = unite([taken, some])
    assert both.lengths.tolist() == [1, 2, 1, 2, 3, 1]
    assert both.tokens.tolist() == [6, 1, 2, 6, 1, 2, 3, 4, 5, 6]


def test_a_row_is_the_tokenizers_own_with_specials(tokenizer: Tokenizer) -> None:
    made, cut = encode(tokenizer, ["the model", "one"], 64)
    assert made.tokens[: made.starts[1]].tolist() == tokenizer.encode("the model").ids
    assert made.tokens[0] == tokenizer.token_to_id("[BOS]")
    assert made.tokens[-1] == tokenizer.token_to_id("[EOS]")
    assert cut.tolist() == [False, False]


def test_long_texts_are_cut_and_counted(tokenizer: Tokenizer) -> None:
    made, cut = encode(tokenizer, [" ".join(["the"] * count) for count in (6, 7)], 8)
    assert cut.tolist() == [False, True]
    assert made.lengths.tolist() == [8, 8]
    assert made.tokens[-1] == tokenizer.token_to_id("[EOS]")


def test_a_pair_is_cut_where_it_is_longer(tokenizer: Tokenizer) -> None:
    made, cut = encode(tokenizer, [("the the", "model " * 30)], 16)
    the = tokenizer.encode("the", add_special_tokens=False).ids
    assert len(the) == 1
    assert cut.tolist() == [True]
    assert made.tokens.tolist().count(the[0]) == 2
    assert len(made.tokens) == 16


def test_text_that_spells_a_special_token_does_not_become_one(tokenizer: Tokenizer) -> None:
    made, _ = encode(tokenizer, ["a [MASK] b [EOS]"], 64)
    specials = [tokenizer.token_to_id(name) for name in ("[MASK]", "[EOS]")]
    assert specials[0] not in made.tokens
    assert made.tokens.tolist().count(specials[1]) == 1


def test_padding_and_truncation_written_in_the_file_are_ignored(tokenizer: Tokenizer) -> None:
    tokenizer.enable_padding(length=50)
    tokenizer.enable_truncation(4)
    made, cut = encode(open_tokenizer(tokenizer.to_str()), ["the model returns an array"], 64)
    assert cut.tolist() == [False]
    assert 5 < len(made.tokens) < 50


def test_a_text_without_tokens_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"text number 1 .* has no tokens"):
        rows_of(tokenizer.encode_batch(["the", ""], add_special_tokens=False))
