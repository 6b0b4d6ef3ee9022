"""WNUT-17: names of six kinds in user-generated text, in the authors' splits."""

from __future__ import annotations

from pathlib import Path

from antiphon.config import UserError
from antiphon.finetune.readers.source import lines, source
from antiphon.finetune.task import Dataset, Split, Words

FILES = ("ner/wnut17/wnut17train.conll", "ner/wnut17/emerging.dev.conll", "ner/wnut17/emerging.test.annotated")
KINDS = ("corporation", "creative-work", "group", "location", "person", "product")
LABELS = ("O", *(f"{prefix}-{kind}" for kind in KINDS for prefix in "BI"))


def read(data: Path | None, workspace: Path) -> Dataset:
    """The sentences of the three files, which are train, validation and test.

    Source: Derczynski et al. 2017 (WNUT), "Results of the WNUT2017 shared task".
    """
    return Dataset({split: sentences(source(data, name)) for split, name in zip(Split, FILES, strict=True)}, LABELS)


def sentences(path: Path) -> list[Words]:
    """Sentences of a file with a word, a tab and a tag on each line.

    A line with no word ends a sentence: it is empty, or holds one tab in the training file. No line is a comment, since
    a word may begin with "#".

    Raises:
        UserError: a line has no word, no tag or more than the two, or is not UTF-8.
    """
    found, words, tags = [], [], []
    for number, line in enumerate([*lines(path), ""], 1):
        if line.strip():
            word, _, tag = line.partition("\t")
            if not tag.strip() or not word.strip() or "\t" in tag:
                raise UserError(f"{path}:{number}: expected a word, a tab and a tag, got {line!r}.")
            words.append(word.strip())
            tags.append(tag.strip())
        elif words:
            found.append(Words(tuple(words), tuple(tags)))
            words, tags = [], []
    return found
