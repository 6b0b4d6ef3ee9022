"""The four tasks of the pocket corpus, with the labels its authors left in it.

Every function turns passages into a data set whose splits are those of the passages' modules. What is chosen depends on
hashes alone: not on the order of the passages, and on nothing drawn at random. The libraries take turns, so that a big
one does not crowd out the others. A held-out example does not repeat a line of a training module, and no example
repeats most of another's words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from antiphon.data.copies import Copies
from antiphon.data.docstrings import LIBRARIES, Passage
from antiphon.finetune import pocket_examples
from antiphon.finetune.pocket_examples import TAGS, order
from antiphon.finetune.task import Dataset, Search, Split, Text

SIZES: Mapping[Split, int] = {Split.TRAIN: 2000, Split.VALIDATION: 200, Split.TEST: 300}
"""Most examples of a split for `library`, `code` and `parameter`."""

SEARCH_SIZES: Mapping[Split, int] = {Split.TRAIN: 2000, Split.VALIDATION: 300, Split.TEST: 1_000_000}
"""Most examples of a split for `summary`; their documents are what its queries search: in test, all there are."""

_Example = TypeVar("_Example")


def library(passages: Sequence[Passage]) -> Dataset:
    """Which of the libraries a passage documents.

    The passage is the beginning of a docstring before its first heading (lists of parameters are laid out differently
    by each library). The libraries' names are masked, and paths that begin with one are cut down to their last part.

    Args:
        passages: of the libraries in `LIBRARIES`; others are passed over.

    Returns:
        Examples of `Text`; the labels are the names of the libraries.
    """
    labels = tuple(LIBRARIES)

    def make(passage: Passage) -> tuple[Text, str] | None:
        made = pocket_examples.masked_beginning(passage)
        return made and (Text(made[0], labels.index(passage.library)), made[1])

    return Dataset(_choose(passages, "library", SIZES, make), labels=labels)


def code(passages: Sequence[Passage]) -> Dataset:
    """Which words of a sentence are code: what stood in back-ticks or in a role that names an object.

    Sentences come from prose and from descriptions of parameters.

    Returns:
        Examples of `Words` with the tags "O" and "CODE", at least one of each.
    """
    return Dataset(_choose(passages, "code", SIZES, pocket_examples.tagged_sentence), labels=TAGS)


def parameter(passages: Sequence[Passage]) -> Dataset:
    """What the default or the type of a parameter is, as a span of a list of parameters.

    Returns:
        Examples of `Question`, each with one answer and a context of at least three neighbouring parameters.
    """
    return Dataset(_choose(passages, "parameter", SIZES, pocket_examples.question))


def summary(passages: Sequence[Passage]) -> Dataset:
    """Which description belongs to a summary line.

    Returns:
        Examples of `Search`: the query is the first sentence of a docstring, its one relevant document the beginning of
        the rest. The documents of a split are those of all its examples, and no two queries are the same.
    """
    queries: set[str] = set()

    def make(passage: Passage) -> tuple[tuple[str, str], str] | None:
        made = pocket_examples.summary_and_description(passage)
        if made is None or made[0][0].lower() in queries:
            return None
        queries.add(made[0][0].lower())
        return made

    chosen = _choose(passages, "summary", SEARCH_SIZES, make)
    examples, documents = {}, {}
    for split, pairs in chosen.items():
        named = {f"{split.value}-{number}": pair for number, pair in enumerate(pairs)}
        examples[split] = tuple(Search(name, query, {name: 1}) for name, (query, _) in named.items())
        documents[split] = {name: document for name, (_, document) in named.items()}
    return Dataset(examples, documents=documents)


def _choose(
    passages: Sequence[Passage],
    purpose: str,
    sizes: Mapping[Split, int],
    make: Callable[[Passage], tuple[_Example, str] | None],
) -> dict[Split, tuple[_Example, ...]]:
    """Up to `sizes` examples for each split, at most one from a passage, the libraries taking turns.

    Args:
        passages: in any order.
        purpose: the task, so that each has an order of its own.
        sizes: most examples for each split.
        make: from a passage to an example and the stretch of text it rests on, or to None.
    """
    learnt = {line for passage in passages if passage.split == Split.TRAIN.value for line in passage.text.split("\n")}
    copies = Copies()
    chosen: dict[Split, tuple[_Example, ...]] = {}
    for split in Split:
        own = [passage for passage in passages if passage.split == split.value]
        own.sort(key=lambda passage: order(purpose, passage.module, passage.name, passage.text))
        queues = [iter([passage for passage in own if passage.library == name]) for name in LIBRARIES]
        examples: list[_Example] = []
        while queues and len(examples) < sizes[split]:
            queue = queues.pop(0)
            for passage in queue:
                made = make(passage)
                known = made and split is not Split.TRAIN and not learnt.isdisjoint(made[1].split("\n"))
                if made and not known and copies.accept(made[1]):
                    examples.append(made[0])
                    queues.append(queue)
                    break
        chosen[split] = tuple(examples)
    return chosen
