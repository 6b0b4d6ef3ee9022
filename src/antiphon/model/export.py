"""A checkpoint of ours as a public encoder, in transformers' own EuroBERT classes; checked when written.

A bidirectional Llama and EuroBERT are the same network with the same parameter names, so nothing is approximated.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto.modeling_auto import AutoModelForMaskedLM
from transformers.models.eurobert.configuration_eurobert import EuroBertConfig
from transformers.models.eurobert.modeling_eurobert import EuroBertForMaskedLM

from antiphon.config import UserError
from antiphon.files import new_directory
from antiphon.model import build
from antiphon.model.attention import Attention, Kernel

SAME = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "initializer_range",
    "tie_word_embeddings",
    "hidden_act",
    "head_dim",
)


def export(checkpoint: Path, target: Path, companions: Sequence[Path], specials: dict[str, int], card: str) -> None:
    """Write a directory that AutoModel and AutoModelForMaskedLM open as a bidirectional encoder.

    Args:
        checkpoint: a checkpoint of ours.
        target: the new directory; it must not exist.
        companions: files copied in (the tokenizer's).
        specials: "pad", "bos", "eos" and "mask" token ids.
        card: text of the README.md put beside the weights.

    Raises:
        UserError: the target exists, or the written model does not give the same logits.
    """
    if target.exists():
        raise UserError(f"{target}: exists already. Choose a new folder, or delete it first.")
    model = build.load(checkpoint).eval()
    encoder = EuroBertForMaskedLM(_config(model, specials)).eval()
    encoder.load_state_dict(model.state_dict(), strict=True)
    with new_directory(target) as work:
        build.save(encoder, work)
        for path in companions:
            shutil.copyfile(path, work / path.name)
        (work / "README.md").write_text(card, encoding="utf-8")
        _check(model, work)


def _config(model: build.LanguageModel, specials: dict[str, int]) -> EuroBertConfig:
    values: dict[str, Any] = {name: getattr(model.config, name) for name in SAME}
    values["rope_parameters"] = model.config.rope_parameters
    values |= {f"{name}_token_id": token for name, token in specials.items()}
    return EuroBertConfig(**values, is_causal=False)  # pyright: ignore[reportCallIssue]


def _check(model: build.LanguageModel, written: Path) -> None:
    """Open what was written as a user would and compare logits on random tokens."""
    reopened = AutoModelForMaskedLM.from_pretrained(written).eval()
    generator = torch.Generator().manual_seed(0)
    length = min(64, int(model.config.max_position_embeddings))
    tokens = torch.randint(0, int(model.config.vocab_size), (2, length), generator=generator)
    build.use_kernel(model, Kernel.SDPA)
    with torch.inference_mode():
        documents = torch.zeros_like(tokens)
        positions = torch.arange(length).expand_as(tokens)
        hidden = build.encode(model, tokens, documents, positions, Attention.BIDIRECTIONAL)
        ours = build.logits(model, hidden)
        theirs = reopened(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
    difference = float((ours - theirs).abs().max())
    if not difference < 1e-4:
        raise UserError(
            f"the exported model's logits differ by {difference:.3g} from the checkpoint's, so nothing was exported. "
            "The installed transformers release may have changed the EuroBERT classes; use the pinned one."
        )
