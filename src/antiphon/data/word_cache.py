"""Encoding by words that were encoded before: the same ids as the tokenizers library gives, several times as fast.

A byte-level BPE cuts text into words by one fixed rule and encodes each by itself, so a word need be encoded only once.
The library says what a new word's ids are and which kind of character it has not seen before is; only the cutting is
done here. Tokenizers of any other form are left to the library.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer as FastTokenizer

# Radford et al. 2019 (GPT-2, encoder.py), for ASCII; other characters are replaced by one of their kind first.
_WORD = re.compile(r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\t-\r A-Za-z0-9]+|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+")
_LETTER, _NUMBER, _SPACE, _OTHER = "a", "0", "\n", "!"

WORDS = 2**19
LONGEST_WORD = 64
"""A longer word will hardly come again."""


class WordCache(dict[str, bytes]):
    """The ids of words, as the bytes of an array.

    Attributes:
        dtype: of the array.
    """

    def __init__(self, fast: FastTokenizer, dtype: np.dtype, spaced: bool) -> None:
        """Begin with no word.

        Args:
            fast: a tokenizer that `word_cache` found to be of the right form.
            dtype: of the ids.
            spaced: whether a text gets a space in front.
        """
        from tokenizers import pre_tokenizers

        super().__init__()
        self.dtype = dtype
        self._model = fast.model
        self._spaced = spaced
        self._whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._kinds = _Kinds()

    def __missing__(self, word: str) -> bytes:
        spelled = "".join(part for part, _ in self._whole.pre_tokenize_str(word))
        found = np.array([token.id for token in self._model.tokenize(spelled)], dtype=self.dtype).tobytes()
        if len(word) <= LONGEST_WORD:
            if len(self) >= WORDS:
                self.clear()
            self[word] = found
        return found

    def encode(self, text: str) -> bytes:
        """The ids of a text, without specials."""
        if self._spaced and not text.startswith(" "):
            text = " " + text
        return b"".join(map(self.__getitem__, self.words(text)))

    def words(self, text: str) -> list[str]:
        """The words of a text; joined they are the text."""
        if text.isascii():
            return _WORD.findall(text)
        ends = accumulate(map(len, _WORD.findall(text.translate(self._kinds))), initial=0)
        return [text[start:end] for start, end in pairwise(ends)]


class _Kinds(dict[int, str]):
    """For each character an ASCII character of its kind, as the library sees it."""

    def __init__(self) -> None:
        from tokenizers import pre_tokenizers

        super().__init__({code: chr(code) for code in range(128)})
        self._cut = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)

    def __missing__(self, code: int) -> str:
        self[code] = self._kind(chr(code))
        return self[code]

    def _kind(self, character: str) -> str:
        first, *others = self._spans(f"a{character}0")
        if first == (0, 2):
            return _LETTER
        if others == [(1, 3)]:
            return _NUMBER
        return _OTHER if len(self._spans(f"!{character}")) == 1 else _SPACE

    def _spans(self, text: str) -> list[tuple[int, int]]:
        return [span for _, span in self._cut.pre_tokenize_str(text)]


def word_cache(fast: FastTokenizer, dtype: np.dtype) -> WordCache | None:
    """A cache for a tokenizer that is a byte-level BPE of the common form; None for any other.

    Args:
        fast: the tokenizer, with `encode_special_tokens` set.
        dtype: of the ids.
    """
    form = json.loads(fast.to_str())
    model, before = form["model"], form["pre_tokenizer"]
    plain = model["type"] == "BPE" and not model.get("dropout") and form["normalizer"] is None
    # Other added tokens are looked for in the text before it is cut.
    if not plain or not all(token["special"] for token in form["added_tokens"]):
        return None
    match before:
        case {"type": "ByteLevel", "use_regex": True, "add_prefix_space": spaced}:
            return WordCache(fast, dtype, spaced)
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Metaspace", "replacement": " ", "prepend_scheme": "first", "split": False},
                {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False},
            ],
        }:
            return WordCache(fast, dtype, True)
    return None
