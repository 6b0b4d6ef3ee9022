"""The table accepts a repeat and refuses a contradiction."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from antiphon.config import UserError
from antiphon.results import table

ROW = table.Score(
    job="j1",
    state="s1",
    task="pocket-library",
    kind="classify",
    learning_rate=3e-4,
    seed=0,
    split="test",
    metric="accuracy",
    value=0.1 + 0.2,
    num_examples=300,
    num_truncated=2,
    seconds=1.5,
)


def test_rows_come_back_as_written(tmp_path: Path) -> None:
    rows = [ROW, dataclasses.replace(ROW, split="validation", value=0.25)]
    table.write(tmp_path / "a.jsonl", rows)
    assert table.read([tmp_path / "a.jsonl"]) == rows


def test_a_failed_run_stays_nan(tmp_path: Path) -> None:
    table.write(tmp_path / "a.jsonl", [dataclasses.replace(ROW, value=math.nan)])
    assert math.isnan(table.read([tmp_path / "a.jsonl"])[0].value)


@pytest.mark.parametrize("value", [0.5, math.nan])
def test_a_repeat_counts_once(tmp_path: Path, value: float) -> None:
    row = dataclasses.replace(ROW, value=value)
    table.write(tmp_path / "a.jsonl", [row])
    table.write(tmp_path / "b.jsonl", [dataclasses.replace(row, seconds=9.0)])
    assert len(table.read([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])) == 1


@pytest.mark.parametrize("other", [0.5000001, math.nan])
def test_a_contradiction_is_refused_and_names_both_files(tmp_path: Path, other: float) -> None:
    table.write(tmp_path / "a.jsonl", [dataclasses.replace(ROW, value=0.5)])
    table.write(tmp_path / "b.jsonl", [dataclasses.replace(ROW, value=other)])
    with pytest.raises(UserError, match="j1") as caught:
        table.read([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    assert "a.jsonl" in str(caught.value)
    assert "b.jsonl:1" in str(caught.value)


@pytest.mark.parametrize("line", ["{", "[1, 2]", "3", '{"job": "j1"}', "null"])
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.jsonl:1: not a score row"):
        table.read([tmp_path / "a.jsonl"])


@pytest.mark.parametrize(("field", "value"), [("value", "0.5"), ("value", None), ("seed", "x"), ("task", 3)])
def test_a_value_of_the_wrong_type_is_named(tmp_path: Path, field: str, value: object) -> None:
    table.write(tmp_path / "a.jsonl", [dataclasses.replace(ROW, **{field: value})])  # type: ignore[arg-type]
    with pytest.raises(UserError, match=rf"a\.jsonl:1: not a score row.*{field}"):
        table.read([tmp_path / "a.jsonl"])


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"a\.jsonl"):
        table.read([tmp_path / "a.jsonl"])
