"""A device's peak is known by its name, or measured, or not known; never guessed."""

from __future__ import annotations

import pytest
import torch

from antiphon.train.memory import keep_freed_memory
from antiphon.train.peak import named, peak_flops


@pytest.mark.parametrize(
    ("card", "peak"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("a card of next year", None),
    ],
)
def test_a_card_is_found_by_its_name(card: str, peak: float | None) -> None:
    assert named(card) == peak


def test_a_processor_is_measured() -> None:
    measured = peak_flops(torch.device("cpu"), torch.float32)
    assert measured is not None
    assert 1e8 < measured < 1e15
    assert peak_flops(torch.device("cpu"), torch.float32) == measured


def test_what_nobody_has_looked_up_is_not_known() -> None:
    assert peak_flops(torch.device("cuda"), torch.float32) is None
    assert peak_flops(torch.device("mps"), torch.bfloat16) is None


def test_freed_memory_can_be_kept_where_the_library_is_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("musl", "1"))
    assert not keep_freed_memory()
