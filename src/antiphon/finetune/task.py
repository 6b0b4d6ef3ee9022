"""What a task is: a name, a kind, a metric, and examples in three splits.

A kind (classify, tag, extract, retrieve) owns its features, head, loss and decoding (`kinds`);
a task is a value that only says where examples come from. This module imports no torch, so that planning stays instant.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class Kind(enum.Enum):
    """The four families of tasks."""

    CLASSIFY = "classify"
    TAG = "tag"
    EXTRACT = "extract"
    RETRIEVE = "retrieve"


class Split(enum.Enum):
    """The three splits. Training sees train; selection sees validation; test is looked at once, by results.select."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@dataclasses.dataclass(frozen=True)
class Text:
    """A text, or a pair of texts, with one label in 0 .. C-1."""

    text: str
    label: int
    pair: str | None = None


@dataclasses.dataclass(frozen=True)
class Words:
    """A sentence as words, with one tag a word ("O", "B-person", "CODE", ...)."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Question:
    """A question on a context, with its answers as (character offset in the context, text).

    No answers means that the context does not hold one (SQuAD 2.0).
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[int, str], ...]


@dataclasses.dataclass(frozen=True)
class Search:
    """A query with the documents that answer it; every split searches the documents of its `Dataset`."""

    id: str
    query: str
    relevant: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The examples of one task.

    Attributes:
        examples: for each split a sequence of Text, Words, Question or Search, by the task's kind.
        labels: classify: the names of the classes; tag: the tag set; else empty.
        documents: retrieve: for each split the documents searched (id -> text), in a fixed order; else empty.
    """

    examples: Mapping[Split, Sequence[Any]]
    labels: tuple[str, ...] = ()
    documents: Mapping[Split, Mapping[str, str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Task:
    """A task as a value.

    Attributes:
        name: unique in the catalog.
        kind: which family it belongs to.
        metric: the metric that selection and reports use ("accuracy", "f1", "ndcg@10").
        length: longest row in tokens; longer examples are windowed (extract) or cut and counted (others).
        read: reads the data set. It gets the folder the study names as `finetune.data` (None when it names none) and
            the workspace, where it may keep what is slow to make.
        about: one sentence for the report: what is asked, of which text, with the source.
        title: a short title for the report's figures and tables.
        chance: what guessing scores, as a fraction, where that is a matter of counting classes; None elsewhere.
        sources: files, relative to the data folder, that the examples come from; their content is part of a score's
            identity.
    """

    name: str
    kind: Kind
    metric: str
    length: int
    read: Callable[[Path | None, Path], Dataset]
    about: str
    title: str
    chance: float | None = None
    sources: tuple[str, ...] = ()
