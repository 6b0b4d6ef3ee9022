"""Corpus and tokenizer -> a folder with the tokenizer and the shards of both splits; whole or not there at all."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain, islice
from pathlib import Path
from typing import Any

from antiphon.config import UserError, fingerprint
from antiphon.data import corpus as texts
from antiphon.data import docstrings
from antiphon.data import tokenizer as tokenizers
from antiphon.data.corpus import Corpus
from antiphon.data.shards import MANIFEST, Encoded, Shards, Writer, batched, encoded
from antiphon.data.tokenizer import FILES, Encoder, Tokenizer
from antiphon.files import checksum, new_directory, write_json
from antiphon.processes import pool

SPLITS = ("train", "validation")
GROUPS_WORTH_A_PROCESS = 4
COUNTS = ("documents", "empty", "tokens", "words")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A prepared corpus, opened.

    Attributes:
        folder: where it lies.
        encoder: its tokenizer.
        shards: of each split, the shards of every corpus.
    """

    folder: Path
    encoder: Encoder
    shards: dict[str, tuple[Shards, ...]]

    @classmethod
    def open(cls, folder: Path) -> Prepared:
        """Open what `prepare` made.

        Raises:
            UserError: something is missing or does not belong together.
        """
        shards = {split: open_shards(folder, split) for split in SPLITS}
        return cls(folder, Encoder(folder / "tokenizer"), shards)

    @property
    def tokenizer_files(self) -> list[Path]:
        """The files a checkpoint takes along."""
        return [self.folder / "tokenizer" / name for name in FILES]


def open_shards(folder: Path, split: str) -> tuple[Shards, ...]:
    """The shards of every corpus in a prepared folder, without its tokenizer.

    Raises:
        UserError: something is missing or does not belong together.
    """
    tokenizer = folder / "tokenizer" / FILES[0]
    hashed = checksum(tokenizer) if tokenizer.is_file() else ""
    number = facts(folder).get("corpora", 1)
    return tuple(Shards.open(folder / _name(split, index), hashed) for index in range(number))


def _name(split: str, index: int) -> str:
    return f"{split}-{index}" if index else split


def identity(corpora: Sequence[Corpus], tokenizer: Tokenizer, workspace: Path) -> str:
    """The prepared corpora's identity: contents of the text, settings, tokenizer; neither place on disk nor weights."""
    remembered = Checksums(workspace / "corpora" / "checksums.json")
    revisions = [texts.revision(corpus, remembered) for corpus in corpora]
    remembered.save()
    # The number is the version of what is made here, tokenizers included.
    revision = revisions[0] if len(revisions) == 1 else revisions
    return fingerprint("corpus", 2, revision, tokenizers.revision(tokenizer))


def facts(folder: Path) -> dict[str, Any]:
    """The manifest of a prepared corpus: documents, tokens and words of each split, tokenizer, source."""
    return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))


def prepare(
    corpora: Sequence[Corpus],
    tokenizer: Tokenizer,
    folder: Path,
    workspace: Path,
    workers: int,
    progress: Callable[[dict[str, Any]], None],
) -> None:
    """Tokenize corpora into shards, each into its own, with one tokenizer; does nothing when `folder` is there already.

    Args:
        corpora, tokenizer: what to prepare. A tokenizer that is trained reads the same number of characters of each
            corpus, as far as it goes, whatever its weight.
        folder: the result.
        workspace: where the pocket corpus keeps its passages.
        workers: processes for reading the pocket corpus and for tokenizing; what is made is the same for any number.
            With more than one, to be called by the main thread.
        progress: told now and then what has been done.

    Raises:
        UserError: a corpus is empty or unreadable; nothing is left behind.
    """
    if folder.is_dir():
        return
    passages = workspace / docstrings.FOLDER
    with new_directory(folder) as work:
        target = work / "tokenizer"
        pocket = any(corpus.path == texts.POCKET for corpus in corpora)
        if pocket:
            # Here, in the main thread, which alone can start processes that are deaf to Ctrl-C: a tokenizer that is
            # trained asks for its texts from a thread of its own.
            progress({"note": "reading the docstrings of the installed libraries"})
            docstrings.load(passages, workers)
        if tokenizer.path:
            target.mkdir()
            for name in FILES:
                (target / name).write_bytes((Path(tokenizer.path).expanduser() / name).read_bytes())
        else:
            progress({"note": "reading text and training the tokenizer"})
            tokenizers.train(tokenizer, _even([_training_texts(corpus, passages) for corpus in corpora]), target)
        encoder = Encoder(target)
        totals = [
            _tokenize(work, corpora, number, encoder, passages, workers, progress) for number in range(len(corpora))
        ]
        described = {
            "source": docstrings.manifest() if pocket else {},
            "tokenizer_hash": checksum(target / FILES[0]),
            "vocabulary": encoder.size,
            "corpora": len(corpora),
        }
        for split in SPLITS:
            described[split] = {key: sum(total[split][key] for total in totals) for key in COUNTS}
        write_json(work / MANIFEST, described)


def _tokenize(
    work: Path,
    corpora: Sequence[Corpus],
    number: int,
    encoder: Encoder,
    passages: Path,
    workers: int,
    progress: Callable[[dict[str, Any]], None],
) -> dict[str, dict[str, int]]:
    """Write the shards of one corpus; returns the counts of each split."""
    corpus = corpora[number]
    name = f" of {corpus.path}" if len(corpora) > 1 else ""
    with contextlib.ExitStack() as stack:
        writers = {split: stack.enter_context(Writer(work / _name(split, number), encoder)) for split in SPLITS}
        groups = batched(texts.documents(corpus, passages))
        for parts in stack.enter_context(contextlib.closing(_encoded(groups, encoder, work / "tokenizer", workers))):
            for split, writer in writers.items():
                writer.append(parts[split])
            progress({"note": f"tokenizing: {sum(writer.words for writer in writers.values()):,} words{name}"})
        _check(corpus, writers)
        for writer in writers.values():
            described = corpus.model_dump(mode="json", exclude={"path", "weight"})
            writer.close({"tokenizer_hash": checksum(work / "tokenizer" / FILES[0]), "corpus": described})
    return {split: {key: getattr(writer, key) for key in COUNTS} for split, writer in writers.items()}


def _encoded(
    groups: Iterator[list[tuple[str, str]]], encoder: Encoder, folder: Path, workers: int
) -> Generator[dict[str, Encoded]]:
    """Groups of documents as tokens by split, in their order; by several processes if there are many groups."""
    first = list(islice(groups, GROUPS_WORTH_A_PROCESS * workers if workers > 1 else 0))
    groups = chain(first, groups)
    if len(first) < GROUPS_WORTH_A_PROCESS * workers or workers == 1:
        yield from (_by_split(encoder, group) for group in groups)
        return
    with pool(workers) as executor:
        asked: deque[Future[dict[str, Encoded]]] = deque()
        for group in groups:
            asked.append(executor.submit(_encode, str(folder), group))
            # As many as keep all processes at work while this one writes: a bounded amount of memory.
            if len(asked) > 2 * workers:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()


def _encode(folder: str, group: list[tuple[str, str]]) -> dict[str, Encoded]:
    return _by_split(_opened(folder), group)


@functools.lru_cache(maxsize=1)
def _opened(folder: str) -> Encoder:
    return Encoder(Path(folder))


def _by_split(encoder: Encoder, group: list[tuple[str, str]]) -> dict[str, Encoded]:
    return {split: encoded(encoder, [text for text, its in group if its == split]) for split in SPLITS}


def _training_texts(corpus: Corpus, passages: Path) -> Iterator[str]:
    return (text for text, split in texts.documents(corpus, passages) if split == "train")


def _even(streams: list[Iterator[str]]) -> Iterator[str]:
    """The texts of all streams, always of the one that has given the fewest characters."""
    given = dict.fromkeys(range(len(streams)), 0)
    while given:
        number = min(given, key=lambda index: given[index])
        text = next(streams[number], None)
        if text is None:
            del given[number]
        else:
            given[number] += len(text)
            yield text


def _check(corpus: Corpus, writers: Mapping[str, Writer]) -> None:
    if writers["train"].documents:
        return
    if held_out := writers["validation"].documents:
        raise UserError(
            f"corpus {corpus.path!r}: all of its documents ({held_out}) fell to the validation split, "
            "and none is left to train on. Give more text, or hold nothing out with "
            "--set pretrain.corpus.validation_share=0."
        )
    raise UserError(
        f"corpus {corpus.path!r}: no text in it. Give a corpus with at least one document that is not blank."
    )


class Checksums:
    """Checksums of files, remembered by path, size and time of change, so that a large corpus is hashed once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._known: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._known = {}
        self._new = False

    def __call__(self, path: Path) -> str:
        """The checksum of a file, computed only when the file is new or has changed."""
        stat = path.stat()
        key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
        if key not in self._known:
            self._known[key] = checksum(path)
            self._new = True
        return self._known[key]

    def save(self) -> None:
        """Keep what was learnt."""
        if self._new:
            write_json(self._path, self._known)
