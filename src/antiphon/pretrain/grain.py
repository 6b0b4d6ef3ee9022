"""What masking asks as one: a token, a span, a word.

Every grain divides the tokens that may be asked into groups, without looking at chance or at what they mean for the
ratio p, and then each group is asked with probability p, independently. So each token is asked with probability p
exactly, whatever the lengths: groups never overlap, and nothing has to be corrected. A group ends where a document
does, at a special token, and at the end of the row; the group's first token draws for all of it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

import numpy as np

from antiphon.data.batches import TokenBatch
from antiphon.draws import generator
from antiphon.pretrain.amount import plain
from antiphon.pretrain.objective import Vocabulary
from antiphon.pretrain.reader import Reader


class Grain(Protocol):
    """The face of a grain; str() gives its notation."""

    @property
    def one_fate(self) -> bool:
        """Whether a group shares its fate; otherwise each of its tokens has its own."""
        ...

    def starts(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> np.ndarray | None:
        """(B, T) bool: where groups begin, besides the borders they never cross; None where every token is one."""
        ...


@dataclasses.dataclass(frozen=True)
class Tokens:
    """Single tokens."""

    one_fate = False

    def starts(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> None:
        return None

    def __str__(self) -> str:
        return ""


@dataclasses.dataclass(frozen=True)
class Words:
    """Whole words, each token with a fate of its own.

    A word is what stands between blanks, so that a punctuation mark goes with the word it touches; with WordPiece,
    whose tokens do not tell blanks, it is what the tokenizer splits first, and a mark is a word of its own. Of a word
    that the row cuts in two each part is a word.

    Source: the whole-word models of Devlin et al. 2019 (github.com/google-research/bert, README, "Whole Word
    Masking"; create_pretraining_data.py draws 80/10/10 for each token). They ask words up to a budget; here each is
    asked with the same probability.
    """

    one_fate = False

    def starts(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> np.ndarray:
        return vocabulary.words.begin(batch.tokens)

    def __str__(self) -> str:
        return "whole words"


@dataclasses.dataclass(frozen=True)
class Spans:
    """Spans of `shortest` to `longest` tokens, every length as likely, each with one fate.

    Source: GPT-BERT (Charpentier and Samuel 2024, arXiv 2410.24159), whose code lays spans of 1 to 3 tokens end to end
    and draws the mask and the fate once a span.
    """

    shortest: int
    longest: int
    one_fate = True

    def starts(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> np.ndarray:
        draws = generator(seed, "spans", step)
        number = -(-batch.tokens.size // self.shortest)
        return _end_to_end(draws.integers(self.shortest, self.longest + 1, number), batch.tokens.shape)

    def __str__(self) -> str:
        return f"spans {self.shortest}-{self.longest}"


@dataclasses.dataclass(frozen=True)
class GeometricSpans:
    """Spans whose length is geometric: after each token it goes on with probability 1 - 1 / mean; each with one fate.

    With `longest`, lengths above it do not occur, which lowers the mean: SpanBERT's lengths, 3.8 on average, are
    "spans ~5 up to 10".

    Source: Joshi et al. 2020 (arXiv 1907.10529), section 3.1; there spans are made of whole words.
    """

    mean: float
    longest: int | None = None
    one_fate = True

    def starts(self, batch: TokenBatch, vocabulary: Vocabulary, seed: int, step: int) -> np.ndarray:
        draws = generator(seed, "spans", step).random(batch.tokens.size)
        # The inverse of P(length <= n) = (1 - on**n) / (1 - on**longest), with on = 1 - 1 / mean.
        per_token = math.log1p(-1 / self.mean)
        within = 1.0 if self.longest is None else -math.expm1(self.longest * per_token)
        lengths = np.ceil(np.log1p(-draws * within) / per_token)
        lengths = np.clip(lengths, 1, self.longest or batch.tokens.size).astype(np.int64)
        return _end_to_end(lengths, batch.tokens.shape)

    def __str__(self) -> str:
        return f"spans ~{plain(self.mean)}" + ("" if self.longest is None else f" up to {self.longest}")


def read_grain(reader: Reader) -> Grain:
    """A grain that is not single tokens, from its notation."""
    what = "'spans', 'whole words' or a fate such as 80/10/10"
    if reader.word(["spans", "whole"], what) == "whole":
        reader.word(["words"], "'words' after 'whole'")
        return Words()
    if reader.take("~"):
        return _read_geometric(reader)
    if not reader.at_number:
        reader.fail("expected lengths after 'spans': 'spans 1-3' (each as likely) or 'spans ~3' (geometric, mean 3)")
    shortest = reader.whole("the shortest span")
    reader.need("-", "and the longest span, as in 'spans 1-3'")
    place = reader.place
    longest = reader.whole("the longest span")
    if longest < shortest:
        reader.fail(f"the longest span is shorter than the shortest; did you mean {longest}-{shortest}?", place)
    return Spans(shortest, longest)


def _read_geometric(reader: Reader) -> GeometricSpans:
    place = reader.place
    mean = reader.number("the mean length of a span")
    if mean <= 1:
        reader.fail(
            f"the mean length of a span is more than 1, got {mean:g}; leave 'spans' out for single tokens", place
        )
    if not reader.take_word("up"):
        return GeometricSpans(mean)
    reader.word(["to"], "'to' and the longest span after 'up'")
    return GeometricSpans(mean, reader.whole("the longest span", least=2))


def _end_to_end(lengths: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(B, T) bool: where spans begin that are laid end to end through all rows; `lengths` are enough for that."""
    begin = np.cumsum(lengths) - lengths
    starts = np.zeros(math.prod(shape), dtype=bool)
    starts[begin[begin < len(starts)]] = True
    return starts.reshape(shape)
