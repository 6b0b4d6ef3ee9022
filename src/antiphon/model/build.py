"""Every call into transformers' model classes goes through here, so that a new release is one file's work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.utils.logging import disable_progress_bar

from antiphon.config import UserError
from antiphon.draws import seed_of
from antiphon.model.attention import Attention, Kernel, kernel_mask
from antiphon.model.presets import Model

LanguageModel = LlamaForCausalLM

# Workers share one terminal; a bar for each small file that is read or written would bury everything else.
disable_progress_bar()


def build(shape: Model, vocabulary: int, seed: int) -> LanguageModel:
    """A freshly initialised network in float32, the same for the same arguments.

    Args:
        shape: the model's shape.
        vocabulary: V, number of rows of the embedding.
        seed: the pretraining seed; initialisation has a stream of its own.
    """
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads or shape.heads,
        max_position_embeddings=shape.positions,
        rms_norm_eps=shape.norm_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        initializer_range=shape.initial_std,
        tie_word_embeddings=shape.tied,
        use_cache=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "initialisation"))
        return LlamaForCausalLM(config)


def load(folder: Path) -> LanguageModel:
    """Open a checkpoint in Hugging Face form, in float32.

    Raises:
        UserError: the folder holds no model of this family, or a file is missing or damaged.
    """
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: no config.json here. Give a folder that holds a checkpoint in Hugging Face form.")
    remedy = f"The checkpoint is damaged: delete {folder} and run again; it is made anew."
    try:
        loaded: Any = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{folder}: cannot be opened ({error}). {remedy}") from None
    model, report = loaded
    wrong = sorted(report["missing_keys"]) + sorted(report["unexpected_keys"])
    if wrong:
        # transformers would start the missing weights at random and only log it.
        raise UserError(f"{folder}: the weights do not fit the model: {', '.join(wrong[:5])}. {remedy}")
    return model


def save(model: PreTrainedModel, folder: Path) -> None:
    """Write weights and config into a folder, in Hugging Face form.

    Raises:
        OSError: the disk is full or not writable.
    """
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:
        raise OSError(str(error)) from error


def use_kernel(model: LanguageModel, kernel: Kernel) -> None:
    """Make the model compute attention with this kernel from now on."""
    model.set_attn_implementation(kernel.value)


def encode(
    model: LanguageModel,
    inputs: Tensor,
    documents: Tensor,
    positions: Tensor,
    attention: Attention,
    opened: Tensor | None = None,
) -> Tensor:
    """Hidden states after the last norm.

    Args:
        model: the network; under autocast the hidden states have the autocast dtype.
        inputs: (B, T) int64 token ids.
        documents: (B, T) integers; a token sees only its own document; -1 is padding.
        positions: (B, T) int64, position of each token in its document.
        attention: who may see whom inside a document.
        opened: (B, T) bool, only for PREFIX attention; see `attention.visible`.

    Returns:
        (B, T, D).
    """
    kernel = Kernel(model.config._attn_implementation)
    device = documents.device.type
    precision = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
    # The mask is always ours, four-dimensional or absent: given a bidirectional call, transformers (5.24) ignores
    # packing by position ids, and documents would see each other.
    mask = kernel_mask(documents, attention, kernel, precision, opened)
    output = model.model(
        input_ids=inputs,
        attention_mask=mask,
        position_ids=positions,
        is_causal=attention is not Attention.BIDIRECTIONAL,
        use_cache=False,
    )
    return output.last_hidden_state


def logits(model: LanguageModel, hidden: Tensor) -> Tensor:
    """Scores over the vocabulary.

    Args:
        hidden: (N, D), only the positions that are asked.

    Returns:
        (N, V).
    """
    return model.lm_head(hidden)


def output_matrix(model: LanguageModel) -> Tensor:
    """(V, D), what hidden states are multiplied with for `logits`; of a tied model, the embedding."""
    return model.lm_head.weight


def width(model: nn.Module) -> int:
    """D, the size of a hidden state."""
    return int(model.config.hidden_size)  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
