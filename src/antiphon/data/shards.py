"""Token shards: the corpus as memory-mapped arrays, made once, streamed, checked."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from antiphon.config import UserError
from antiphon.data.tokenizer import Encoder
from antiphon.files import checksum

MANIFEST = "manifest.json"
TOKENS_A_SHARD = 2**27
DOCUMENTS_AT_ONCE = 1024
CHARACTERS_AT_ONCE = 4_000_000
GROUP = 64
GROUPS_AT_ONCE = 2**14


class Writer:
    """Appends documents to a folder of shards; memory does not grow with the corpus. To be used in a `with` block."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._encoder = encoder
        self._shards: list[tuple[str, int]] = []
        self._stream: BinaryIO | None = None
        self._ends = open(folder / "ends.bin", "wb")  # noqa: SIM115 - closed by close()
        self._word_counts = open(folder / "words.bin", "wb")  # noqa: SIM115 - closed by close()
        self.documents = self.tokens = self.words = self.empty = 0

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        for stream in self._streams():
            # On a full disk the last flush fails as the write before it did, which is already on its way to the user.
            with contextlib.suppress(OSError):
                stream.close()

    def _streams(self) -> list[BinaryIO]:
        return [stream for stream in (self._stream, self._ends, self._word_counts) if stream is not None]

    def add(self, texts: list[str]) -> None:
        """Encode and append documents; empty ones are counted and left out."""
        self.append(encoded(self._encoder, texts))

    def append(self, group: Encoded) -> None:
        """Append documents that are encoded already, perhaps by another process."""
        self.empty += group.empty
        self._write(memoryview(group.tokens))
        ends = self.tokens + np.cumsum(group.sizes)
        ends.astype(np.uint64).tofile(self._ends)
        group.words.astype(np.uint32).tofile(self._word_counts)
        self.documents += len(ends)
        self.tokens += int(group.sizes.sum())
        self.words += int(group.words.sum())

    def _write(self, tokens: memoryview) -> None:
        width = self._encoder.dtype.itemsize
        while len(tokens):
            if self._stream is None or self._shards[-1][1] >= TOKENS_A_SHARD:
                if self._stream is not None:
                    self._stream.close()
                name = f"tokens-{len(self._shards):05d}.bin"
                self._stream = open(self._folder / name, "wb")  # noqa: SIM115 - closed by close()
                self._shards.append((name, 0))
            name, size = self._shards[-1]
            piece = tokens[: (TOKENS_A_SHARD - size) * width]
            tokens = tokens[len(piece) :]
            self._stream.write(piece)
            self._shards[-1] = (name, size + len(piece) // width)

    def close(self, facts: dict[str, Any]) -> None:
        """Write the manifest, last of all."""
        for stream in self._streams():
            stream.close()
        manifest = {
            **facts,
            "dtype": self._encoder.dtype.name,
            "vocabulary": self._encoder.size,
            "shards": self._shards,
            "documents": self.documents,
            "empty_documents": self.empty,
            "tokens": self.tokens,
            "words": self.words,
            "checksums": {path.name: checksum(path) for path in sorted(self._folder.iterdir())},
        }
        (self._folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True), encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A group of documents as tokens.

    Attributes:
        tokens: of one document after the other, as the bytes of an array of the encoder's type.
        sizes: (documents,) int64, tokens in each.
        words: (documents,) int64, words in each.
        empty: documents that were left out.
    """

    tokens: bytes
    sizes: np.ndarray
    words: np.ndarray
    empty: int


def encoded(encoder: Encoder, texts: list[str]) -> Encoded:
    """Documents as tokens; empty ones are counted and left out."""
    kept = [text for text in texts if text.strip()]
    arrays = encoder.encode(kept)
    sizes = np.array([len(array) for array in arrays], dtype=np.int64)
    words = np.array([len(text.split()) for text in kept], dtype=np.int64)
    return Encoded(b"".join(array.data for array in arrays), sizes, words, len(texts) - len(kept))


def batched(documents: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Groups of documents, bounded in number and in characters."""
    group: list[tuple[str, str]] = []
    size = 0
    for text, split in documents:
        group.append((text, split))
        size += len(text)
        if len(group) >= DOCUMENTS_AT_ONCE or size >= CHARACTERS_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


@dataclasses.dataclass(frozen=True)
class Shards:
    """A folder of shards opened for reading.

    Attributes:
        folder: where they lie.
        manifest: what they are.
    """

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: Path, tokenizer_hash: str) -> Shards:
        """Open a folder made by `Writer`.

        Args:
            folder: where the shards lie.
            tokenizer_hash: checksum of the tokenizer that will be used with them.

        Raises:
            UserError: no manifest, a file that is cut, or shards that were made with another tokenizer.
        """
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{folder}: not a complete folder of shards ({error}). Run `antiphon prepare` again."
            ) from None
        if manifest["tokenizer_hash"] != tokenizer_hash:
            raise UserError(
                f"{folder}: the shards were made with another tokenizer (hash {manifest['tokenizer_hash'][:12]}, "
                f"this one has {tokenizer_hash[:12]}). Run `antiphon prepare` with this tokenizer."
            )
        sizes = {name: size * np.dtype(manifest["dtype"]).itemsize for name, size in manifest["shards"]}
        documents = manifest["documents"]
        for name, expected in {**sizes, "ends.bin": documents * 8, "words.bin": documents * 4}.items():
            # A look at the size costs nothing; the checksums are for who doubts the bytes.
            found = (folder / name).stat().st_size if (folder / name).is_file() else 0
            if found != expected:
                raise UserError(
                    f"{folder / name}: {found} bytes long instead of {expected}. Delete the folder {folder.parent} "
                    "and run `antiphon prepare` again."
                )
        return cls(folder, manifest)

    @property
    def tokens(self) -> int:
        """Tokens in all documents, [BOS] and [EOS] included."""
        return self.manifest["tokens"]

    @property
    def words(self) -> int:
        """Words in all documents."""
        return self.manifest["words"]

    @cached_property
    def ends(self) -> np.ndarray:
        """(documents,) uint64: where each document ends in the stream of all tokens."""
        return mapped(self.folder / "ends.bin", np.dtype(np.uint64))

    @cached_property
    def _maps(self) -> list[np.ndarray]:
        dtype = np.dtype(self.manifest["dtype"])
        return [mapped(self.folder / name, dtype) for name, _ in self.manifest["shards"]]

    @cached_property
    def _starts(self) -> np.ndarray:
        sizes = [size for _, size in self.manifest["shards"]]
        return np.cumsum([0, *sizes])

    def read(self, start: int, stop: int) -> np.ndarray:
        """(stop - start,) int64: a stretch of the stream of all tokens."""
        return self.gather(np.arange(start, stop))

    def gather(self, places: np.ndarray) -> np.ndarray:
        """(N,) int64: the tokens at these places of the stream of all tokens, (N,) int64, in any order."""
        found = np.zeros(len(places), dtype=np.int64)
        files = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(files):
            chosen = files == number
            found[chosen] = self._maps[number][places[chosen] - self._starts[number]]
        return found

    def words_before(self, places: np.ndarray) -> np.ndarray:
        """Words that the stream of all tokens presents before each place of it.

        The first p of a document's n tokens present floor(p * w / n) of its w words.

        Args:
            places: (N,) int64, up to the number of all tokens.

        Returns:
            (N,) int64.
        """
        documents = np.searchsorted(self.ends, places.astype(np.uint64), side="right")
        over = documents == len(self.ends)
        inside = np.where(over, 0, documents)
        starts = np.where(inside > 0, self.ends[np.maximum(inside - 1, 0)], 0).astype(np.int64)
        sizes = self.ends[inside].astype(np.int64) - starts
        part = (places - starts) * self._words[inside].astype(np.int64) // sizes
        return self._words_of_first(documents) + np.where(over, 0, part)

    @cached_property
    def _words(self) -> np.ndarray:
        return mapped(self.folder / "words.bin", np.dtype(np.uint32))

    @cached_property
    def _sums(self) -> np.ndarray:
        """(documents / GROUP + 1,) int64: words before every GROUP-th document, which memory has room for."""
        sums = [np.zeros(1, np.int64)]
        for first in range(0, len(self._words), GROUP * GROUPS_AT_ONCE):
            part = self._words[first : first + GROUP * GROUPS_AT_ONCE]
            sums.append(np.add.reduceat(part, np.arange(0, len(part), GROUP), dtype=np.int64))
        return np.cumsum(np.concatenate(sums))

    def _words_of_first(self, documents: np.ndarray) -> np.ndarray:
        """(N,) int64: words of the first so many documents."""
        asked, back = np.unique(documents, return_inverse=True)
        groups = asked // GROUP
        others = groups[:, None] * GROUP + np.arange(GROUP)
        words = self._words[np.minimum(others, len(self._words) - 1)]
        return (self._sums[groups] + np.where(others < asked[:, None], words, 0).sum(1, dtype=np.int64))[back]


def mapped(path: Path, dtype: np.dtype) -> np.ndarray:
    """(size,) array of a file's numbers, read when they are looked at."""
    # An empty file cannot be mapped. A plain array over the map is indexed faster than the map itself.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if path.stat().st_size else np.zeros(0, dtype)
