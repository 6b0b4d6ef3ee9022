"""Ranks share the rows and sum the rest; tests/pretrain/test_pretrain_run.py trains with several."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from antiphon.config import UserError
from antiphon.machine import Machine
from antiphon.train import parallel
from antiphon.train.parallel import Parallel


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 32])
def test_every_row_has_exactly_one_rank(rows: int, world: int) -> None:
    shares = [list(range(rows))[Parallel(rank, world).share(rows)] for rank in range(world)]
    assert [row for share in shares for row in share] == list(range(rows))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_one_rank_alone_has_nothing_to_exchange() -> None:
    layer = nn.Linear(2, 2)
    assert Parallel().sum(3.5) == 3.5
    assert Parallel().sums(1.0, 2.0) == (1.0, 2.0)
    assert Parallel().gather("a") == ["a"]
    assert parallel.divided(layer, [], Machine(processes=4, parallel="fsdp"), Parallel()) is layer


def test_precision_is_the_one_asked_for() -> None:
    assert parallel.precision(Machine(precision="float32")) is torch.float32
    assert parallel.precision(Machine(precision="bfloat16")) is torch.bfloat16


@pytest.mark.parametrize(("avx512", "amx"), [(False, False), (True, False), (False, True)])
def test_auto_takes_bfloat16_only_where_the_processor_has_it(
    monkeypatch: pytest.MonkeyPatch, avx512: bool, amx: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    expected = torch.bfloat16 if avx512 or amx else torch.float32
    assert parallel.precision(Machine(device="cpu")) is expected


def test_a_device_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert parallel.device(Machine()).type == "cpu"
    with pytest.raises(UserError, match="no CUDA device is visible"):
        parallel.device(Machine(device="cuda"))


def test_autocast_keeps_the_weights_in_float32() -> None:
    layer = nn.Linear(4, 4)
    with parallel.autocast(torch.device("cpu"), torch.bfloat16):
        assert layer(torch.ones(1, 4)).dtype is torch.bfloat16
    assert layer.weight.dtype is torch.float32
    with parallel.autocast(torch.device("cpu"), torch.float32):
        assert layer(torch.ones(1, 4)).dtype is torch.float32
