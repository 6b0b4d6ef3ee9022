"""Text and a config in, a checkpoint out: one segment of a run, from one state to a later one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from antiphon.config import UserError
from antiphon.data.batches import Batches
from antiphon.data.layout import Packing, sources
from antiphon.data.prepare import Prepared
from antiphon.machine import Machine
from antiphon.model import build
from antiphon.model.attention import Attention, choose_kernel
from antiphon.model.loss import Loss, language_modelling
from antiphon.pretrain.held_out import held_out_batches
from antiphon.pretrain.objective import LMBatch, Vocabulary
from antiphon.pretrain.segment import Segment, keep_newest, newest
from antiphon.train import checkpoint, optimizer, parallel
from antiphon.train.log import Log
from antiphon.train.loop import Diverged, Progress, train
from antiphon.train.parallel import Parallel
from antiphon.train.trackers import open_trackers, scalars

REPORTS_A_RUN = 80


class Interrupted(Exception):  # noqa: N818 - not an error
    """The run was asked to stop; its state is saved."""


def run(
    segment: Segment,
    prepared: Prepared,
    machine: Machine,
    ranks: Parallel,
    progress: Callable[[dict[str, Any]], None],
    stopped: Callable[[], bool],
) -> None:
    """Train a segment, from its newest complete state, and write its target.

    Args:
        segment: what to train.
        prepared: the corpus.
        machine: where.
        ranks: this process among others.
        progress: told at each report.
        stopped: asked after every step whether to save and stop.

    Raises:
        Interrupted: `stopped` said so; the state is saved.
        UserError: the loss or the gradient stopped being finite; the last good state is kept.
    """
    trainer = _Trainer(segment, prepared, machine, ranks, progress, stopped)
    try:
        trainer.train()
    except Diverged as error:
        raise UserError(
            f"pretraining diverged: {error}. Phase: {segment.course.span(error.step).objective}; "
            f"learning rate {segment.course.learning_rate(error.step):g}. Lower pretrain.learning_rate.peak or "
            f"pretrain.optimizer.clip; the last saved state is kept."
        ) from None
    finally:
        if trainer.log is not None:
            trainer.log.close()
        for tracker in trainer.trackers:
            tracker.close()
    if ranks.rank == 0 and segment.partial.is_dir():
        shutil.rmtree(segment.partial)


class _Trainer:
    """The state of one segment's training; its methods are what the loop is given."""

    def __init__(
        self,
        segment: Segment,
        prepared: Prepared,
        machine: Machine,
        ranks: Parallel,
        progress: Callable[[dict[str, Any]], None],
        stopped: Callable[[], bool],
    ) -> None:
        self.segment, self.prepared, self.machine, self.ranks = segment, prepared, machine, ranks
        self.progress, self.stopped = progress, stopped
        course = segment.course
        self.course = course
        encoder = prepared.encoder
        self.vocabulary = Vocabulary.of(encoder)
        shape = course.run.batch
        corpora = sources(
            prepared.shards["train"], [course.run.corpus.weight], shape.packing, shape.block, lambda note: None
        )
        self.batches = Batches(corpora, shape.block, encoder.pad, course.run.seed)
        self.device = parallel.device(machine)
        self.precision = parallel.precision(machine)
        origin, self.step = newest(segment)
        if origin is None:
            self.model = build.build(course.run.model, encoder.size, course.run.seed)
        else:
            self.model = build.load(origin)
        self.model.to(self.device)  # pyright: ignore[reportCallIssue, reportArgumentType]
        build.use_kernel(self.model, choose_kernel(self.device, self.precision, shape.block))
        self.optimizer = self._fresh_optimizer()
        if origin is not None:
            checkpoint.restore_optimizer(origin, self.optimizer)
        # One writer: a second one would replace the file under the first one's hands.
        self.log = Log(segment.log, self.step) if ranks.rank == 0 else None
        names = machine.trackers if ranks.rank == 0 else ()
        folder = segment.log.parent / "trackers"
        known = course.run.model_dump(mode="json")
        self.trackers = open_trackers(names, folder, "antiphon", segment.target.name, known, self.step)
        self.held_out = held_out_batches(course, prepared)
        self.saved = self.reported_at = time.monotonic()
        self.reported_step = self.step
        self.sums: dict[str, tuple[float, int]] = {}

    def train(self) -> None:
        start, stop = self.step, self.segment.stop
        settings = self.course.run.optimizer
        for border in sorted({step for step in self.course.resets if start < step < stop} | {stop}):
            if start in self.course.resets:
                self.optimizer = self._fresh_optimizer()
            train(
                self.model,
                self.optimizer,
                start=start,
                steps=border,
                batches=self.micro_batches,
                count=lambda micro: micro.count,
                loss=self.loss,
                learning_rate=self.course.learning_rate,
                clip=settings.clip,
                parallel=self.ranks,
                actions=[(1, self.after_step)],
            )
            start = border
        self.save(self.segment.target, stop)

    def micro_batches(self, step: int) -> list[LMBatch]:
        """This rank's micro-batches of a step: the objective sees the whole batch, then it is divided."""
        objective = self.course.span(step).at(step)
        batch = self.batches.take(self.course.first(step), self.course.rows(step), self.course.length(step))
        parts = objective(batch, self.vocabulary, self.course.run.seed, step)
        mine = [part.rows(self.ranks.share(len(part.inputs))) for part in parts]
        return _divided(mine, self.machine.micro_batch_rows)

    def tokens_seen(self, step: int) -> int:
        if self.course.run.batch.packing is not Packing.CONTIGUOUS:
            return round(self.course.tokens(step))
        return self.batches.tokens_seen(int(self.course.pace.slots[step]))

    def loss(self, model: nn.Module, micro: LMBatch) -> Loss:
        assert isinstance(model, build.LanguageModel)
        inputs, labels, documents, positions = (
            self.tensor(array) for array in (micro.inputs, micro.labels, micro.documents, micro.positions)
        )
        with parallel.autocast(self.device, self.precision):
            opened = None if micro.opened is None else self.tensor(micro.opened)
            return language_modelling(model, inputs, labels, documents, positions, Attention(micro.attention), opened)

    def tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def after_step(self, done: Progress) -> None:
        objective = str(self.course.span(done.step - 1).objective)
        total, count = self.sums.get(objective, (0.0, 0))
        self.sums[objective] = (total + done.loss * done.count, count + done.count)
        every = max(1, self.course.steps // REPORTS_A_RUN)
        points = self.course.run.validation.points
        validate_every = max(1, self.course.steps // points) if points else 0
        last = done.step == self.segment.stop
        validate = bool(self.held_out) and validate_every > 0 and (done.step % validate_every == 0 or last)
        if done.step % every == 0 or last or validate:
            self.report(done, objective, self.validate() if validate else {})
        if last:
            return
        # All ranks stop together, whichever was asked to: one that went on would wait for the others for ever.
        if self.ranks.sum(float(self.stopped())):
            self.save(self.partial(done.step), done.step)
            raise Interrupted
        if self.ranks.rank == 0 and time.monotonic() - self.saved > self.machine.save_seconds:
            self.save(self.partial(done.step), done.step)
            keep_newest(self.segment.partial)
            self.saved = time.monotonic()

    def report(self, done: Progress, objective: str, validation: dict[str, float]) -> None:
        now = time.monotonic()
        tokens = self.tokens_seen(done.step)
        speed = (tokens - self.tokens_seen(self.reported_step)) / max(now - self.reported_at, 1e-9)
        line = {
            "step": done.step,
            "tokens_seen": tokens,
            "words_seen": round(self.course.words(done.step)),
            "objective": objective,
            "loss": {name: total / max(count, 1) for name, (total, count) in self.sums.items()},
            "validation": validation,
            "learning_rate": done.learning_rate,
            "gradient_norm": done.gradient_norm,
            "tokens_per_second": speed,
            "seconds": now - self.reported_at,
        }
        self.sums, self.reported_at, self.reported_step = {}, now, done.step
        if self.log is not None:
            self.log.write(line)
            for tracker in self.trackers:
                tracker.write(done.step, scalars(line))
            phase = self.course.spans.index(self.course.span(done.step - 1)) + 1
            self.progress({**line, "steps": self.course.steps, "phase": phase, "phases": len(self.course.spans)})

    def validate(self) -> dict[str, float]:
        """Mean loss on the held-out rows by each objective: sums over counts."""
        self.model.eval()
        losses = {}
        with torch.no_grad():
            for name, parts in self.held_out.items():
                found = [self.loss(self.model, part) for part in _divided(parts, self.machine.micro_batch_rows)]
                losses[name] = float(sum(loss.total for loss in found)) / max(sum(loss.count for loss in found), 1)
        self.model.train()
        return losses

    def save(self, folder: Path, step: int) -> None:
        if self.ranks.rank:
            return
        facts = {
            "identity": self.course.identity(step),
            "step": step,
            "steps": self.course.steps,
            "tokens_seen": self.tokens_seen(step),
            "words_seen": round(self.course.words(step)),
            "pretrain": self.course.run.model_dump(mode="json"),
            "corpus": self.prepared.folder.name,
        }
        checkpoint.save(
            folder, lambda work: build.save(self.model, work), self.optimizer, self.prepared.tokenizer_files, facts
        )

    def partial(self, step: int) -> Path:
        return self.segment.partial / f"step-{step:09d}"

    def _fresh_optimizer(self) -> torch.optim.Optimizer:
        settings = self.course.run.optimizer
        return optimizer.adamw(
            self.model,
            weight_decay=settings.weight_decay,
            betas=settings.betas,
            epsilon=settings.epsilon,
            decay_all=settings.decay_all,
        )


def _divided(parts: Sequence[LMBatch], rows: int) -> list[LMBatch]:
    """The parts in micro-batches of at most so many rows; 0 leaves them whole."""
    micro = []
    for part in parts:
        # A rank may have no row of a part at all.
        size = rows or max(len(part.inputs), 1)
        micro += [part.rows(slice(first, first + size)) for first in range(0, len(part.inputs), size)]
    return micro
