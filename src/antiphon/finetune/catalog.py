"""The tasks, as plain data. To add one, add a line here, and a reader when its format is new."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from antiphon.config import UserError, nearest
from antiphon.data import docstrings
from antiphon.finetune import pocket
from antiphon.finetune.readers import polarity, scifact, squad, wnut
from antiphon.finetune.task import Dataset, Kind, Task


@functools.lru_cache(maxsize=1)
def _passages(workspace: Path) -> Sequence[docstrings.Passage]:
    return docstrings.load(workspace / docstrings.FOLDER, workers=1)


def _pocket(make: Callable[[Sequence[docstrings.Passage]], Dataset]) -> Callable[[Path | None, Path], Dataset]:
    return lambda data, workspace: make(_passages(workspace))


_ALL = (
    Task(
        name="pocket-library",
        kind=Kind.CLASSIFY,
        metric="accuracy",
        length=128,
        read=_pocket(pocket.library),
        about="Which library does a passage of documentation describe? Names of libraries are masked. Accuracy.",
        title="Library of a passage",
        chance=0.2,  # five libraries, in turn
    ),
    Task(
        name="pocket-code",
        kind=Kind.TAG,
        metric="f1",
        length=128,
        read=_pocket(pocket.code),
        about="Which words of a sentence of documentation are code? Its author's marks are removed. F1 of the words.",
        title="Code words in a sentence",
    ),
    Task(
        name="pocket-parameter",
        kind=Kind.EXTRACT,
        metric="f1",
        length=256,
        read=_pocket(pocket.parameter),
        about="What is the type or the default of a named parameter, as a span of a parameter list? F1 over words.",
        title="Type or default of a parameter",
    ),
    Task(
        name="pocket-summary",
        kind=Kind.RETRIEVE,
        metric="ndcg@10",
        length=128,
        read=_pocket(pocket.summary),
        about="Which description belongs to a summary line, among all descriptions of the split? NDCG@10; "
        "a random order of them scores below 1.",
        title="Description of a summary line",
    ),
    Task(
        name="sentence-polarity",
        kind=Kind.CLASSIFY,
        metric="accuracy",
        length=128,
        read=polarity.read,
        about="Is a sentence of a film review positive? Accuracy. Pang and Lee 2005, sentence polarity v1.0.",
        title="Sentence polarity",
        chance=0.5,
        sources=polarity.FILES,
    ),
    Task(
        name="wnut17",
        kind=Kind.TAG,
        metric="f1",
        length=128,
        read=wnut.read,
        about="Which words of a post name a person, place, group, company, product or work? F1 over spans. WNUT-17.",
        title="WNUT-17",
        sources=wnut.FILES,
    ),
    Task(
        name="squad",
        kind=Kind.EXTRACT,
        metric="f1",
        length=384,
        read=squad.read,
        about="Which span of a Wikipedia paragraph answers a question? F1 over words. SQuAD 1.1, split by article.",
        title="SQuAD 1.1",
        sources=squad.FILES,
    ),
    Task(
        name="scifact",
        kind=Kind.RETRIEVE,
        metric="ndcg@10",
        length=256,
        read=scifact.read,
        about="Which abstracts, of 5,183, speak for or against a scientific claim? NDCG@10. SciFact as BEIR has it.",
        title="SciFact",
        sources=scifact.FILES,
    ),
)

CATALOG: Mapping[str, Task] = {task.name: task for task in _ALL}


def task(name: str) -> Task:
    """The task of that name.

    Raises:
        UserError: there is none.
    """
    if name not in CATALOG:
        raise UserError(f"unknown task {name!r}; {nearest(name, list(CATALOG))}")
    return CATALOG[name]


def reads_passages(names: Sequence[str]) -> bool:
    """Whether any of these tasks is made from the passages of the pocket corpus: it has no files of its own."""
    return any(not task(name).sources for name in names)
