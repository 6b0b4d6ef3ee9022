"""Texts that repeat other texts."""

from __future__ import annotations

import re
import zlib

_RUN_WORDS = 8

# One byte for each possible hash of a run: 64 MiB of address space, of which only the pages that are hit take memory.
# With 3 million words, fewer than 5% of new runs are taken for known ones, far from the half that makes a copy.
_SLOTS = 2**26


class Copies:
    """Remembers texts, and tells the next one from a copy.

    A copy repeats more than half of its runs of 8 words (case and punctuation aside) from texts accepted before.
    """

    def __init__(self) -> None:
        self._seen = bytearray(_SLOTS)

    def accept(self, text: str) -> bool:
        """Whether a text is new; if so it is remembered."""
        words = re.findall(r"\w+", text.lower())
        starts = range(max(1, len(words) - _RUN_WORDS + 1))
        runs = [zlib.crc32(" ".join(words[at : at + _RUN_WORDS]).encode()) % _SLOTS for at in starts]
        if 2 * sum(self._seen[run] for run in runs) > len(runs):
            return False
        for run in runs:
            self._seen[run] = 1
        return True
