"""What one epoch of a prepared corpus holds, as numbers that a plan reckons with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil
from pathlib import Path

from antiphon.data.layout import Packing, Source, sources
from antiphon.data.prepare import open_shards


@dataclasses.dataclass(frozen=True)
class Supply:
    """One epoch.

    An epoch of a mixture is as long as it takes to show as many tokens as all of its corpora hold together: a corpus
    whose weight is larger than its share of the tokens is shown more than once in it, and another not wholly.

    Attributes:
        slots: places for tokens in its rows, padding included.
        tokens, words: shown in it.
    """

    slots: float
    tokens: float
    words: float


def supply(
    folder: Path, weights: Sequence[int], way: Packing, block: int, progress: Callable[[str], None] = lambda note: None
) -> Supply:
    """An epoch of the training text of a prepared folder; its corpora are packed if they are not.

    Args:
        folder: what `prepare` made.
        weights: of each corpus.
        way: how documents come into blocks.
        block: slots in a block.
        progress: told now and then what has been packed.

    Raises:
        UserError: something is missing in the folder, or the index of a packing could not be written.
    """
    return an_epoch(sources(open_shards(folder, "train"), weights, way, block, progress), block)


def an_epoch(corpora: Sequence[Source], block: int) -> Supply:
    """An epoch of corpora that are laid out.

    Args:
        corpora: of the run.
        block: slots in a block.
    """
    total = sum(source.weight for source in corpora)
    # Of a mean block of the mixture: exact, so that one corpus has just as many blocks as it has.
    shares = [Fraction(source.weight, total * source.layout.blocks) for source in corpora]
    held = [source.layout.shards for source in corpora]
    tokens = sum(share * shards.tokens for share, shards in zip(shares, held, strict=True))
    words = sum(share * shards.words for share, shards in zip(shares, held, strict=True))
    all_tokens = sum(shards.tokens for shards in held)
    blocks = ceil(all_tokens / tokens)
    return Supply(blocks * block, all_tokens, float(blocks * words))
