"""An export opens with transformers' own classes, without remote code, and computes what the checkpoint computes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, pipeline

from antiphon.config import UserError
from antiphon.data.prepare import Prepared
from antiphon.model import build, export
from antiphon.model.attention import Attention, Kernel
from antiphon.model.presets import Model
from tests import tiny


def _checkpoint(folder: Path, prepared: Prepared, tied: bool) -> Path:
    model = build.build(Model.read({**tiny.MODEL, "tied": tied, "rope_theta": 5000.0}), prepared.encoder.size, 0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(5.0)
    build.save(model, folder)
    return folder


def _export(checkpoint: Path, target: Path, prepared: Prepared) -> None:
    encoder = prepared.encoder
    specials = {"pad": encoder.pad, "bos": encoder.bos, "eos": encoder.eos, "mask": encoder.mask}
    export.export(checkpoint, target, prepared.tokenizer_files, specials, "# A card\n")


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def exported(
    request: pytest.FixtureRequest, prepared: Prepared, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, bool]:
    """(checkpoint, export, whether the weights are tied)."""
    space = tmp_path_factory.mktemp("export")
    checkpoint = _checkpoint(space / "checkpoint", prepared, request.param)
    _export(checkpoint, space / "encoder", prepared)
    return checkpoint, space / "encoder", request.param


def _ours(checkpoint: Path, tokens: torch.Tensor, documents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    model = build.load(checkpoint).eval()
    build.use_kernel(model, Kernel.SDPA)
    positions = torch.arange(tokens.shape[1]).expand_as(tokens)
    with torch.no_grad():
        hidden = build.encode(model, tokens, documents, positions, Attention.BIDIRECTIONAL)
        return hidden, build.logits(model, hidden)


def test_auto_classes_give_the_same_hidden_states_and_logits(exported: tuple[Path, Path, bool]) -> None:
    checkpoint, folder, _ = exported
    tokens = torch.randint(4, 320, (3, 20), generator=torch.Generator().manual_seed(0))
    # The last row is padded, as a user's batch would be.
    mask = torch.ones_like(tokens)
    mask[2, 12:] = 0
    tokens[2, 12:] = 0
    hidden, logits = _ours(checkpoint, tokens, mask - 1)
    with torch.no_grad():
        body = AutoModel.from_pretrained(folder).eval()(input_ids=tokens, attention_mask=mask).last_hidden_state
        whole = AutoModelForMaskedLM.from_pretrained(folder).eval()(input_ids=tokens, attention_mask=mask).logits
    real = mask.bool()
    assert float((body[real] - hidden[real]).abs().max()) < 1e-4
    assert float((whole[real] - logits[real]).abs().max()) < 1e-4
    assert float(logits.abs().max()) > 1.0  # not all alike, so that a difference would show


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("automatic", [AutoModel, AutoModelForMaskedLM])
def test_it_reads_both_ways_however_it_is_called(
    exported: tuple[Path, Path, bool], automatic: type, implementation: str
) -> None:
    _, folder, _ = exported
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["is_causal"] is False
    model = automatic.from_pretrained(folder, attn_implementation=implementation).eval()
    for rows in (1, 2):
        tokens = torch.randint(4, 320, (rows, 20), generator=torch.Generator().manual_seed(0))
        changed = tokens.clone()
        changed[:, 15] = 4 + (tokens[:, 15] - 3) % 300
        ones = torch.ones_like(tokens)
        padded = ones.clone()
        padded[:, 18:] = 0
        for mask in (None, ones, padded):
            with torch.no_grad():
                one, other = (model(input_ids=each, attention_mask=mask)[0] for each in (tokens, changed))
            # All earlier places know of a later one.
            assert (one[:, :15] != other[:, :15]).any(dim=-1).all()


def test_tied_weights_share_storage_and_untied_do_not(exported: tuple[Path, Path, bool]) -> None:
    _, folder, tied = exported
    model = AutoModelForMaskedLM.from_pretrained(folder)
    embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert (embedding.data_ptr() == output.data_ptr()) is tied


def test_it_is_a_class_of_transformers_without_remote_code(exported: tuple[Path, Path, bool]) -> None:
    _, folder, _ = exported
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "eurobert"
    assert "auto_map" not in config
    assert not list(folder.glob("*.py"))
    assert (folder / "README.md").read_text(encoding="utf-8") == "# A card\n"


def test_the_tokenizer_goes_along(exported: tuple[Path, Path, bool], prepared: Prepared) -> None:
    _, folder, _ = exported
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tiny.texts(7, 1)[0]
    ids = tokenizer(text)["input_ids"]
    assert ids == prepared.encoder.encode([text])[0].tolist()
    assert (ids[0], ids[-1]) == (prepared.encoder.bos, prepared.encoder.eos)
    model = AutoModelForMaskedLM.from_pretrained(folder)
    assert model.config.mask_token_id == tokenizer.mask_token_id == prepared.encoder.mask
    assert model.config.pad_token_id == tokenizer.pad_token_id


def test_fill_mask_works(exported: tuple[Path, Path, bool]) -> None:
    _, folder, _ = exported
    fill = pipeline("fill-mask", model=str(folder), tokenizer=str(folder), device="cpu")
    guesses = fill("bara [MASK] deko", top_k=3)
    assert len(guesses) == 3
    assert all(0 <= guess["score"] <= 1 for guess in guesses)


def test_an_export_never_overwrites(exported: tuple[Path, Path, bool], prepared: Prepared) -> None:
    checkpoint, folder, _ = exported
    with pytest.raises(UserError, match="exists already"):
        _export(checkpoint, folder, prepared)


def test_an_export_that_computes_something_else_is_not_kept(
    exported: tuple[Path, Path, bool], prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, _, _ = exported
    real = export._config

    def other(model: build.LanguageModel, specials: dict[str, int]) -> object:
        config = real(model, specials)
        config.rope_parameters = {"rope_type": "default", "rope_theta": 20.0}
        return config

    monkeypatch.setattr(export, "_config", other)
    with pytest.raises(UserError, match="logits differ by"):
        _export(checkpoint, tmp_path / "encoder", prepared)
    assert os.listdir(tmp_path) == []
