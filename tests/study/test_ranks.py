"""A job of several processes, started as the launcher starts it, comes to what one process comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.config import UserError
from antiphon.data.prepare import Prepared
from antiphon.study.jobs import PretrainWork
from antiphon.study.work import execute
from antiphon.study.workspace import Workspace
from tests import tiny


def _work(prepared: Prepared, root: Path, changes: dict[str, Any] | None = None) -> PretrainWork:
    run = tiny.pretrain("25% clm > 75% mlm(0.4)", "8 steps", changes)
    course = tiny.course(run, prepared)
    folder = Workspace(root).corpus(tiny.CORPUS)
    folder.parent.mkdir(parents=True)
    folder.symlink_to(prepared.folder)
    return PretrainWork(root, tiny.CORPUS, run, 0, course.steps, "", course.identity(course.steps))


def test_a_job_of_two_processes_ends_with_the_weights_of_one(prepared: Prepared, tmp_path: Path) -> None:
    targets = []
    for processes in (1, 2):
        work = _work(prepared, tmp_path / str(processes))
        told: list[dict[str, Any]] = []
        machine = tiny.MACHINE.model_copy(update={"processes": processes, "parallel": "fsdp"})
        execute(work, machine, told.append, lambda: False)
        assert [facts["step"] for facts in told] == list(range(1, 9))
        targets.append(Workspace(work.workspace).state(work.target))
    assert tiny.far(targets[0], targets[1], 1e-6) == []


def test_what_stops_one_of_two_processes_is_told_in_one_line(prepared: Prepared, tmp_path: Path) -> None:
    work = _work(prepared, tmp_path, {"learning_rate": {"peak": 1e30, "warmup": "0", "shape": "constant"}})
    machine = tiny.MACHINE.model_copy(update={"processes": 2})
    with pytest.raises(UserError, match=r"^pretraining diverged: the (loss|gradient) was not finite") as caught:
        execute(work, machine, lambda facts: None, lambda: False)
    assert "\n" not in str(caught.value)
