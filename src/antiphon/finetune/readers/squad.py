"""SQuAD: questions on Wikipedia paragraphs whose answer is a span, in the original JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from antiphon.config import UserError
from antiphon.finetune.readers.source import source
from antiphon.finetune.task import Dataset, Question, Split

FILES = ("qa/squad_v1_train_part/train-v1.1.json",)


def read(data: Path | None, workspace: Path) -> Dataset:
    """The articles in the file's order: the last sixth is test, the sixth before it validation, the rest train.

    Split by article, so that no paragraph is known from training.

    Source: Rajpurkar et al. 2016 (arXiv 1606.05250).
    """
    path = source(data, FILES[0])
    try:
        articles = json.loads(path.read_text(encoding="utf-8"))["data"]
        questions = [_questions(article) for article in articles]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not in the form of SQuAD's JSON files ({type(error).__name__}: {error}).") from None
    sixth = len(questions) // 6
    if not sixth:
        raise UserError(f"{path}: holds {len(questions)} articles; 6 or more are needed to split them.")
    middle, last = len(questions) - 2 * sixth, len(questions) - sixth
    parts = {Split.TRAIN: questions[:middle], Split.VALIDATION: questions[middle:last], Split.TEST: questions[last:]}
    return Dataset({split: [one for article in part for one in article] for split, part in parts.items()})


def _questions(article: Any) -> list[Question]:
    return [
        Question(
            asked["id"],
            asked["question"],
            paragraph["context"],
            tuple((answer["answer_start"], answer["text"]) for answer in asked["answers"]),
        )
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]
