"""The catalog is plain data that every part can read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import antiphon
from antiphon.config import UserError
from antiphon.data.docstrings import LIBRARIES
from antiphon.finetune import catalog
from antiphon.finetune.kinds import FACES
from antiphon.finetune.readers import polarity
from antiphon.finetune.task import Kind


def test_every_kind_has_a_face() -> None:
    assert set(FACES) == set(Kind)


@pytest.mark.parametrize("name", catalog.CATALOG)
def test_a_task_is_complete(name: str) -> None:
    task = catalog.task(name)
    assert task.name == name
    assert task.metric in FACES[task.kind].metrics
    assert task.length >= 64
    assert task.title
    assert task.about.endswith(".")


def test_chance_is_told_where_guessing_one_class_is_all_there_is() -> None:
    told = {name: task.chance for name, task in catalog.CATALOG.items() if task.kind is Kind.CLASSIFY}
    assert told == {"pocket-library": 1 / len(LIBRARIES), "sentence-polarity": 1 / len(polarity.LABELS)}
    assert all(task.chance is None for task in catalog.CATALOG.values() if task.kind is not Kind.CLASSIFY)


def test_an_unknown_task_gets_the_nearest_name() -> None:
    with pytest.raises(UserError, match="unknown task 'wnut-17'; did you mean 'wnut17'"):
        catalog.task("wnut-17")


def test_planning_loads_no_torch() -> None:
    code = (
        "import sys, antiphon.finetune.catalog, antiphon.finetune.config, antiphon.finetune.checks; "
        "print([name for name in ('torch', 'transformers', 'tokenizers', 'scipy', 'sklearn') if name in sys.modules])"
    )
    path = str(Path(antiphon.__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    assert run.stdout.strip() == "[]"
