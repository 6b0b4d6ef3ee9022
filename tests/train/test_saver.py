"""States are written beside the training: what is written is the state of its step, and what goes wrong is told."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from antiphon.config import UserError
from antiphon.data.prepare import Prepared
from antiphon.train import checkpoint, log
from antiphon.train.checkpoint import Saver
from tests import tiny
from tests.pretrain.states import states_differ


def broken() -> None:
    raise UserError("the disk is gone")


@pytest.mark.parametrize("background", [True, False])
def test_what_goes_wrong_in_writing_reaches_the_training(background: bool) -> None:
    saver = Saver(background)

    def training() -> None:
        saver.do(broken)
        for _ in range(100):
            saver.check()
            time.sleep(0.01)

    with pytest.raises(UserError, match="the disk is gone"):
        training()
    saver.close()


def test_the_next_state_waits_for_the_one_before() -> None:
    saver, done = Saver(True), []
    first = threading.Event()

    def slow() -> None:
        first.wait(5)
        done.append(1)

    saver.do(slow)
    threading.Timer(0.05, first.set).start()
    saver.do(lambda: done.append(2))
    saver.wait()
    saver.close()
    assert done == [1, 2]


def test_a_state_that_is_written_slowly_is_the_state_of_its_step(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on while a state is written, and changes nothing in it."""
    found = tiny.course(tiny.pretrain("50% clm > 50% mlm(0.4)", "6 steps", {"optimizer": {"ema": 0.5}}), prepared)
    exact = tiny.stretch(found, tmp_path, "exact", 0, 3)
    tiny.train(exact, prepared)
    real, written = checkpoint.save, []

    def slowly(folder: Path, *others: Any) -> None:
        patience = time.monotonic() + 10
        while folder == segment.state(3) and log.read(segment.log)[-1]["step"] < 5 and time.monotonic() < patience:
            time.sleep(0.01)
        written.append((folder.name, log.read(segment.log)[-1]["step"]))
        real(folder, *others)

    monkeypatch.setattr(checkpoint, "save", slowly)
    segment = tiny.stretch(found, tmp_path, "whole")
    tiny.train(segment, prepared, tiny.MACHINE.model_copy(update={"keep_every": 3}))
    assert written[0][0] == "step-000000003"
    assert written[0][1] >= 5
    assert written[1:] == [("whole", 6)]
    kept = segment.target.parent / found.identity(3)
    assert tiny.differing(kept, exact.target) == []
    assert states_differ(kept, exact.target) == []
