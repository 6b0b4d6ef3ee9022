"""SciFact in BEIR's layout: claims, and the abstracts that speak for or against them."""

from __future__ import annotations

import json
from pathlib import Path

from antiphon.config import UserError
from antiphon.finetune.readers.source import lines, source, tenth
from antiphon.finetune.task import Dataset, Search, Split

FILES = tuple(
    f"retrieval/scifact/{name}" for name in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/test.tsv")
)


def read(data: Path | None, workspace: Path) -> Dataset:
    """All documents are searched in every split; a tenth of the training queries, by a hash of their id, is validation.

    Source: Wadden et al. 2020 (arXiv 2004.14974), as BEIR has it (Thakur et al. 2021, arXiv 2104.08663).
    """
    corpus, asked, train_file, test_file = (source(data, name) for name in FILES)
    documents = {row["_id"]: f"{row['title']} {row['text']}".strip() for row in _rows(corpus, ("_id", "title", "text"))}
    queries = {row["_id"]: row["text"] for row in _rows(asked, ("_id", "text"))}
    train = _searches(train_file, queries)
    examples = {
        Split.TRAIN: [search for search in train if tenth(search.id) != 0],
        Split.VALIDATION: [search for search in train if tenth(search.id) == 0],
        Split.TEST: _searches(test_file, queries),
    }
    return Dataset(examples, documents=dict.fromkeys(Split, documents))


def _rows(path: Path, fields: tuple[str, ...]) -> list[dict[str, str]]:
    rows = []
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}:{number}: not JSON ({error}). Each line must be one JSON object.") from None
        absent = [field for field in fields if not isinstance(row, dict) or not isinstance(row.get(field), str)]
        if absent:
            shown = line if len(line) < 100 else f"{line[:100]}..."
            raise UserError(f"{path}:{number}: no text in the field {absent[0]!r}; the line is {shown}")
        rows.append(row)
    return rows


def _searches(path: Path, queries: dict[str, str]) -> list[Search]:
    relevant: dict[str, dict[str, int]] = {}
    for number, line in enumerate(lines(path)[1:], 2):
        if not line.strip():
            continue
        try:
            query, document, grade = line.split("\t")
            if int(grade) > 0:
                relevant.setdefault(query, {})[document] = int(grade)
        except ValueError:
            raise UserError(
                f"{path}:{number}: expected query-id, corpus-id and score with tabs, got {line!r}."
            ) from None
        if query not in queries:
            raise UserError(f"{path}:{number}: query {query!r} is not in queries.jsonl.")
    return [Search(query, queries[query], those) for query, those in relevant.items()]
