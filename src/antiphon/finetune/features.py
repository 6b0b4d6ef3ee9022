"""Texts as token rows, and rows as tensors: flat arrays made once, packed without a Python loop over tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor

from antiphon.config import UserError


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """N token rows as one flat array.

    Attributes:
        tokens: (S,) int64, all rows one after the other.
        starts: (N + 1,) int64; row i is tokens[starts[i] : starts[i + 1]].
    """

    tokens: np.ndarray
    starts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(N,) int64."""
        return np.diff(self.starts)

    def places(self, indices: np.ndarray) -> np.ndarray:
        """Where in `tokens` the tokens of the given rows stand, row after row."""
        lengths = self.starts[indices + 1] - self.starts[indices]
        return ranges(self.starts[indices], lengths)

    def take(self, indices: np.ndarray) -> Rows:
        """The given rows, in the given order."""
        lengths = self.starts[indices + 1] - self.starts[indices]
        return Rows(self.tokens[self.places(indices)], np.concatenate([[0], np.cumsum(lengths)]))


@dataclasses.dataclass(frozen=True)
class Packed:
    """Token rows laid out for the encoder.

    Attributes:
        inputs, documents, positions: (B, T) int64; each token row is one document; -1 marks padding.
        places: (S,) int64, where in the flattened (B * T) grid each token stands, row after row.
        lengths: (N,) int64.
    """

    inputs: Tensor
    documents: Tensor
    positions: Tensor
    places: Tensor
    lengths: Tensor


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, ..., start + length - 1 of each pair, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def unite(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, one part after the other."""
    lengths = np.concatenate([part.lengths for part in parts])
    return Rows(np.concatenate([part.tokens for part in parts]), np.concatenate([[0], np.cumsum(lengths)]))


def open_tokenizer(text: str) -> Tokenizer:
    """A tokenizer from the text of its tokenizer.json, without the padding and truncation that file may ask for."""
    tokenizer: Tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # A text that spells a special token must not become one.
    tokenizer.encode_special_tokens = True
    return tokenizer


def rows_of(encodings: Sequence[Encoding]) -> Rows:
    """Encodings, with the specials their tokenizer adds, as rows.

    Raises:
        UserError: a row without any token, which has no vector.
    """
    rows = [encoding.ids for encoding in encodings]
    for index, row in enumerate(rows):
        if not row:
            raise UserError(
                f"text number {index} (counting from 0) has no tokens, so nothing can stand for it. "
                "Use a tokenizer that adds [BOS] and [EOS], or remove the empty text from the task."
            )
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    return Rows(np.fromiter((token for row in rows for token in row), dtype=np.int64, count=int(starts[-1])), starts)


def encode(
    tokenizer: Tokenizer, texts: Sequence[str] | Sequence[tuple[str, str]], length: int
) -> tuple[Rows, np.ndarray]:
    """Texts or pairs of texts as rows of at most `length` tokens.

    Returns:
        The rows, and (N,) bool: which of them were cut. A pair is cut where it is longer.
    """
    tokenizer.enable_truncation(length, strategy="longest_first")
    encodings = tokenizer.encode_batch(list(texts))
    tokenizer.no_truncation()
    return rows_of(encodings), np.array([bool(encoding.overflowing) for encoding in encodings], dtype=bool)


def pack(rows: Rows, indices: np.ndarray, device: torch.device) -> Packed:
    """Lay rows out side by side in a grid as wide as the longest of them.

    Short rows share a line of the grid, as documents that do not see each other: what is computed is the same as with
    one row a line and padding, for about the half of the work on texts of mixed length.
    """
    lengths = rows.lengths[indices]
    line, offset, lines = _fit(lengths)
    width = int(lengths.max())
    grid = np.zeros((3, lines * width), dtype=np.int64)
    grid[1] = -1
    places = ranges(line * width + offset, lengths)
    grid[0, places] = rows.tokens[rows.places(indices)]
    grid[1, places] = np.repeat(np.arange(len(indices)), lengths)
    grid[2, places] = ranges(np.zeros_like(lengths), lengths)
    inputs, documents, positions = torch.from_numpy(grid.reshape(3, lines, width)).to(device)
    return Packed(
        inputs, documents, positions, torch.from_numpy(places).to(device), torch.from_numpy(lengths).to(device)
    )


def _fit(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Best-fit decreasing: each row goes to the fullest line that still has room for it.

    Returns:
        (N,) line of each row, (N,) offset in that line, and the number of lines.
    """
    width = int(lengths.max())
    line = np.zeros(len(lengths), dtype=np.int64)
    offset = np.zeros(len(lengths), dtype=np.int64)
    room: list[int] = []
    for index in np.argsort(-lengths, kind="stable").tolist():
        need = int(lengths[index])
        best = -1
        for candidate, free in enumerate(room):
            if free >= need and (best < 0 or free < room[best]):
                best = candidate
        if best < 0:
            best = len(room)
            room.append(width)
        line[index], offset[index] = best, width - room[best]
        room[best] -= need
    return line, offset, len(room)


def blocks(rows: Rows, tokens: int, most: int) -> list[np.ndarray]:
    """All rows in blocks of like length for evaluation, long ones first.

    Args:
        rows: what is evaluated.
        tokens: most tokens in a block, but at least one row is in each.
        most: most rows in a block; 0 for any number.
    """
    order = np.argsort(-rows.lengths, kind="stable")
    lengths = rows.lengths[order]
    cut, start = [], 0
    while start < len(order):
        count = max(1, tokens // int(lengths[start]))
        start += min(count, most) if most else count
        cut.append(start)
    return np.split(order, cut[:-1]) if cut else []
