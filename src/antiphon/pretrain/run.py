"""Text and a config in, a checkpoint out: one segment of a run, from one state to a later one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from antiphon.config import UserError
from antiphon.data.batches import Batches
from antiphon.data.layout import Packing, sources
from antiphon.data.prepare import Prepared
from antiphon.machine import Machine
from antiphon.model.attention import Attention
from antiphon.model.loss import Loss
from antiphon.pretrain.held_out import held_out_batches
from antiphon.pretrain.objective import Vocabulary
from antiphon.pretrain.pieces import Piece, pieces
from antiphon.pretrain.segment import Segment, finish, newest, tidy
from antiphon.pretrain.state import State
from antiphon.pretrain.tally import Tally
from antiphon.train import checkpoint, parallel
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
        self.tally = Tally(self.course, self.ledger(self.step)["tokens_seen"])

    def open_batches(self) -> Batches:
        run = self.course.run
        corpora = sources(
            self.prepared.shards["train"], [run.corpus.weight], run.batch.packing, run.batch.block, lambda note: None
        )
        return Batches(corpora, run.batch.block, self.prepared.encoder.pad, run.seed)

    def train(self) -> None:
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
        objective = self.course.span(step).at(step)
        batch = self.batches.take(self.course.first(step), self.course.rows(step), self.course.length(step))
        parts = objective(batch, self.vocabulary, self.course.run.seed, step)
        return pieces(parts, self.machine, self.ranks)

    def ledger(self, step: int) -> dict[str, int]:
        """Tokens and words seen in the first `step` steps."""
        tokens = round(self.course.tokens(step))
        if self.course.run.batch.packing is Packing.CONTIGUOUS:
            tokens = self.batches.tokens_seen(int(self.course.pace.slots[step]))
        return {"tokens_seen": tokens, "words_seen": round(self.course.words(step))}

    def loss(self, learner: nn.Module, piece: Piece) -> Loss:
        micro = piece.batch
        inputs, labels, documents, positions = (
            self.tensor(array) for array in (micro.inputs, micro.labels, micro.documents, micro.positions)
        )
        opened = None if micro.opened is None else self.tensor(micro.opened)
        with parallel.autocast(self.state.device, self.precision):
            total = learner(inputs, labels, documents, positions, Attention(micro.attention), opened)
        return Loss(total, micro.count)

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
            self.report(done, self.validate() if validate else {})
        if not last:
            self.save_or_stop(done.step)

    def save_or_stop(self, step: int) -> None:
        overdue = time.monotonic() - self.saved > self.machine.save_seconds
        # All ranks stop and save together, whichever was asked to: one that went on would wait for the others for ever.
        stop, due = self.ranks.sums(float(self.stopped()), float(overdue and self.ranks.rank == 0))
        kept = self.machine.keep_every and step % self.machine.keep_every == 0
        if stop or due or kept:
            self.save(self.segment.state(step), step)
            self.saved = time.monotonic()
        if stop:
            self.settle()
            raise Interrupted

    def report(self, done: Progress, validation: dict[str, float]) -> None:
        line = self.tally.line(done, self.ledger(done.step), validation)
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
            **self.ledger(step),
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
