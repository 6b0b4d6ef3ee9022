"""Reports reach the trackers that were asked for, and a missing library is said."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from antiphon.config import UserError
from antiphon.train.trackers import open_trackers, scalars

LINE = {
    "step": 3,
    "objective": "clm",
    "loss": {"clm": 2.5},
    "validation": {"mlm(0.15)": 4.0},
    "learning_rate": 0.1,
    "skipped": [],
}


def test_the_numbers_of_a_report() -> None:
    assert scalars(LINE) == {"step": 3, "loss/clm": 2.5, "validation/mlm(0.15)": 4.0, "learning_rate": 0.1}


def test_tensorboard_reads_back_what_was_reported(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tracker,) = open_trackers(["tensorboard"], tmp_path, "study", "run", {"rows": 4}, 0)
    for step in (1, 2, 3):
        tracker.write(step, {"loss/clm": 1.0 / step})
    tracker.close()
    (tracker,) = open_trackers(["tensorboard"], tmp_path, "study", "run", {"rows": 4}, 2)
    tracker.write(3, {"loss/clm": 9.0})
    tracker.close()
    events = EventAccumulator(str(tmp_path / "run")).Reload()
    found = [(event.step, event.value) for event in events.Scalars("loss/clm")]
    assert found == [(1, 1.0), (2, 0.5), (3, 9.0)]


class _Library(ModuleType):
    """Stands for trackio and for wandb: the calls that this project makes, and what they were given."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, Any]] = []

    def init(self, **given: Any) -> SimpleNamespace:
        self.calls.append(("init", given))
        return SimpleNamespace(log=self.log, finish=self.finish)

    def log(self, values: dict[str, float], step: int) -> None:
        self.calls.append(("log", (step, values)))

    def finish(self) -> None:
        self.calls.append(("finish", None))


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_a_run_is_opened_again_under_its_name(name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = _Library(name)
    monkeypatch.setitem(sys.modules, name, library)
    (tracker,) = open_trackers([name], tmp_path, "study", "run", {"rows": 4}, 0)
    tracker.write(7, {"learning_rate": 0.5})
    tracker.close()
    (_, given), *others = library.calls
    assert given["project"] == "study"
    assert given["name"] == "run"
    assert given["config"] == {"rows": 4}
    assert given["resume"] == "allow"
    assert others == [("log", (7, {"learning_rate": 0.5})), ("finish", None)]


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb"])
def test_a_library_that_is_missing_is_said(name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=f"machine.trackers: '{name}' is not installed. Install it with `pip install"):
        open_trackers([name], tmp_path, "study", "run", {}, 0)
