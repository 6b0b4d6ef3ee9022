"""Sentence polarity: 5,331 positive and 5,331 negative sentences from film reviews."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

from antiphon.config import UserError
from antiphon.finetune.readers.source import source, tenth
from antiphon.finetune.task import Dataset, Split, Text

FILES = ("nltk_cls/sentence_polarity.zip",)
LABELS = ("negative", "positive")
MEMBERS = ("sentence_polarity/rt-polarity.neg", "sentence_polarity/rt-polarity.pos")


def read(data: Path | None, workspace: Path) -> Dataset:
    """About 80/10/10, by a hash of the sentence: the data has no splits of its own, and some sentences occur twice.

    Source: Pang and Lee 2005 (ACL), "Seeing stars", data set v1.0, as NLTK packs it.
    """
    examples: dict[Split, list[Text]] = {split: [] for split in Split}
    places = {0: Split.TEST, 1: Split.VALIDATION}
    path = source(data, FILES[0])
    for label, name in enumerate(MEMBERS):
        # Latin-1, although the archive does not say so.
        for line in _member(path, name).decode("latin-1").split("\n"):
            if text := line.strip():
                examples[places.get(tenth(text), Split.TRAIN)].append(Text(text, label))
    return Dataset(examples, LABELS)


def _member(path: Path, name: str) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            if name not in archive.namelist():
                raise UserError(f"{path}: holds no {name}, but {', '.join(archive.namelist()[:5]) or 'nothing'}.")
            return archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        # RuntimeError: what damage makes of the fields that ask for a password or another compression.
        raise UserError(f"{path}: not a readable zip archive ({error}). Bring a whole one.") from None
