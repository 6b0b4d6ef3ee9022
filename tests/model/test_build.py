"""The network is the one that was asked for, the same for the same arguments, and goes to disk and back unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from antiphon.config import UserError
from antiphon.model import build
from antiphon.model.attention import Kernel
from antiphon.model.presets import Model, body_parameters
from tests import tiny

SHAPE = Model.read(tiny.MODEL)


def _equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_equal_arguments_give_equal_weights_and_leave_the_global_stream_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = build.build(SHAPE, 100, 5)
    assert torch.equal(torch.rand(3), expected)
    assert _equal(first, build.build(SHAPE, 100, 5))
    assert not _equal(first, build.build(SHAPE, 100, 6))


@pytest.mark.parametrize("tied", [True, False])
def test_tied_weights_share_storage_and_untied_do_not(tmp_path: Path, tied: bool) -> None:
    model = build.build(Model.read({**tiny.MODEL, "tied": tied}), 100, 0)
    for network in (model, _saved(model, tmp_path)):
        shared = network.lm_head.weight.data_ptr() == network.model.embed_tokens.weight.data_ptr()
        assert shared is tied


def _saved(model: build.LanguageModel, folder: Path) -> build.LanguageModel:
    build.save(model, folder)
    return build.load(folder)


def test_a_model_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    for name, shape in [("tied", SHAPE), ("untied", Model.read({**tiny.MODEL, "tied": False}))]:
        model = build.build(shape, 100, 0)
        assert _equal(_saved(model, tmp_path / name), model)


def test_the_shape_is_the_one_asked_for() -> None:
    shape = Model(
        layers=3, width=48, heads=6, kv_heads=3, ffn=40, positions=128,
        norm_epsilon=1e-6, rope_theta=5000.0, initial_std=0.01,
    )  # fmt: skip
    model = build.build(shape, 1000, 0)
    tensors = model.state_dict()
    assert {name.split(".")[2] for name in tensors if "layers" in name} == {"0", "1", "2"}
    assert tuple(tensors["model.embed_tokens.weight"].shape) == (1000, 48)
    assert tuple(tensors["model.layers.0.self_attn.k_proj.weight"].shape) == (24, 48)
    assert tuple(tensors["model.layers.0.mlp.gate_proj.weight"].shape) == (40, 48)
    assert float(tensors["model.layers.1.mlp.up_proj.weight"].std()) == pytest.approx(0.01, rel=0.1)
    assert model.config.max_position_embeddings == 128
    assert model.model.norm.variance_epsilon == 1e-6
    inverse = 1.0 / 5000.0 ** (torch.arange(0, 8, 2).float() / 8)
    assert torch.allclose(model.model.rotary_emb.get_buffer("inv_freq"), inverse)
    assert build.width(model) == 48
    assert next(model.parameters()).dtype is torch.float32


@pytest.mark.parametrize("kernel", Kernel)
def test_the_kernel_is_the_one_asked_for(kernel: Kernel) -> None:
    model = build.build(SHAPE, 100, 0)
    build.use_kernel(model, kernel)
    assert model.model.config._attn_implementation == kernel.value


def test_the_count_of_parameters_is_that_of_the_network() -> None:
    for values in (tiny.MODEL, {**tiny.MODEL, "kv_heads": 0}):
        shape = Model.read(values)
        model = build.build(shape, 100, 0)
        counted = sum(parameter.numel() for parameter in model.model.parameters())
        assert body_parameters(shape) == counted - model.model.embed_tokens.weight.numel()


# Bad input


def test_a_folder_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config\.json here"):
        build.load(tmp_path)


@pytest.mark.parametrize("damage", ["missing", "unexpected"])
def test_weights_that_do_not_fit_are_refused_not_made_up(tmp_path: Path, damage: str) -> None:
    build.save(build.build(SHAPE, 100, 0), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    if damage == "missing":
        del tensors[name]
    else:
        name = "model.layers.1.mlp.other.weight"
        tensors[name] = torch.zeros(2)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=f"the weights do not fit the model: {name}"):
        build.load(tmp_path)


@pytest.mark.parametrize("left", [None, 0, 100, 10_000])
def test_weights_that_are_cut_or_gone_are_named_with_what_to_do(tmp_path: Path, left: int | None) -> None:
    build.save(build.build(SHAPE, 100, 0), tmp_path)
    weights = tmp_path / "model.safetensors"
    if left is None:
        weights.unlink()
    else:
        assert left < weights.stat().st_size
        weights.write_bytes(weights.read_bytes()[:left])
    with pytest.raises(UserError, match=f"damaged: delete {tmp_path} and run again; it is made anew"):
        build.load(tmp_path)
