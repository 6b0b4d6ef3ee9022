"""Several processes, each with a copy or a shard of the model, come to the weights of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.config import UserError
from antiphon.data.prepare import Prepared
from antiphon.machine import Machine
from antiphon.model import build
from antiphon.pretrain.pieces import pieces
from antiphon.train import checkpoint, log
from antiphon.train.optimizer import Kind
from antiphon.train.parallel import Parallel
from tests import ranks, tiny
from tests.pretrain.asking import EVERY, MIXTURES
from tests.ranks import Case

COPIES = tiny.MACHINE.model_copy(update={"parallel": "ddp"})
SHARDS = tiny.MACHINE.model_copy(update={"parallel": "fsdp"})
SMALL = {"micro_batch_tokens": 64}
SEVEN = {"batch": {"rows": 7, "length": 32}}
UPDATES = ["clm", "mlm(0.4)", "mntp(0.3)", "prefix(0.5)", "mix(clm: 1, mlm(0.4): 2)"]


def optimizers() -> dict[str, dict[str, Any]]:
    """A run's settings of its optimizer, for each kind."""
    every: dict[str, dict[str, Any]] = {kind.value: {"name": kind.value} for kind in Kind}
    return {**every, "averaged": {"ema": 0.9}, "restarted": {"at_switch": "restart"}}


def test_an_update_is_the_same_for_one_and_for_two_ranks(prepared: Prepared, tmp_path: Path) -> None:
    """Copies and shards, in one piece and in several, down to a rank that has no row at all."""
    runs = {schedule: tiny.pretrain(schedule, "4 steps", SEVEN) for schedule in UPDATES}
    runs["one row"] = tiny.pretrain("clm", "4 steps", {"batch": {"rows": 1, "length": 32}})
    runs["many rows"] = tiny.pretrain("50% mlm(0.4) > 50% mix(clm: 1, mlm(0.4): 6)", "4 steps", SEVEN)
    runs["changing"] = tiny.pretrain("mlm(0.4)", "4 steps", {"batch": {"rows": "50% 2 > 7", "length": "50% 16 > 32"}})
    phases = " > ".join(f"1 step {notation}" for notation in EVERY + MIXTURES)
    runs["every objective"] = tiny.pretrain(phases, None, SEVEN)
    cases, twins = [], []
    for name, run in runs.items():
        alone = tiny.stretch(tiny.course(run, prepared), tmp_path, f"{name} alone")
        tiny.train(alone, prepared)
        for machine in (COPIES, SHARDS):
            for changes in ({}, SMALL, {"activation_checkpointing": True, **SMALL}):
                place = machine.model_copy(update=changes)
                twin = tiny.stretch(tiny.course(run, prepared), tmp_path, f"{name} {machine.parallel} {list(changes)}")
                cases.append(Case(twin, place))
                twins.append((alone, twin))
    ranks.train(cases, prepared.folder, tmp_path / "meeting", 2)
    for alone, twin in twins:
        assert tiny.far(twin.target, alone.target, 1e-6) == [], twin.target
        for one, other in zip(log.read(alone.log), log.read(twin.log), strict=True):
            for name in ("loss", "validation", "gradient_norm"):
                assert one[name] == pytest.approx(other[name], rel=1e-5), twin.target


def test_any_optimizer_goes_on_with_any_number_of_processes(prepared: Prepared, tmp_path: Path) -> None:
    """1, 2, 4 and again 1 process, copies and shards: the files say nothing of who wrote them."""
    segments = {}
    for name, settings in optimizers().items():
        found = tiny.course(tiny.pretrain("25% clm > 75% mlm(0.4)", "8 steps", {"optimizer": settings}), prepared)
        segments[name] = (tiny.stretch(found, tmp_path, f"{name} alone"), tiny.stretch(found, tmp_path, name))
        tiny.train(segments[name][0], prepared)
        with pytest.raises(ranks.Interrupted):
            tiny.train(segments[name][1], prepared, interrupt_at=1)
    for world, stop in ((2, 3), (4, 6)):
        cases = []
        for name, (_, moving) in segments.items():
            # Norms of whole weights cannot be taken of shards.
            sharded = (world == 2) is (name in ("adamw", "muon", "averaged"))
            machine = SHARDS if sharded and name not in ("lamb", "stableadamw") else COPIES
            cases.append(Case(moving, machine, stop))
        ranks.train(cases, prepared.folder, tmp_path / f"meeting {world}", world)
    for name, (alone, moving) in segments.items():
        assert [folder.name for folder in moving.partial.iterdir()][-1] == "step-000000006"
        assert tiny.train(moving, prepared) == [7, 8]
        # Muon's matrices are made orthogonal in bfloat16, where the last bit of a gradient can be a 256th of an update.
        assert tiny.far(moving.target, alone.target, 5e-3 if name == "muon" else 1e-6) == [], name
        one, other = (checkpoint.read_training(segment.target) for segment in (alone, moving))
        assert one["optimizer"]["state"].keys() == other["optimizer"]["state"].keys()
        assert one.keys() == other.keys()
        shapes = [
            {
                (parameter, key): getattr(value, "shape", None)
                for parameter, values in saved["optimizer"]["state"].items()
                for key, value in values.items()
            }
            for saved in (one, other)
        ]
        assert shapes[0] == shapes[1]


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("tokens", [0, 1, 70, 1000])
def test_every_row_is_computed_once_and_every_rank_computes_as_often(
    prepared: Prepared, world: int, tokens: int
) -> None:
    batch = tiny.batches(prepared, rows=7)(0)
    parts = (
        tiny.pretrain("mix(clm: 1, mlm(0.4): 2)")
        .schedule.phases[0]
        .objective(batch, tiny.vocabulary(prepared.encoder), 0, 0)
    )
    machine = Machine(micro_batch_tokens=tokens)
    every = [pieces(parts, machine, Parallel(rank, world)) for rank in range(world)]
    assert len({len(mine) for mine in every}) == 1
    assert sum(piece.count for mine in every for piece in mine) == sum(part.count for part in parts)
    rows = [len(piece.batch.inputs) for mine in every for piece in mine if piece.count]
    assert sum(rows) == 7
    assert all(size <= max(1, tokens // 32) for size in rows) or not tokens
    silent = [piece for mine in every for piece in mine if piece.rows == "no row"]
    assert all(piece.count == 0 and len(piece.batch.inputs) == 1 for piece in silent)


def test_pieces_say_which_rows_they_are(prepared: Prepared) -> None:
    batch = tiny.batches(prepared, rows=7)(0)
    plain = ["rows 3 to 4", "rows 5 to 6"]
    mixed = ["rows 1 to 2 of part 1 of 2", "rows 2 to 3 of part 2 of 2"]
    for schedule, expected in (("clm", plain), ("mix(clm: 1, mlm(0.4): 2)", mixed)):
        parts = tiny.pretrain(schedule).schedule.phases[0].objective(batch, tiny.vocabulary(prepared.encoder), 0, 0)
        found = [piece.rows for piece in pieces(parts, Machine(micro_batch_tokens=64), Parallel(1, 2))]
        assert [rows for rows in found if rows != "no row"] == expected


def test_gradients_are_the_same_when_layers_are_computed_again(prepared: Prepared, tmp_path: Path) -> None:
    found = tiny.course(tiny.pretrain("50% clm > 50% mlm(0.4)", "4 steps"), prepared)
    targets = []
    for again in (False, True):
        segment = tiny.stretch(found, tmp_path, str(again))
        tiny.train(segment, prepared, tiny.MACHINE.model_copy(update={"activation_checkpointing": again}))
        targets.append(segment.target)
    assert tiny.differing(*targets) == []
    network = build.load(targets[0])
    build.checkpoint_activations(network)
    assert all(layer.gradient_checkpointing for layer in build.layers(network))


def refused(here: Parallel, segment: Any, corpus: Path) -> None:
    """Trains with shards and expects to be refused."""
    with pytest.raises(UserError, match=r"cannot work on shards.*'ddp'"):
        tiny.train(segment, Prepared.open(corpus), SHARDS, 0, here)


def test_an_optimizer_that_needs_whole_weights_says_so(prepared: Prepared, tmp_path: Path) -> None:
    found = tiny.course(tiny.pretrain("clm", "8 steps", {"optimizer": {"name": "lamb"}}), prepared)
    ranks.run(refused, tmp_path / "meeting", 2, tiny.stretch(found, tmp_path, "lamb"), prepared.folder)
