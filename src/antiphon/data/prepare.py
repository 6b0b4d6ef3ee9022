"""Corpus and tokenizer -> a folder with the tokenizer and the shards of both splits; whole or not there at all."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from antiphon.config import UserError, fingerprint
from antiphon.data import corpus as corpora
from antiphon.data import docstrings
from antiphon.data import tokenizer as tokenizers
from antiphon.data.corpus import Corpus
from antiphon.data.shards import MANIFEST, Shards, Writer, batched
from antiphon.data.tokenizer import FILES, Encoder, Tokenizer
from antiphon.files import checksum, new_directory, write_json

SPLITS = ("train", "validation")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A prepared corpus, opened.

    Attributes:
        folder: where it lies.
        encoder: its tokenizer.
        shards: the shards of each split.
    """

    folder: Path
    encoder: Encoder
    shards: dict[str, Shards]

    @classmethod
    def open(cls, folder: Path) -> Prepared:
        """Open what `prepare` made.

        Raises:
            UserError: something is missing or does not belong together.
        """
        tokenizer = folder / "tokenizer"
        hashed = checksum(tokenizer / FILES[0]) if (tokenizer / FILES[0]).is_file() else ""
        return cls(folder, Encoder(tokenizer), {name: Shards.open(folder / name, hashed) for name in SPLITS})

    @property
    def tokenizer_files(self) -> list[Path]:
        """The files a checkpoint takes along."""
        return [self.folder / "tokenizer" / name for name in FILES]


def identity(corpus: Corpus, tokenizer: Tokenizer, workspace: Path) -> str:
    """The prepared corpus's identity: contents of the text, settings, tokenizer; not the place on disk."""
    remembered = Checksums(workspace / "corpora" / "checksums.json")
    revision = corpora.revision(corpus, remembered)
    remembered.save()
    # The number is the version of what is made here, tokenizers included.
    return fingerprint("corpus", 2, revision, tokenizers.revision(tokenizer))


def facts(folder: Path) -> dict[str, Any]:
    """The manifest of a prepared corpus: documents, tokens and words of each split, tokenizer, source."""
    return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: Path,
    workspace: Path,
    workers: int,
    progress: Callable[[dict[str, Any]], None],
) -> None:
    """Tokenize a corpus into shards; does nothing when `folder` is there already.

    Args:
        corpus, tokenizer: what to prepare.
        folder: the result.
        workspace: where the pocket corpus keeps its passages.
        workers: processes for reading the pocket corpus.
        progress: told now and then what has been done.

    Raises:
        UserError: the corpus is empty or unreadable; nothing is left behind.
    """
    if folder.is_dir():
        return
    passages = workspace / docstrings.FOLDER
    with new_directory(folder) as work:
        target = work / "tokenizer"
        if corpus.path == corpora.POCKET:
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
            texts = (text for text, split in corpora.documents(corpus, passages) if split == "train")
            tokenizers.train(tokenizer, texts, target)
        encoder = Encoder(target)
        hashed = checksum(target / FILES[0])
        source = docstrings.manifest() if corpus.path == corpora.POCKET else {}
        described = {
            "source": source,
            "tokenizer_hash": hashed,
            "corpus": corpus.model_dump(mode="json", exclude={"path"}),
            "vocabulary": encoder.size,
        }
        with contextlib.ExitStack() as stack:
            writers = {name: stack.enter_context(Writer(work / name, encoder)) for name in SPLITS}
            for group in batched(corpora.documents(corpus, passages)):
                for name, writer in writers.items():
                    writer.add([text for text, split in group if split == name])
                done = sum(writer.words for writer in writers.values())
                progress({"note": f"tokenizing: {done:,} words"})
            _check(corpus, writers)
            for name, writer in writers.items():
                writer.close({"tokenizer_hash": hashed})
                described[name] = {key: getattr(writer, key) for key in ("documents", "empty", "tokens", "words")}
        write_json(work / MANIFEST, described)


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
