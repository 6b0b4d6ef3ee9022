"""Who reads what: every field of every config is read on the way from a study file to scores and report.

The name of a field may be read from something else that is called the same, so tests/test_config.py, which looks at the
sources alone, can be fooled. Here a study runs, and each config tells which of its fields were asked for.
"""

from __future__ import annotations

import inspect
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from antiphon.config import Config
from antiphon.study import drive, launch
from antiphon.study.jobs import Job
from antiphon.study.study import Study
from antiphon.study.work import execute
from antiphon.study.workspace import Workspace
from tests import tiny


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """(class, field) of every field that is read by anyone but the validators of its class."""
    found: set[tuple[str, str]] = set()
    original = Config.__getattribute__

    def watched(self: Config, name: str) -> Any:
        if not name.startswith("_"):
            lineage = [kind for kind in type(self).__mro__ if name in inspect.get_annotations(kind)]
            *_, owner, method = ["", *sys._getframe(1).f_code.co_qualname.split(".")][-2:]
            by_validator = method.startswith("_") and owner in {kind.__name__ for kind in type(self).__mro__}
            if not by_validator:
                found.update((kind.__name__, name) for kind in lineage)
        return original(self, name)

    monkeypatch.setattr(Config, "__getattribute__", watched)
    return found


def _all_fields() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    waiting: list[type[Config]] = [Config]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind.__module__.startswith("antiphon."):
                waiting.append(kind)
                found |= {(kind.__name__, name) for name in inspect.get_annotations(kind)}
    return found


def test_every_field_is_read_while_a_study_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: set[tuple[str, str]]
) -> None:
    text = tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps({"content": line}) + "\n" for line in tiny.texts(0, 120)), encoding="utf-8")
    study = Study.read(
        {
            "name": "tiny",
            "baseline": "mlm",
            "pretrain": {
                "corpus": {"path": str(text), "text_field": "content", "validation_share": 0.1},
                "tokenizer": {"vocabulary": 300},
                "model": dict(tiny.MODEL),
                "batch": dict(tiny.BATCH),
                "budget": "8 steps",
                "validation": {"points": 2, "rows": 2},
                "learning_rate": {"warmup": "1 steps", "decay": "2 steps"},
            },
            "axes": {"schedule": {"mlm": "mlm(0.4)", "both": "25% clm > 75% mlm(0.4)"}},
            "finetune": {
                "tasks": ["sentence-polarity", "wnut17"],
                "data": str(tiny.write_tasks(tmp_path / "sets")),
                "steps": 2,
                "batch": 4,
            },
            "machine": {"device": "cpu", "precision": "float32", "workers": 1},
        }
    )

    def here(todo: list[Job], machine: Any, watcher: launch.Watcher) -> list[tuple[Job, str]]:
        launch.workers(machine)
        for job in todo:
            execute(job.work, machine, lambda facts: None, lambda: False)
            watcher.finished(0, job, 0.1)
        return []

    monkeypatch.setattr(launch, "launch", here)
    assert drive.run(study, Workspace(tmp_path / "space"), Console(file=io.StringIO()), "antiphon run") == 0
    fields = _all_fields()
    assert ("Pretrain", "schedule") in fields
    assert fields - read == set()
