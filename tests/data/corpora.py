"""Corpora of documents of any length, without text: tokens number the places of the stream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from antiphon.data.shards import Shards


def corpus(folder: Path, sizes: Sequence[int] | np.ndarray, words: Sequence[int] | None = None) -> Shards:
    """Shards of documents of these sizes; token n of the stream is the number n (modulo 2**32).

    Args:
        folder: gets the files.
        sizes: tokens in each document.
        words: in each document; half its tokens by default.
    """
    folder.mkdir(parents=True)
    ends = np.cumsum(np.asarray(sizes, dtype=np.uint64))
    ends.tofile(folder / "ends.bin")
    counts = np.asarray(sizes) // 2 if words is None else np.asarray(words)
    counts.astype(np.uint32).tofile(folder / "words.bin")
    total = int(ends[-1])
    np.arange(total, dtype=np.uint32).tofile(folder / "tokens-00000.bin")
    facts = {
        "tokens": total,
        "words": int(counts.sum()),
        "documents": len(sizes),
        "dtype": "uint32",
        "shards": [["tokens-00000.bin", total]],
    }
    return Shards(folder, facts)
