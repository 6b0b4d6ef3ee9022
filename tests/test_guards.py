"""docs/guards.md names tests that exist, and no row of it is without a test or a reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
REASON = re.compile(r"(does not apply|not yet): \w+")
# How many faults each part tells of.
PARTS = {"A": 17, "B": 14, "C": 17}


def rows() -> dict[str, str]:
    """What guards against each fault, by its number."""
    found = {}
    for line in (ROOT / "docs" / "guards.md").read_text(encoding="utf-8").splitlines():
        if re.match(r"\| [A-Z]\d+ \|", line):
            number, fault, source, guard = (cell.strip() for cell in line.strip("|").split(" | "))
            assert fault, line
            assert source, line
            assert number not in found, number
            found[number] = guard
    return found


ROWS = rows()


def test_no_fault_is_left_out() -> None:
    assert list(ROWS) == [f"{part}{number}" for part, count in PARTS.items() for number in range(1, count + 1)]


@pytest.mark.parametrize("number", ROWS)
def test_a_fault_has_tests_that_exist_or_a_reason(number: str) -> None:
    named = TEST.findall(ROWS[number])
    assert named or REASON.match(ROWS[number])
    assert ROWS[number].count("tests/") == len(named)  # none is misspelt
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{path}::{name}"
