"""Where words begin, told from the tokens of a tokenizer alone.

A word is what stands between blanks: the blank before a word belongs to it, and so does a punctuation mark that
touches it. Tokens of byte-level and Metaspace tokenizers carry their blanks ("Ġthe", "▁the"), so that this can be read
off. WordPiece only marks what continues ("##ing"): there a word is what the tokenizer splits first, which makes each
punctuation mark a word of its own.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from antiphon.config import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as FastTokenizer

BYTE = re.compile(r"<0x([0-7][0-9A-F])>")


@dataclasses.dataclass(frozen=True)
class Words:
    """Two facts about every token.

    Attributes:
        starts: (V,) bool, whether a word begins with the token.
        stops: (V,) bool, whether the next token begins a word whatever it is: ".\\n" is a token of some vocabularies.
    """

    starts: np.ndarray
    stops: np.ndarray

    def begin(self, tokens: np.ndarray) -> np.ndarray:
        """(B, T) bool: which tokens begin a word; at the beginning of a document one always begins, which is not told.

        Args:
            tokens: (B, T) integers.
        """
        begin = self.starts[tokens]
        begin[:, 1:] |= self.stops[tokens[:, :-1]]
        return begin


def find(fast: FastTokenizer) -> Words:
    """The words of a tokenizer.

    Raises:
        UserError: its tokens do not tell where words begin.
    """
    vocabulary = fast.get_vocab(with_added_tokens=True)
    starts = np.zeros(max(vocabulary.values()) + 1, dtype=bool)
    stops = np.zeros_like(starts)
    spec = json.loads(fast.to_str())
    if spec["model"]["type"] == "WordPiece":
        prefix = spec["model"]["continuing_subword_prefix"]
        for token, index in vocabulary.items():
            starts[index] = not token.startswith(prefix)
        return Words(starts, stops)
    plain = _plain(spec)
    added = {index: token.content for index, token in fast.get_added_tokens_decoder().items()}
    for token, index in vocabulary.items():
        text = added[index] if index in added else plain(token)
        starts[index] = text[:1].isspace()
        # Nothing but blanks goes with the word behind: rare words often are "▁" and their letters.
        stops[index] = text[-1:].isspace() and not text.isspace()
    return Words(starts, stops)


def _plain(spec: dict[str, Any]) -> Callable[[str], str]:
    """What turns a token into its text, blanks in front included."""
    from tokenizers import decoders

    steps = [*_steps(spec["pre_tokenizer"], "pretokenizers"), *_steps(spec["decoder"], "decoders")]
    # First, since a Metaspace in front of it may only put a blank before the text.
    if any(step["type"] == "ByteLevel" for step in steps):
        decoder = decoders.ByteLevel()
        return lambda token: decoder.decode([token])
    for step in steps:
        blank = None
        if step["type"] == "Metaspace":
            blank = step["replacement"]
        elif step["type"] == "Replace" and step["content"] == " ":
            blank = step["pattern"].get("String")
        if blank is not None:
            return lambda token: BYTE.sub(lambda byte: chr(int(byte[1], 16)), token).replace(blank, " ")
    raise UserError(
        f"the tokenizer does not tell where words begin ({spec['model']['type']}, neither WordPiece nor byte-level nor "
        "with a mark such as '▁' for blanks), so whole words cannot be masked; mask tokens or spans, as in mlm(0.3) or "
        "mlm(0.3, spans 1-3)"
    )


def _steps(part: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    """The parts of a sequence, or the one part there is."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [step for each in part[inner] for step in _steps(each, inner)]
