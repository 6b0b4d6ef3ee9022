"""One small data set of each kind, and tasks outside of the catalog."""

from __future__ import annotations

import random

from antiphon.finetune.kinds import FACES
from antiphon.finetune.task import Dataset, Kind, Question, Search, Split, Task, Text, Words

TEXT = (
    "the model returns an array of numbers when it is called with a list and raises an error if the list is empty "
    "while every other function of this module reads one file from the folder that was given by its user"
)
WORDS = TEXT.split()


def sentence(draws: random.Random, least: int = 3, most: int = 14) -> str:
    """Some known words in random order."""
    return " ".join(draws.choice(WORDS) for _ in range(draws.randint(least, most)))


def dataset(kind: Kind, number: int = 8, seed: int = 0) -> Dataset:
    """A data set whose three splits are the same examples, so that over-fitting shows in the scores."""
    draws = random.Random(seed)
    texts = [sentence(draws) for _ in range(number)]
    made = {
        Kind.CLASSIFY: lambda: Dataset(_thrice([Text(text, i % 3) for i, text in enumerate(texts)]), ("a", "b", "c")),
        Kind.TAG: lambda: Dataset(
            _thrice([_words(draws, text) for text in texts]), ("O", "B-name", "I-name", "B-place", "I-place")
        ),
        Kind.EXTRACT: lambda: Dataset(_thrice([_question(draws, i, sentence(draws, 8, 14)) for i in range(number)])),
        Kind.RETRIEVE: lambda: _searched(draws, texts),
    }
    return made[kind]()


def task(kind: Kind, data: Dataset, length: int = 64) -> Task:
    """A task outside of the catalog."""
    return Task(f"tiny-{kind.value}", kind, FACES[kind].metrics[0], length, lambda folder, workspace: data, "", "")


def _thrice(examples: list) -> dict:
    return dict.fromkeys(Split, examples)


def _words(draws: random.Random, text: str) -> Words:
    words = text.split()
    start = draws.randrange(len(words))
    kind = draws.choice(["name", "place"])
    tags = ["O"] * start + [f"B-{kind}"] + [f"I-{kind}"] * (len(words) - start - 1)
    return Words(tuple(words), tuple(tags))


def _question(draws: random.Random, number: int, context: str) -> Question:
    words = context.split()
    first = draws.randrange(len(words) - 2)
    offset = len(" ".join(words[:first])) + (first > 0)
    answer = " ".join(words[first : first + 2])
    return Question(str(number), f"which {words[first]} {number}", context, ((offset, answer),))


def _searched(draws: random.Random, texts: list[str]) -> Dataset:
    documents = {f"d{i}": text for i, text in enumerate(texts)}
    examples = [Search(f"q{i}", sentence(draws, 2, 4), {f"d{i}": 1}) for i in range(len(texts))]
    return Dataset(_thrice(examples), documents=dict.fromkeys(Split, documents))
