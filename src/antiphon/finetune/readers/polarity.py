"""Sentence polarity: 5,331 positive and 5,331 negative sentences from film reviews."""

from __future__ import annotations

import zipfile
from pathlib import Path

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
    with zipfile.ZipFile(source(data, FILES[0])) as archive:
        for label, name in enumerate(MEMBERS):
            # Latin-1, although the archive does not say so.
            for line in archive.read(name).decode("latin-1").split("\n"):
                if text := line.strip():
                    examples[places.get(tenth(text), Split.TRAIN)].append(Text(text, label))
    return Dataset(examples, LABELS)
