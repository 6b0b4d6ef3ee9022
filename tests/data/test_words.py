"""Where words begin, against the blanks of the text itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as FastTokenizer

from antiphon.config import UserError
from antiphon.data import tokenizer, words
from antiphon.data.tokenizer import Encoder

SPECIALS = ["[UNK]", "[PAD]", "[BOS]", "[EOS]", "[MASK]"]
TEXT = (
    'The choir answers, doesn\'t it? (Yes: 42 voices.) A well-known antiphon -- "O Sapientia" -- begins; '
    "unsingable misunderstandings remain.  Two blanks, a tab\tand naïve café Ünïcode 東京 🙂🙃 end."
)
LINES = TEXT.replace("; ", ";\n").replace(".) ", ".)\n\n").replace("remain.", "remain.\r\n")
TRAINING = [TEXT, LINES, "answers choirs sing, begin and remain; voices end."] * 4


def _bpe_of_ours(folder: Path) -> FastTokenizer:
    tokenizer.train(tokenizer.Tokenizer(vocabulary=330), TRAINING, folder)
    return FastTokenizer.from_file(str(folder / "tokenizer.json"))


def _byte_level(folder: Path) -> FastTokenizer:
    """As GPT-2 and RoBERTa have it."""
    fast = FastTokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    fast.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    fast.train_from_iterator(
        TRAINING,
        trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, special_tokens=SPECIALS, show_progress=False),
    )
    return fast


def _byte_level_with_line_ends(folder: Path) -> FastTokenizer:
    """As Llama 3 and EuroBERT have it: marks and the line ends behind them are one piece."""
    fast = FastTokenizer(models.BPE())
    split = pre_tokenizers.Split(
        Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"
    )
    fast.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    fast.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    fast.train_from_iterator(
        TRAINING,
        trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, special_tokens=SPECIALS, show_progress=False),
    )
    assert any(token.endswith("Ċ") and token.strip("Ċč") for token in fast.get_vocab())
    return fast


def _unigram(folder: Path) -> FastTokenizer:
    """As T5 and XLM-R have it."""
    fast = FastTokenizer(models.Unigram())
    fast.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    fast.decoder = decoders.Metaspace()  # pyright: ignore[reportAttributeAccessIssue]
    fast.train_from_iterator(
        TRAINING,
        trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIALS, unk_token="[UNK]", show_progress=False),
    )
    return fast


def _sentencepiece_bpe(folder: Path) -> FastTokenizer:
    """As Llama 2 and Gemma have it: blanks are replaced before, bytes stand for what is rare."""
    fast = FastTokenizer(models.BPE(byte_fallback=True))
    fast.pre_tokenizer = pre_tokenizers.Metaspace()  # pyright: ignore[reportAttributeAccessIssue]
    every = [f"<0x{byte:02X}>" for byte in range(256)]
    fast.train_from_iterator(
        [text.replace("\n", " ").replace("\r", " ").replace("\t", " ") for text in TRAINING],
        trainers.BpeTrainer(vocab_size=370, special_tokens=[*SPECIALS, *every], show_progress=False),
    )
    spec = json.loads(fast.to_str())
    spec["pre_tokenizer"] = None
    spec["added_tokens"] = spec["added_tokens"][: len(SPECIALS)]
    bare = FastTokenizer.from_str(json.dumps(spec))
    bare.normalizer = normalizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    bare.decoder = decoders.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return bare


def _wordpiece(folder: Path) -> FastTokenizer:
    """As BERT has it."""
    fast = FastTokenizer(models.WordPiece(unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # pyright: ignore[reportAttributeAccessIssue]
    fast.decoder = decoders.WordPiece()  # pyright: ignore[reportAttributeAccessIssue]
    fast.train_from_iterator(
        TRAINING, trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIALS, show_progress=False)
    )
    return fast


KINDS = [_bpe_of_ours, _byte_level, _byte_level_with_line_ends, _unigram, _sentencepiece_bpe, _wordpiece]


def _expected(fast: FastTokenizer, text: str) -> list[str]:
    if json.loads(fast.to_str())["model"]["type"] == "WordPiece":
        # Each punctuation mark is a word of its own there.
        return [piece for piece, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)]
    return text.split()


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("text", [TEXT, LINES, "one", " a\nb\n\nc.\n\nd.e "])
def test_words_are_those_of_the_text(tmp_path: Path, make: Callable[[Path], FastTokenizer], text: str) -> None:
    fast = make(tmp_path)
    encoding = fast.encode(text, add_special_tokens=False)
    begin = words.find(fast).begin(np.array([encoding.ids]))[0]
    begin[0] = True
    found: list[list[int]] = []
    for (start, stop), first in zip(encoding.offsets, begin, strict=True):
        if first:
            found.append([start, stop])
        found[-1][1] = stop
    # Groups of nothing but blanks may stand between words.
    spelled = [text[start:stop].strip() for start, stop in found]
    assert [word for word in spelled if word] == _expected(fast, text)
    if len(text) > 100:
        # So that this says something: many words are of several tokens.
        assert len(encoding.ids) > len(spelled) + 4


def test_an_encoder_knows_its_words(tmp_path: Path) -> None:
    _bpe_of_ours(tmp_path)
    encoder = Encoder(tmp_path)
    assert encoder.words is encoder.words
    assert encoder.words.starts.shape == encoder.words.stops.shape == (encoder.size,)
    (tokens,) = encoder.encode(["answers misunderstandings"])
    begin = encoder.words.begin(tokens[None])[0]
    assert begin[1]
    assert begin[2:-1].sum() == 1


def test_an_added_token_is_read_as_it_is_written(tmp_path: Path) -> None:
    fast = _byte_level(tmp_path)
    fast.add_tokens([AddedToken("  ", normalized=False), AddedToken("Ġx", normalized=False)])
    found = words.find(fast)
    assert found.starts[fast.token_to_id("  ")]
    assert not found.starts[fast.token_to_id("Ġx")]


def test_a_tokenizer_that_does_not_tell_is_refused() -> None:
    fast = FastTokenizer(models.BPE({"a": 0}, []))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UserError, match=re.escape("does not tell where words begin (BPE, neither WordPiece")):
        words.find(fast)
