"""How ranks find each other."""

from __future__ import annotations

import pytest

from antiphon.config import UserError
from antiphon.train.parallel import Parallel
from antiphon.train.ranks import Meeting, joined, met
from tests import tiny


def test_without_a_launcher_one_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with met() as meeting, joined(tiny.MACHINE, meeting) as ranks:
        assert (meeting, ranks) == (Meeting(), Parallel())


def test_half_a_launcher_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="one of 4 processes, but MASTER_ADDR, MASTER_PORT is not set"), met():
        pass
