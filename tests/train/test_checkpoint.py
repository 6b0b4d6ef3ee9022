"""A checkpoint is whole or not there at all, and a damaged one is noticed."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
import torch

from antiphon.config import UserError
from antiphon.model import build
from antiphon.model.attention import Attention
from antiphon.model.presets import Model
from antiphon.train import checkpoint
from antiphon.train.optimizer import Together, adamw
from tests import tiny

FILES = ["config.json", "generation_config.json", "model.safetensors", "run.json", "state.pt", "tokenizer.json"]


def _network() -> build.LanguageModel:
    return build.build(Model.read(tiny.MODEL), 100, 0)


def _optimizer(model: build.LanguageModel) -> Together:
    """An optimizer that has made three steps."""
    optimizer = adamw(model, weight_decay=0.1, betas=(0.9, 0.95), epsilon=1e-8)
    places = torch.arange(8)[None]
    for _ in range(3):
        hidden = build.encode(model, places, torch.zeros_like(places), places, Attention.CAUSAL)
        build.logits(model, hidden[0]).square().sum().backward()
        optimizer.step()
    return optimizer


def _save(folder: Path) -> Together:
    model = _network()
    optimizer = _optimizer(model)
    (folder.parent / "tokenizer.json").write_text("{}")
    facts = {"identity": "abc", "step": 3}
    training = {"optimizer": checkpoint.optimizer_state(optimizer, model, keep=True)}
    checkpoint.save(folder, lambda work: build.save(model, work), training, [folder.parent / "tokenizer.json"], facts)
    return optimizer


def test_a_checkpoint_holds_weights_optimizer_companions_and_facts(tmp_path: Path) -> None:
    _save(tmp_path / "state")
    assert sorted(os.listdir(tmp_path / "state")) == FILES
    facts = checkpoint.read_facts(tmp_path / "state")
    assert (facts["identity"], facts["step"]) == ("abc", 3)
    assert set(facts["checksums"]) == set(FILES) - {"run.json"}


def test_the_optimizer_comes_back_to_the_bit(tmp_path: Path) -> None:
    saved = _save(tmp_path / "state")
    model = _network()
    fresh = adamw(model, weight_decay=0.1, betas=(0.9, 0.95), epsilon=1e-8)
    checkpoint.restore_optimizer(checkpoint.read_training(tmp_path / "state")["optimizer"], fresh, model)
    one, other = saved.parts[0].state_dict(), fresh.parts[0].state_dict()
    assert one["param_groups"] == other["param_groups"]
    assert one["state"].keys() == other["state"].keys() != set()
    for key, values in one["state"].items():
        assert set(values) == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(value, other["state"][key][name]) for name, value in values.items())


def test_the_optimizer_of_another_network_is_refused(tmp_path: Path) -> None:
    # Were the names alone compared one by one, all moments would silently begin anew.
    _save(tmp_path / "state")
    saved = checkpoint.read_training(tmp_path / "state")["optimizer"]
    saved["state"] = {f"module.{name}": values for name, values in saved["state"].items()}
    model = _network()
    fresh = adamw(model, weight_decay=0.1, betas=(0.9, 0.95), epsilon=1e-8)
    with pytest.raises(UserError, match=r"moments of 'module\..*', which the network does not have"):
        checkpoint.restore_optimizer(saved, fresh, model)


def test_a_complete_checkpoint_stays(tmp_path: Path) -> None:
    _save(tmp_path / "state")
    before = (tmp_path / "state" / "run.json").stat().st_mtime_ns
    _save(tmp_path / "state")
    assert (tmp_path / "state" / "run.json").stat().st_mtime_ns == before
    assert sorted(os.listdir(tmp_path)) == ["state", "tokenizer.json"]


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, damage: str) -> None:
    _save(tmp_path / "state")
    path = tmp_path / "state" / name
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[:-1] if damage == "cut" else bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(UserError, match=f"{name}: missing or damaged. Delete"):
        checkpoint.read_facts(tmp_path / "state")


@pytest.mark.parametrize("text", ["", "{", '{"step": 3}', "[]"])
def test_facts_that_are_damaged_are_named(tmp_path: Path, text: str) -> None:
    _save(tmp_path / "state")
    (tmp_path / "state" / "run.json").write_text(text)
    with pytest.raises(UserError, match="not a complete checkpoint"):
        checkpoint.read_facts(tmp_path / "state")


def test_no_checkpoint_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a complete checkpoint"):
        checkpoint.read_facts(tmp_path / "state")


@pytest.mark.parametrize("share", [0.5, 1.1], ids=["weights", "optimizer"])
def test_a_full_disk_leaves_nothing_and_harms_nothing(tmp_path: Path, share: float) -> None:
    _save(tmp_path / "before")
    weights = (tmp_path / "before" / "model.safetensors").stat().st_size
    there = sorted(os.listdir(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A write beyond this size fails as on a full disk: in the library that writes weights, or in torch.
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * weights), hard))
    try:
        with pytest.raises(UserError, match="state: could not be written"):
            _save(tmp_path / "state")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(os.listdir(tmp_path)) == there
    assert checkpoint.read_facts(tmp_path / "before")["step"] == 3


def test_a_disk_that_fills_at_the_very_end_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        _save(tmp_path / "state")
    assert os.listdir(tmp_path) == ["tokenizer.json"]
