"""A run divides its batches, validates, learns, and says what it does."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from antiphon.config import UserError
from antiphon.data.prepare import Prepared, prepare
from antiphon.data.tokenizer import Tokenizer
from antiphon.machine import Machine
from antiphon.model.loss import Learner, Loss
from antiphon.pretrain import run as pretraining
from antiphon.pretrain.config import Course
from antiphon.pretrain.pieces import Piece, pieces
from antiphon.train import checkpoint, log
from antiphon.train.loop import Progress, train
from antiphon.train.optimizer import adamw
from antiphon.train.parallel import Parallel
from tests import tiny
from tests.pretrain.asking import EVERY, MIXTURES


def course(prepared: Prepared) -> Course:
    """A run of 2 and 6 steps."""
    return tiny.course(tiny.pretrain("25% clm > 75% mlm(0.4)", "8 steps"), prepared)


# 5: one update is the same for any division


UPDATES = ["clm", "mlm(0.4)", "mntp(0.3)", "mix(clm: 1, mlm(0.4): 2)"]
SEVEN = {"batch": {"rows": 7, "length": 32}}


@pytest.mark.parametrize("schedule", UPDATES)
def test_an_update_is_the_same_for_any_micro_batch(prepared: Prepared, tmp_path: Path, schedule: str) -> None:
    found = tiny.course(tiny.pretrain(schedule, "4 steps", SEVEN), prepared)
    losses = {}
    for size in (0, 1, 3, 5, 7, 100):
        machine = tiny.MACHINE.model_copy(update={"micro_batch_tokens": 32 * size})
        once, whole = tiny.stretch(found, tmp_path, f"{size} once", 0, 1), tiny.stretch(found, tmp_path, f"{size}")
        tiny.train(once, prepared, machine)
        tiny.train(whole, prepared, machine)
        assert tiny.far(once.target, tmp_path / "states" / "0 once", 1e-6) == []
        assert tiny.far(whole.target, tmp_path / "states" / "0", 1e-5) == []
        losses[size] = [line["loss"] for line in log.read(whole.log)]
        for one, other in zip(losses[size], losses[0], strict=True):
            assert one == pytest.approx(other, rel=1e-5)


# 8: validation


def _trainer(prepared: Prepared, folder: Path, found: Course, machine: Machine) -> pretraining._Trainer:
    segment = tiny.stretch(found, folder, f"micro {machine.micro_batch_tokens}")
    trainer = pretraining._Trainer(segment, prepared, machine, Parallel(), lambda facts: None, lambda: False)
    trainer.close()
    return trainer


def test_the_validation_loss_is_the_training_loss_of_the_same_batch(prepared: Prepared, tmp_path: Path) -> None:
    settings = {"validation": {"rows": 7, "objectives": EVERY + MIXTURES}}
    found = tiny.course(tiny.pretrain("clm", "8 steps", settings), prepared)
    trainer = _trainer(prepared, tmp_path, found, tiny.MACHINE)
    validation = trainer.validate()
    assert set(validation) == set(EVERY + MIXTURES)
    for name, parts in trainer.held_out.items():
        told: list[Progress] = []
        train(
            trainer.state.learner,
            adamw(trainer.state.learner, weight_decay=0.0, betas=(0.9, 0.95), epsilon=1e-8),
            start=0,
            steps=1,
            batches=lambda step, parts=parts: pieces(parts, tiny.MACHINE, Parallel()),
            count=lambda micro: micro.count,
            loss=trainer.loss,
            learning_rate=lambda step: 0.0,
            clip=1.0,
            actions=[(1, told.append)],
        )
        assert told[0].loss == pytest.approx(validation[name], rel=1e-6)
    divided = [
        _trainer(
            prepared, tmp_path, found, tiny.MACHINE.model_copy(update={"micro_batch_tokens": 32 * size})
        ).validate()
        for size in (1, 2, 5)
    ]
    for other in divided:
        assert other == pytest.approx(validation, rel=1e-6)


def test_validation_computes_no_more_rows_at_once_than_the_machine_allows(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tiny.course(tiny.pretrain("clm", "8 steps", {"validation": {"rows": 7}}), prepared)
    trainer = _trainer(prepared, tmp_path, found, tiny.MACHINE.model_copy(update={"micro_batch_tokens": 64 + 31}))
    sizes = []
    real = trainer.loss

    def counted(model: nn.Module, piece: Piece) -> Loss:
        sizes.append(len(piece.batch.inputs))
        return real(model, piece)

    monkeypatch.setattr(trainer, "loss", counted)
    trainer.validate()
    assert max(sizes) == 2
    assert sum(sizes) == 14  # 7 rows, asked by two objectives


def test_validation_only_observes(prepared: Prepared, tmp_path: Path) -> None:
    targets = []
    for points in (0, 8):
        run = tiny.pretrain("50% clm > 50% mlm(0.4)", "8 steps", {"validation": {"points": points, "rows": 4}})
        segment = tiny.stretch(tiny.course(run, prepared), tmp_path, str(points))
        tiny.train(segment, prepared)
        told = [line["validation"] for line in log.read(segment.log)]
        assert [bool(values) for values in told] == [points > 0] * 8
        targets.append(segment.target)
    assert tiny.differing(*targets) == []


def test_a_run_without_held_out_text_has_no_validation(tiny_text: Path, tmp_path: Path) -> None:
    corpus = tiny.corpus(tiny_text, validation_share=0.0)
    prepare((corpus,), Tokenizer(vocabulary=300), tmp_path / "c", tmp_path, 1, lambda facts: None)
    whole = Prepared.open(tmp_path / "c")
    segment = tiny.stretch(tiny.course(tiny.pretrain("clm", "4 steps"), whole), tmp_path, "run")
    tiny.train(segment, whole)
    assert all(line["validation"] == {} for line in log.read(segment.log))


# What is told, and what is written


def test_a_checkpoint_says_what_it_is(prepared: Prepared, tmp_path: Path) -> None:
    found = course(prepared)
    segment = tiny.stretch(found, tmp_path, "run")
    tiny.train(segment, prepared)
    facts = checkpoint.read_facts(segment.target)
    assert facts["identity"] == found.identity(8)
    assert (facts["step"], facts["steps"]) == (8, 8)
    assert facts["tokens_seen"] == 8 * 4 * 32
    assert facts["words_seen"] == pytest.approx(found.words(8), rel=0.1)
    assert type(found.run).read(facts["pretrain"]) == found.run
    for path in prepared.tokenizer_files:
        assert (segment.target / path.name).read_bytes() == path.read_bytes()


def test_tokens_seen_are_the_real_tokens_shown(prepared: Prepared, tmp_path: Path) -> None:
    # Over the end of an epoch, whose last row is padded.
    (shards,) = prepared.shards["train"]
    length = 64
    rows = -(-shards.tokens // length)
    assert shards.tokens % length
    run = tiny.pretrain("mlm(0.4)", "5 steps", {"batch": {"rows": rows // 2, "length": length}})
    segment = tiny.stretch(tiny.course(run, prepared), tmp_path, "run")
    tiny.train(segment, prepared)
    batches = tiny.batches(prepared, rows // 2, length)
    shown = [int((batches(step).documents >= 0).sum()) for step in range(5)]
    assert [line["tokens_seen"] for line in log.read(segment.log)] == list(np.cumsum(shown))


def test_reports_name_the_objective_and_its_loss(prepared: Prepared, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    segment = tiny.stretch(course(prepared), tmp_path, "run")
    pretraining.run(segment, prepared, tiny.MACHINE, Parallel(), told.append, lambda: False)
    assert [facts["objective"] for facts in told] == ["clm"] * 2 + ["mlm(0.4)"] * 6
    assert [list(facts["loss"]) for facts in told] == [[facts["objective"]] for facts in told]
    assert {(facts["phase"], facts["phases"]) for facts in told} == {(1, 2), (2, 2)}
    assert [facts["learning_rate"] for facts in told] == [segment.course.learning_rate(step) for step in range(8)]


def test_a_run_that_diverges_is_said_and_keeps_its_last_state(prepared: Prepared, tmp_path: Path) -> None:
    changes = {"learning_rate": {"peak": 1e30, "warmup": "1 steps", "decay": "1 steps"}, "optimizer": {"bad_steps": 3}}
    found = tiny.course(tiny.pretrain("50% clm > 50% mlm(0.4)", "8 steps", changes), prepared)
    segment = tiny.stretch(found, tmp_path, "diverging")
    with pytest.raises(UserError) as caught:
        tiny.train(segment, prepared)
    assert "pretraining diverged" in str(caught.value)
    assert "Phase: clm" in str(caught.value)
    assert "learning_rate.peak" in str(caught.value)
    assert not segment.target.exists()


def test_a_missing_beginning_is_said(prepared: Prepared, tmp_path: Path) -> None:
    segment = tiny.stretch(course(prepared), tmp_path, "run", 2, 8, tmp_path / "nowhere")
    with pytest.raises(UserError, match="not a complete checkpoint"):
        tiny.train(segment, prepared)


@pytest.mark.parametrize("packing", ["contiguous", "documents", "pieces"])
@pytest.mark.parametrize("schedule", ["prefix(0.5)", "mix(clm: 1, prefix(0.5): 1, mlm(0.3, spans 1-3): 2)", "cmlm"])
def test_every_packing_trains_under_rows_that_change(
    packing: str, schedule: str, prepared: Prepared, tmp_path: Path
) -> None:
    batch = {"rows": "50% 2 > 4", "length": "50% 16 > 32", "packing": packing}
    found = tiny.course(tiny.pretrain(schedule, "6 steps", {"batch": batch}), prepared)
    segment = tiny.stretch(found, tmp_path, "whole")
    tiny.train(segment, prepared)
    losses = [loss for line in log.read(segment.log) for loss in line["loss"].values()]
    assert losses
    assert all(0 < loss < 20 for loss in losses)


def test_reports_go_to_the_trackers_that_were_asked_for(prepared: Prepared, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    segment = tiny.stretch(tiny.course(tiny.pretrain("clm", "6 steps"), prepared), tmp_path, "whole")
    tiny.train(segment, prepared, tiny.MACHINE.model_copy(update={"trackers": ("tensorboard",)}))
    assert list((segment.log.parent / "trackers" / "whole").glob("events.*"))


@pytest.mark.parametrize("packing", ["contiguous", "documents", "pieces"])
def test_the_ledger_counts_what_is_shown_also_after_a_stop(packing: str, prepared: Prepared, tmp_path: Path) -> None:
    batch = {"rows": "50% 2 > 5", "length": "50% 16 > 32", "packing": packing}
    found = tiny.course(tiny.pretrain("mlm(0.4)", "8 steps", {"batch": batch}), prepared)
    segment = tiny.stretch(found, tmp_path, "whole")
    with pytest.raises(pretraining.Interrupted):
        tiny.train(segment, prepared, interrupt_at=3)
    tiny.train(segment, prepared)
    with contextlib.closing(_trainer(prepared, tmp_path / "looking", found, tiny.MACHINE)) as trainer:
        shown = [trainer.batch(step) for step in range(8)]
    facts = checkpoint.read_facts(segment.target)
    assert facts["tokens_seen"] == sum(batch.count for batch in shown) == log.read(segment.log)[-1]["tokens_seen"]
    assert facts["words_seen"] == sum(batch.words for batch in shown)
    assert facts["tokens_seen"] == pytest.approx(found.tokens(8), rel=0.1)


def test_a_report_says_where_the_time_went(prepared: Prepared, tmp_path: Path) -> None:
    segment = tiny.stretch(tiny.course(tiny.pretrain("clm"), prepared), tmp_path, "whole")
    tiny.train(segment, prepared)
    for line in log.read(segment.log):
        assert set(line["seconds_by_part"]) >= {"training", "reading"}
        assert sum(line["seconds_by_part"].values()) == pytest.approx(line["seconds"])
        assert 0 < line["mfu"] < 1


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor", "ignore::DeprecationWarning")
def test_compiled_layers_train_to_the_same_weights(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from antiphon.model.compiled import compile_learner
    from antiphon.pretrain import state

    asked: list[object] = []

    def quickly(learner: Learner) -> None:
        asked.append(learner)
        compile_learner(learner, "aot_eager")

    monkeypatch.setattr(state, "compile_learner", quickly)
    found = tiny.course(tiny.pretrain("50% clm > 50% mlm(0.4)"), prepared)
    plain, compiled = (tiny.stretch(found, tmp_path, name) for name in ("plain", "compiled"))
    tiny.train(plain, prepared)
    assert not asked
    tiny.train(compiled, prepared, tiny.MACHINE.model_copy(update={"compile": "on"}))
    assert len(asked) == 1
    assert tiny.far(plain.target, compiled.target, 1e-5) == []
