"""Documents that are made up, as shards: what the benchmarks train on and read."""

from __future__ import annotations

import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from antiphon.data.shards import Encoded, Shards, Writer


def stored(groups: Iterable[list[np.ndarray]], vocabulary: int, folder: Path) -> Shards:
    """Write groups of documents, each an array of token ids, and open them."""
    # Stands where the tokenizer would: the documents are tokens already.
    encoder: Any = types.SimpleNamespace(
        size=vocabulary, dtype=np.dtype(np.uint16 if vocabulary <= 2**16 else np.uint32)
    )
    with Writer(folder, encoder) as writer:
        for group in groups:
            sizes = np.array([len(document) for document in group], dtype=np.int64)
            tokens = np.concatenate(group).astype(encoder.dtype).tobytes()
            writer.append(Encoded(tokens, sizes, sizes, 0))
        writer.close({"tokenizer_hash": ""})
    return Shards.open(folder, "")
