"""Text and a config in, a checkpoint out: one segment of a run, from one state to a later one."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from antiphon.config import UserError
from antiphon.data.batches import Batches, TokenBatch
from antiphon.data.layout import sources
from antiphon.data.prepare import Prepared
from antiphon.machine import Machine
from antiphon.model.attention import Attention
from antiphon.model.compiled import check_compiled
from antiphon.model.loss import Loss
from antiphon.pretrain.held_out import held_out_batches
from antiphon.pretrain.objective import LMBatch, Vocabulary
from antiphon.pretrain.pieces import Piece, pieces
from antiphon.pretrain.segment import Segment, finish, newest, tidy
from antiphon.pretrain.state import State
from antiphon.pretrain.tally import Tally
from antiphon.train import checkpoint, parallel
from antiphon.train.log import Log
from antiphon.train.loop import Diverged, Progress, train
from antiphon.train.parallel import Parallel
from antiphon.train.peak import peak_flops
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
        ranks: this process among others; all call this together, with the same segment on a disk they share.
        progress: told at each report.
        stopped: asked after every step whether to save and stop.

    Raises:
        Interrupted: `stopped` said so; the state is saved.
        UserError: too many steps were not finite, or a state could not be written; the last saved state is kept.
    """
    with contextlib.closing(_Trainer(segment, prepared, machine, ranks, progress, stopped)) as trainer:
        try:
            trainer.train()
        except Diverged as error:
            raise UserError(
                f"pretraining diverged: {error}. Phase: {segment.course.span(error.step).objective}; "
                f"learning rate {segment.course.learning_rate(error.step):g}. Lower pretrain.learning_rate.peak or "
                f"pretrain.optimizer.clip, or raise pretrain.optimizer.bad_steps; the last saved state is kept."
            ) from None
    if ranks.rank == 0:
        finish(segment, machine)


class _Trainer:
    """One segment's training; its methods are what the loop is given."""

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
        self.course = segment.course
        encoder = prepared.encoder
        self.vocabulary = Vocabulary.of(encoder)
        self.batches = self.open_batches()
        self.held_out = held_out_batches(self.course, prepared)
        self.precision = parallel.precision(machine)
        # One looks and tells: what is damaged is removed.
        origin, self.step = ranks.gather(newest(segment) if ranks.rank == 0 else (None, 0))[0]
        self.state = State.open(self.course.run, encoder.size, machine, ranks, origin)
        # One writer: a second one would replace the file under the first one's hands.
        self.log = Log(segment.log, self.step) if ranks.rank == 0 else None
        names = machine.trackers if ranks.rank == 0 else ()
        known = self.course.run.model_dump(mode="json")
        folder = segment.log.parent / "trackers"
        self.trackers = open_trackers(names, folder, "antiphon", segment.target.name, known, self.step)
        self.saver = checkpoint.Saver(machine.save_in_background)
        self.saved = time.monotonic()
        peak = peak_flops(self.state.device, self.precision)
        begun = {} if origin is None else checkpoint.peek(origin)
        self.tally = Tally(self.course, begun, encoder.size, None if peak is None else peak * ranks.world)

    def open_batches(self) -> Batches:
        run = self.course.run
        corpora = sources(
            self.prepared.shards["train"], run.weights, run.batch.packing, run.batch.block, lambda note: None
        )
        return Batches(corpora, run.batch.block, self.prepared.encoder.pad, run.seed)

    def check_compiled(self) -> None:
        """Hold compiled code against uncompiled code on the first micro-batch; not for shards of a model."""
        if not parallel.compiles(self.machine) or (self.ranks.world > 1 and self.machine.parallel == "fsdp"):
            return
        micro = self.pieces(self.step, self.batch(self.step))[0].batch
        with parallel.autocast(self.state.device, self.precision):
            check_compiled(self.state.alone, *self.arguments(micro))

    def train(self) -> None:
        self.check_compiled()
        start, stop = self.step, self.segment.stop
        settings = self.course.run.optimizer
        for border in sorted({step for step in self.course.resets if start < step < stop} | {stop}):
            if start in self.course.resets:
                self.state.restart_optimizer()
            train(
                self.state.learner,
                self.state.optimizer,
                start=start,
                steps=border,
                batches=self.micro_batches,
                count=lambda piece: piece.count,
                loss=self.loss,
                learning_rate=self.course.learning_rate,
                clip=settings.clip,
                parallel=self.ranks,
                bad_steps=settings.bad_steps,
                bad=self.state.bad,
                rows=lambda piece: piece.rows,
                actions=[(1, self.after_step)],
            )
            start = border
        self.save(self.segment.target, stop)
        self.settle()

    def micro_batches(self, step: int) -> list[Piece]:
        """This rank's micro-batches of a step: the objective sees the whole batch, then it is divided."""
        with self.tally.timed("reading"):
            self.state.use_kernel_for(self.course.length(step))
            batch = self.batch(step)
            self.tally.show(batch)
            return self.pieces(step, batch)

    def batch(self, step: int) -> TokenBatch:
        batch = self.batches.take(self.course.first(step), self.course.rows(step), self.course.length(step))
        return dataclasses.replace(batch, first_row=self.course.first_row(step))

    def pieces(self, step: int, batch: TokenBatch) -> list[Piece]:
        objective = self.course.span(step).at(step)
        return pieces(objective(batch, self.vocabulary, self.course.run.seed, step), self.machine, self.ranks)

    def loss(self, learner: nn.Module, piece: Piece) -> Loss:
        with parallel.autocast(self.state.device, self.precision):
            total = learner(*self.arguments(piece.batch))
        return Loss(total, piece.count)

    def arguments(self, micro: LMBatch) -> tuple[Tensor, Tensor, Tensor, Tensor, Attention, Tensor | None]:
        """What the learner is called with."""
        return (
            self.tensor(micro.inputs),
            self.tensor(micro.labels),
            self.tensor(micro.documents),
            self.tensor(micro.positions),
            Attention(micro.attention),
            None if micro.opened is None else self.tensor(micro.opened),
        )

    def tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.state.device)

    def after_step(self, done: Progress) -> None:
        self.saver.check()
        self.state.bad = done.bad
        if self.state.average is not None and not done.bad:
            self.state.average.update()
        self.tally.add(done)
        every = max(1, self.course.steps // REPORTS_A_RUN)
        points = self.course.run.validation.points
        validate_every = max(1, self.course.steps // points) if points else 0
        last = done.step == self.segment.stop
        validate = bool(self.held_out) and validate_every > 0 and (done.step % validate_every == 0 or last)
        if done.step % every == 0 or last or validate or done.bad:
            with self.tally.timed("validation"):
                losses = self.validate() if validate else {}
            self.report(done, losses)
        if not last:
            self.save_or_stop(done.step)

    def save_or_stop(self, step: int) -> None:
        overdue = time.monotonic() - self.saved > self.machine.save_seconds
        # All ranks stop and save together, whichever was asked to: one that went on would wait for the others for ever.
        stop, due = self.ranks.sums(float(self.stopped()), float(overdue and self.ranks.rank == 0))
        kept = self.machine.keep_every and step % self.machine.keep_every == 0
        if stop or due or kept:
            with self.tally.timed("saving"):
                self.save(self.segment.state(step), step)
            self.saved = time.monotonic()
        if stop:
            self.settle()
            raise Interrupted

    def report(self, done: Progress, validation: dict[str, float]) -> None:
        line = self.tally.line(done, validation)
        if self.log is not None:
            self.log.write(line)
            for tracker in self.trackers:
                tracker.write(done.step, scalars(line))
            self.progress({**line, **self.tally.place(done)})

    def validate(self) -> dict[str, float]:
        """Mean loss on the held-out rows by each objective: sums over counts, over all ranks."""
        learner = self.state.learner.eval()
        losses = {}
        with torch.no_grad():
            for name, parts in self.held_out.items():
                found = [self.loss(learner, piece) for piece in pieces(parts, self.machine, self.ranks)]
                total, count = float(sum(loss.total for loss in found)), sum(loss.count for loss in found)
                total, count = self.ranks.sums(total, float(count))
                losses[name] = total / max(count, 1)
        parallel.settled(learner)
        learner.train()
        return losses

    def save(self, folder: Path, step: int) -> None:
        """Copy the state and have it written; what it replaces goes when it is complete."""
        write_model, training = self.state.writer()
        if self.ranks.rank:
            return
        facts = {
            "identity": self.course.identity(step),
            "step": step,
            "steps": self.course.steps,
            **self.tally.facts(),
            "pretrain": self.course.run.model_dump(mode="json"),
            "corpus": self.prepared.folder.name,
        }

        def write() -> None:
            checkpoint.save(folder, write_model, training, self.prepared.tokenizer_files, facts)
            tidy(self.segment, self.machine)

        self.saver.do(write)

    def settle(self) -> None:
        """Wait until what was saved is on the disk; no rank goes on before."""
        self.saver.wait()
        self.ranks.sum(0.0)

    def close(self) -> None:
        self.saver.close()
        if self.log is not None:
            self.log.close()
        for tracker in self.trackers:
            tracker.close()
