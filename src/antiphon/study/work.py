"""What a worker does: one job at a time. Importing this module loads torch; the launcher preloads it once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from antiphon.data.prepare import Prepared
from antiphon.data.supply import supply
from antiphon.finetune.run import finetune
from antiphon.machine import Machine
from antiphon.pretrain import run as pretraining
from antiphon.pretrain.config import Course
from antiphon.pretrain.segment import Segment
from antiphon.results import table
from antiphon.study.jobs import PretrainWork, ScoreWork
from antiphon.study.workspace import Workspace
from antiphon.train.parallel import Parallel

Report = Callable[[dict[str, Any]], None]


def execute(work: PretrainWork | ScoreWork, machine: Machine, report: Report, stopped: Callable[[], bool]) -> None:
    """Do one job; its result is on disk when this returns.

    Raises:
        UserError, pretraining.Interrupted: as pretrain.run says.
    """
    torch.set_num_threads(machine.threads)
    if isinstance(work, PretrainWork):
        _pretrain(work, machine, report, stopped)
    else:
        _score(work, machine, report)


def _pretrain(work: PretrainWork, machine: Machine, report: Report, stopped: Callable[[], bool]) -> None:
    space = Workspace(work.workspace)
    folder = space.corpus(work.corpus)
    course = Course(
        work.run, work.corpus, supply(folder, [work.run.corpus.weight], work.run.batch.packing, work.run.batch.block)
    )
    segment = Segment(
        course,
        work.start,
        work.stop,
        space.state(work.origin) if work.origin else None,
        space.state(work.target),
        space.partial(work.target),
        space.log(work.target),
    )
    pretraining.run(segment, Prepared.open(folder), machine, Parallel(), report, stopped)


def _score(work: ScoreWork, machine: Machine, report: Report) -> None:
    space = Workspace(work.workspace)
    data = Path(work.data).expanduser() if work.data else None
    scores = finetune(work.config, work.state, space.state(work.state), data, space.root, machine, report)
    table.write(space.scores(work.job), [dataclasses.replace(score, job=work.job) for score in scores])
