"""Every shipped study with all its values, defaults included: a changed default shows in review.

To accept a change: ANTIPHON_GOLDEN=write python -m pytest tests/golden
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from antiphon.study.study import read
from antiphon.study.tell import settings

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))


def test_studies_are_shipped():
    assert [path.stem for path in STUDIES] == ["own-text", "pocket"]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_shipped_study_has_the_values_that_were_reviewed(path: Path):
    golden = Path(__file__).with_name(f"{path.stem}.yaml")
    found = settings(read(path))
    if os.environ.get("ANTIPHON_GOLDEN") == "write":
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")
