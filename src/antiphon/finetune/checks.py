"""What must be true of a task's examples before anything is trained on them. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from antiphon.config import UserError
from antiphon.finetune.task import Dataset, Kind, Question, Search, Split, Task, Text, Words


def check(task: Task, dataset: Dataset) -> None:
    """Look at every example.

    Raises:
        UserError: names the task, the split, the example (counting from 0), its value and what is allowed.
    """
    for split in Split:
        examples = dataset.examples.get(split, ())
        if not examples:
            raise UserError(
                f"task {task.name}: the {split.value} split is empty. Every task needs examples in all three splits."
            )
        for number, example in enumerate(examples):
            complaint = CHECKS[task.kind](example, dataset, split)
            if complaint:
                raise UserError(f"task {task.name}, {split.value} example {number}: {complaint}")


def _text(example: Text, dataset: Dataset, split: Split) -> str:
    classes = len(dataset.labels)
    if 0 <= example.label < classes:
        return ""
    return (
        f"label {example.label} is out of range. The task has {classes} classes, so labels are 0 to {classes - 1}; "
        "correct the label or list the missing classes in the data set's `labels`."
    )


def _words(example: Words, dataset: Dataset, split: Split) -> str:
    if len(example.words) != len(example.tags):
        return f"{len(example.words)} words but {len(example.tags)} tags. Each word needs one tag."
    if "O" not in dataset.labels:
        return f"the tag set {list(dataset.labels)} has no 'O', the tag of words outside of all spans. Add it."
    if not example.words or not all(example.words):
        return f"an empty sentence or an empty word in {list(example.words)}. Remove it."
    wrong = next((tag for tag in example.tags if tag not in dataset.labels), None)
    return "" if wrong is None else f"tag {wrong!r} is not one of {', '.join(dataset.labels)}. Correct the tag."


def _question(example: Question, dataset: Dataset, split: Split) -> str:
    if not example.context.strip():
        return f"question {example.id!r} has an empty context. Remove it."
    for start, text in example.answers:
        shown = example.context[start : start + len(text)] if start >= 0 else ""
        if shown != text or not text:
            return (
                f"question {example.id!r}: the answer {text!r} is not at character {start} of the context, "
                f"which has {shown!r} there. Offsets count characters from 0."
            )
    return ""


def _search(example: Search, dataset: Dataset, split: Split) -> str:
    documents = dataset.documents.get(split, {})
    missing = next((name for name in example.relevant if name not in documents), None)
    if missing is not None:
        return (
            f"query {example.id!r} names the document {missing!r}, which is not one of the {len(documents)} searched."
        )
    if not any(grade > 0 for grade in example.relevant.values()):
        return f"query {example.id!r} has no relevant document, so no ranking of it is right. Remove it."
    return ""


CHECKS: Mapping[Kind, Callable[..., str]] = {
    Kind.CLASSIFY: _text,
    Kind.TAG: _words,
    Kind.EXTRACT: _question,
    Kind.RETRIEVE: _search,
}
