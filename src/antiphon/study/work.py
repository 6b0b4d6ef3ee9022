"""What a worker does: one job at a time. Importing this module loads torch; the launcher preloads it once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from antiphon.finetune.run import finetune
from antiphon.machine import Machine
from antiphon.results import table
from antiphon.study.jobs import PretrainWork, ScoreWork
from antiphon.study.ranks import pretrain, pretrain_together
from antiphon.study.workspace import Workspace
from antiphon.train.parallel import Parallel

Report = Callable[[dict[str, Any]], None]


def execute(work: PretrainWork | ScoreWork, machine: Machine, report: Report, stopped: Callable[[], bool]) -> None:
    """Do one job; its result is on disk when this returns.

    Raises:
        UserError, Interrupted: as pretrain.run says.
    """
    torch.set_num_threads(machine.threads)
    if isinstance(work, PretrainWork) and machine.processes > 1:
        pretrain_together(work, machine, report, stopped)
    elif isinstance(work, PretrainWork):
        pretrain(work, machine, Parallel(), report, stopped)
    else:
        _score(work, machine, report)


def _score(work: ScoreWork, machine: Machine, report: Report) -> None:
    space = Workspace(work.workspace)
    data = Path(work.data).expanduser() if work.data else None
    scores = finetune(work.config, work.state, space.state(work.state), data, space.root, machine, report)
    table.write(space.scores(work.job), [dataclasses.replace(score, job=work.job) for score in scores])
