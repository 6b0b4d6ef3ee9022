"""What one epoch of a prepared corpus holds, as numbers that a plan reckons with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Supply:
    """One epoch.

    Attributes:
        slots: places for tokens in its rows, padding included.
        tokens, words: shown in it.
    """

    slots: float
    tokens: float
    words: float


def supply(facts: Mapping[str, Any], block: int) -> Supply:
    """An epoch of a corpus that is cut into blocks.

    Args:
        facts: the manifest of the prepared corpus.
        block: slots in a block.
    """
    train = facts["train"]
    return Supply(-(-train["tokens"] // block) * block, train["tokens"], train["words"])
