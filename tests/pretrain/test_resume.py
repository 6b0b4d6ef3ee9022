"""A run ends in the same weights, to the bit, however often it was stopped and with whom it shared its beginning."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from antiphon.config import UserError
from antiphon.data.prepare import Prepared
from antiphon.pretrain import run as pretraining
from antiphon.pretrain.config import Course
from antiphon.pretrain.run import Interrupted
from antiphon.train import checkpoint, log
from antiphon.train.parallel import Parallel
from tests import ranks, tiny
from tests.pretrain.states import states_differ
from tests.ranks import Case

RATE = {"peak": 3e-3, "warmup": "1 steps", "decay": "1 steps"}
# Phases of 2 and 6 steps; every kind of switch.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "one curve": ("25% clm > 75% mlm(0.4)", {}),
    "restart of the optimizer": ("25% clm > 75% mlm(0.4)", {"optimizer": {"at_switch": "restart"}}),
    "restart of both": (
        "25% clm > 75% mlm(0.4, 80/10/10)",
        {"optimizer": {"at_switch": "restart"}, "learning_rate": {**RATE, "at_switch": "restart"}},
    ),
    "mixture with a ramp": ("mix(clm: 1, mntp(0.4 -> 0.1): 2)", {}),
}


def course(prepared: Prepared, name: str) -> Course:
    schedule, changes = RUNS[name]
    return tiny.course(tiny.pretrain(schedule, "8 steps", changes), prepared)


@pytest.fixture(scope="module")
def undisturbed(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The final checkpoint of each of RUNS, trained in one go."""
    folder = tmp_path_factory.mktemp("undisturbed")
    targets = {}
    for name in RUNS:
        segment = tiny.stretch(course(prepared, name), folder, name)
        tiny.train(segment, prepared)
        targets[name] = segment.target
    return targets


# 6: stop and resume


@pytest.mark.parametrize("name", RUNS)
def test_stop_and_resume_is_bit_equal_at_every_step(
    prepared: Prepared, tmp_path: Path, undisturbed: dict[str, Path], name: str
) -> None:
    for stop in range(1, 8):
        segment = tiny.stretch(course(prepared, name), tmp_path, f"stopped at {stop}")
        with pytest.raises(Interrupted):
            tiny.train(segment, prepared, interrupt_at=stop)
        assert not segment.target.exists()
        assert [folder.name for folder in segment.partial.iterdir()] == [f"step-{stop:09d}"]
        assert tiny.train(segment, prepared) == list(range(stop + 1, 9))
        assert tiny.differing(segment.target, undisturbed[name]) == []
        assert states_differ(segment.target, undisturbed[name]) == []
        assert not segment.partial.exists()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_stopped_after_every_single_step_is_bit_equal(
    prepared: Prepared, tmp_path: Path, undisturbed: dict[str, Path], name: str
) -> None:
    segment = tiny.stretch(course(prepared, name), tmp_path, "halting")
    for stop in range(1, 8):
        with pytest.raises(Interrupted):
            tiny.train(segment, prepared, interrupt_at=stop)
    tiny.train(segment, prepared)
    assert tiny.differing(segment.target, undisturbed[name]) == []
    assert states_differ(segment.target, undisturbed[name]) == []
    steps = [line["step"] for line in log.read(segment.log)]
    assert steps == list(range(1, 9))


def test_reports_of_several_steps_are_those_of_an_undisturbed_run(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining, "REPORTS_A_RUN", 2)
    calm = tiny.stretch(course(prepared, "one curve"), tmp_path, "calm")
    tiny.train(calm, prepared)
    halting = tiny.stretch(course(prepared, "one curve"), tmp_path, "halting")
    for _ in range(7):
        with pytest.raises(Interrupted):
            pretraining.run(halting, prepared, tiny.MACHINE, Parallel(), lambda facts: None, lambda: True)
    tiny.train(halting, prepared)
    one, other = log.read(calm.log), log.read(halting.log)
    assert len(one) < 8
    told = ("step", "tokens_seen", "words_seen", "loss", "validation", "learning_rate", "gradient_norm")
    assert [[line[name] for name in told] for line in one] == [[line[name] for name in told] for line in other]


def test_a_switch_does_what_it_says(undisturbed: dict[str, Path]) -> None:
    # Were the restart ignored, the tests above would be true and worth nothing.
    kept, reset = (checkpoint.read_training(undisturbed[name])["optimizer"]["state"] for name in list(RUNS)[:2])
    assert {float(values["step"]) for values in kept.values()} == {8.0}
    assert {float(values["step"]) for values in reset.values()} == {6.0}
    assert tiny.differing(undisturbed["one curve"], undisturbed["restart of the optimizer"])


def test_a_run_killed_between_two_saves_is_bit_equal(
    prepared: Prepared, tmp_path: Path, undisturbed: dict[str, Path]
) -> None:
    class KilledError(Exception):
        pass

    segment = tiny.stretch(course(prepared, "one curve"), tmp_path, "killed")
    machine = tiny.MACHINE.model_copy(update={"save_seconds": 1e-9})

    def die(facts: dict[str, Any]) -> None:
        if facts["step"] == 6:
            raise KilledError

    with pytest.raises(KilledError):
        pretraining.run(segment, prepared, machine, Parallel(), die, lambda: False)
    # The two newest are kept, and the step that was not saved is done again.
    assert sorted(folder.name for folder in segment.partial.iterdir()) == ["step-000000004", "step-000000005"]
    assert tiny.train(segment, prepared) == [6, 7, 8]
    assert tiny.differing(segment.target, undisturbed["one curve"]) == []


@pytest.mark.parametrize("damage", ["weights", "optimizer", "facts", "identity"])
def test_a_damaged_newest_state_is_passed_over_for_the_one_before(
    prepared: Prepared, tmp_path: Path, undisturbed: dict[str, Path], damage: str
) -> None:
    segment = tiny.stretch(course(prepared, "one curve"), tmp_path, "damaged")
    for stop in (3, 5):
        with pytest.raises(Interrupted):
            tiny.train(segment, prepared, interrupt_at=stop)
    newest = segment.partial / "step-000000005"
    if damage == "weights":
        path = newest / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    elif damage == "optimizer":
        (newest / "state.pt").write_bytes(b"")
    elif damage == "facts":
        (newest / "run.json").unlink()
    else:
        facts = json.loads((newest / "run.json").read_text())
        (newest / "run.json").write_text(json.dumps(facts | {"identity": "another run"}))
    # Stopped again at the very step whose state is damaged, it must be saved anew.
    with pytest.raises(Interrupted):
        tiny.train(segment, prepared, interrupt_at=5)
    assert checkpoint.read_facts(newest)["identity"] == segment.course.identity(5)
    assert tiny.train(segment, prepared) == [6, 7, 8]
    assert tiny.differing(segment.target, undisturbed["one curve"]) == []


def test_when_every_state_is_damaged_the_run_starts_over(
    prepared: Prepared, tmp_path: Path, undisturbed: dict[str, Path]
) -> None:
    segment = tiny.stretch(course(prepared, "one curve"), tmp_path, "damaged")
    with pytest.raises(Interrupted):
        tiny.train(segment, prepared, interrupt_at=3)
    (segment.partial / "step-000000003" / "state.pt").write_bytes(b"")
    assert tiny.train(segment, prepared) == list(range(1, 9))
    assert tiny.differing(segment.target, undisturbed["one curve"]) == []


def test_a_full_disk_ends_the_run_and_keeps_the_state_before(
    prepared: Prepared, tmp_path: Path, undisturbed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = tiny.stretch(course(prepared, "one curve"), tmp_path, "full")
    with pytest.raises(Interrupted):
        tiny.train(segment, prepared, interrupt_at=3)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="No space left on device"):
            tiny.train(segment, prepared, interrupt_at=5)
    assert os.listdir(segment.partial) == ["step-000000003"]
    assert tiny.train(segment, prepared) == list(range(4, 9))
    assert tiny.differing(segment.target, undisturbed["one curve"]) == []


def test_a_state_says_its_step_itself(prepared: Prepared, tmp_path: Path, undisturbed: dict[str, Path]) -> None:
    # Not the name of its folder, which somebody may have changed.
    segment = tiny.stretch(course(prepared, "one curve"), tmp_path, "renamed")
    with pytest.raises(Interrupted):
        tiny.train(segment, prepared, interrupt_at=3)
    segment.state(3).rename(segment.state(6))
    assert tiny.train(segment, prepared) == [4, 5, 6, 7, 8]
    assert tiny.differing(segment.target, undisturbed["one curve"]) == []


def test_training_neither_reads_nor_moves_the_global_streams(
    prepared: Prepared, tmp_path: Path, undisturbed: dict[str, Path]
) -> None:
    segment = tiny.stretch(course(prepared, "one curve"), tmp_path, "other streams")
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    before = global_streams()
    with pytest.raises(Interrupted):
        tiny.train(segment, prepared, interrupt_at=3)
    tiny.train(segment, prepared)
    assert global_streams() == before
    assert tiny.differing(segment.target, undisturbed["one curve"]) == []


def global_streams() -> list[bytes]:
    """The bytes of the random streams that belong to nobody."""
    return [
        pickle.dumps(random.getstate()),
        pickle.dumps(np.random.get_state()),
        torch.get_rng_state().numpy().tobytes(),
    ]


# 7: shared beginnings


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("border", [1, 2, 5])
def test_a_run_in_two_segments_equals_the_run_in_one(
    prepared: Prepared, tmp_path: Path, undisturbed: dict[str, Path], name: str, border: int
) -> None:
    found = course(prepared, name)
    first = tiny.stretch(found, tmp_path, "first", 0, border)
    tiny.train(first, prepared)
    second = tiny.stretch(found, tmp_path, "second", border, 8, first.target)
    tiny.train(second, prepared)
    assert tiny.differing(second.target, undisturbed[name]) == []
    assert states_differ(second.target, undisturbed[name]) == []


def test_a_beginning_trained_as_another_run_is_the_same(prepared: Prepared, tmp_path: Path) -> None:
    # The stable trunk of a longer run serves a shorter one, and clm serves clm > mlm.
    rate = {"learning_rate": {"peak": 3e-3, "warmup": "2 steps", "decay": "3 steps"}}
    long = tiny.course(tiny.pretrain("50% clm > 50% mlm(0.4)", "16 steps", rate), prepared)
    short = tiny.course(tiny.pretrain("clm", "10 steps", rate), prepared)
    assert short.common(long) == 8
    trunk = tiny.stretch(long, tmp_path, "trunk", 0, 8)
    tiny.train(trunk, prepared)
    branch = tiny.stretch(short, tmp_path, "branch", 8, 10, trunk.target)
    tiny.train(branch, prepared)
    alone = tiny.stretch(short, tmp_path, "alone")
    tiny.train(alone, prepared)
    assert tiny.differing(branch.target, alone.target) == []


def test_a_run_stopped_on_two_ranks_goes_on_with_one(
    prepared: Prepared, tmp_path: Path, undisturbed: dict[str, Path]
) -> None:
    segment = tiny.stretch(course(prepared, "one curve"), tmp_path, "two then one")
    ranks.train([Case(segment, interrupt_at=3)], prepared.folder, tmp_path / "meeting", 2)
    assert [folder.name for folder in segment.partial.iterdir()] == ["step-000000003"]
    assert tiny.train(segment, prepared) == [4, 5, 6, 7, 8]
    assert tiny.far(segment.target, undisturbed["one curve"], 1e-5) == []


def test_bfloat16_stops_and_resumes_to_the_bit_too(prepared: Prepared, tmp_path: Path) -> None:
    machine = tiny.MACHINE.model_copy(update={"precision": "bfloat16"})
    found = course(prepared, "one curve")
    whole, halting = tiny.stretch(found, tmp_path, "whole"), tiny.stretch(found, tmp_path, "halting")
    tiny.train(whole, prepared, machine)
    for stop in (2, 5):
        with pytest.raises(Interrupted):
            tiny.train(halting, prepared, machine, interrupt_at=stop)
    tiny.train(halting, prepared, machine)
    assert tiny.differing(whole.target, halting.target) == []
