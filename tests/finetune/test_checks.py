"""Wrong examples are refused, with their place and value, before anything is trained."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.config import UserError
from antiphon.finetune.checks import CHECKS, check
from antiphon.finetune.task import Dataset, Kind, Question, Search, Split, Text, Words
from tests.finetune.toys import dataset, task


def spoiled(kind: Kind, example: Any, split: Split = Split.VALIDATION) -> Dataset:
    """A sound data set with one example more at the end of a split."""
    sound = dataset(kind)
    examples = {one: [*sound.examples[one], *([example] if one is split else [])] for one in Split}
    return Dataset(examples, sound.labels, sound.documents)


@pytest.mark.parametrize("kind", Kind)
def test_sound_data_passes(kind: Kind) -> None:
    assert kind in CHECKS
    check(task(kind, dataset(kind)), dataset(kind))


@pytest.mark.parametrize(
    ("kind", "example", "said"),
    [
        (Kind.CLASSIFY, Text("x", 3), "label 3 is out of range. The task has 3 classes, so labels are 0 to 2"),
        (Kind.CLASSIFY, Text("x", -1), "label -1 is out of range"),
        (Kind.TAG, Words(("a", "b"), ("O",)), "2 words but 1 tags"),
        (Kind.TAG, Words(("a",), ("B-thing",)), "tag 'B-thing' is not one of O, B-name"),
        (Kind.TAG, Words((), ()), "an empty sentence"),
        (Kind.TAG, Words(("a", ""), ("O", "O")), "an empty word"),
        (
            Kind.EXTRACT,
            Question("q7", "which", "the model", ((3, "model"),)),
            "'q7': the answer 'model' is not at character 3",
        ),
        (Kind.EXTRACT, Question("q7", "which", "the model", ((-5, "model"),)), "is not at character -5"),
        (Kind.EXTRACT, Question("q7", "which", "the model", ((90, "model"),)), "which has '' there"),
        (Kind.EXTRACT, Question("q7", "which", "the model", ((0, ""),)), "the answer '' is not"),
        (Kind.EXTRACT, Question("q7", "which", " ", ()), "an empty context"),
        (
            Kind.RETRIEVE,
            Search("q7", "one", {"d99": 1}),
            "names the document 'd99', which is not one of the 8 searched",
        ),
        (Kind.RETRIEVE, Search("q7", "one", {"d1": 0}), "no relevant document"),
        (Kind.RETRIEVE, Search("q7", "one", {}), "no relevant document"),
    ],
)
def test_the_example_and_what_is_wrong_are_named(kind: Kind, example: Any, said: str) -> None:
    data = spoiled(kind, example)
    with pytest.raises(UserError) as error:
        check(task(kind, data), data)
    assert f"task tiny-{kind.value}, validation example 8: " in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("split", Split)
def test_an_empty_split_is_refused(kind: Kind, split: Split) -> None:
    sound = dataset(kind)
    for empty in (
        Dataset({**sound.examples, split: []}, sound.labels, sound.documents),
        Dataset({one: sound.examples[one] for one in Split if one is not split}, sound.labels, sound.documents),
    ):
        with pytest.raises(UserError, match=f"the {split.value} split is empty"):
            check(task(kind, empty), empty)


def test_tags_need_an_outside() -> None:
    data = Dataset(dict.fromkeys(Split, (Words(("a",), ("B-x",)),)), ("B-x",))
    with pytest.raises(UserError, match="has no 'O'"):
        check(task(Kind.TAG, data), data)
