"""Jobs as values: what a worker is handed, and what the launcher needs to know of it. No torch here."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from antiphon.finetune.config import Finetune, Protocol
from antiphon.pretrain.config import Pretrain
from antiphon.study.plan import Plan
from antiphon.study.workspace import Workspace


@dataclasses.dataclass(frozen=True)
class PretrainWork:
    """Train one segment: `run` from the state `origin` after `start` steps to the state `target` after `stop`."""

    workspace: Path
    corpus: str
    run: Pretrain
    start: int
    stop: int
    origin: str
    target: str


@dataclasses.dataclass(frozen=True)
class ScoreWork:
    """Fine-tune one state on one task and score it."""

    workspace: Path
    job: str
    state: str
    config: Finetune
    data: str


@dataclasses.dataclass(frozen=True)
class Job:
    """Something to be done once.

    Attributes:
        id: identity of its result.
        title: for the reader of the console.
        work: what the worker gets.
        done: exists when the job is done.
        needs: id of the job whose result it starts from; empty for none.
        weight: expected cost, for the order and the time left (floating-point operations).
    """

    id: str
    title: str
    work: PretrainWork | ScoreWork
    done: Path
    needs: str
    weight: float

    @property
    def is_pretraining(self) -> bool:
        """Whether it trains a segment."""
        return isinstance(self.work, PretrainWork)


def jobs(found: Plan, space: Workspace) -> list[Job]:
    """All jobs of a plan, done or not: segments first, parents before children, then the fine-tunings."""
    training = []
    for segment in found.segments:
        arm, seed = segment.run
        work = PretrainWork(
            space.root,
            found.corpus,
            found.courses[segment.run].run,
            segment.start,
            segment.stop,
            segment.origin,
            segment.target,
        )
        arms = "+".join(dict.fromkeys(name for name, _ in segment.users)) or arm
        title = f"pretrain {arms} seed {seed}"
        training.append(Job(segment.target, title, work, space.state(segment.target), segment.origin, segment.flops))
    names = {
        reading.state: f"{reading.arm} seed {reading.seed} at {reading.label}" for reading in reversed(found.readings)
    }
    scoring = []
    for item in found.scorings:
        work = ScoreWork(space.root, item.job, item.state, item.config, found.study.finetune.data)
        title = f"{item.config.task} on {names[item.state]}"
        weight = _finetuning_flops(found, item.config)
        scoring.append(Job(item.job, title, work, space.scores(item.job), item.state, weight))
    return training + scoring


def missing(every: list[Job]) -> list[Job]:
    """The jobs still to do: those not done, less the segments that nothing missing starts from or reads.

    A state in the middle of a finished run may have been deleted to save space; it is not made again for nothing.
    """
    undone = {job.id: job for job in every if not job.done.exists()}
    needed = {job.needs for job in undone.values() if not job.is_pretraining}
    readings = {job.needs for job in every if not job.is_pretraining}
    ends = {job.id for job in every if job.is_pretraining} - {job.needs for job in every if job.is_pretraining}
    needed |= (readings | ends) & set(undone)
    for job in reversed([job for job in every if job.is_pretraining]):
        if job.id in undone and job.id in needed and job.needs:
            needed.add(job.needs)
    return [job for job in every if job.id in undone and (not job.is_pretraining or job.id in needed)]


def _finetuning_flops(found: Plan, config: Protocol) -> float:
    from antiphon.model.presets import body_parameters

    model = next(iter(found.courses.values())).run.model
    # A first guess only, for the time left: rows of 48 tokens, and as much again for the evaluation.
    return 2 * 6.0 * body_parameters(model) * config.steps * config.batch * 48
