"""Every call into transformers' model classes goes through here, so that a new release is one file's work."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.checkpoint import checkpoint
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import AttentionInterface, PreTrainedModel
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaForCausalLM
from transformers.utils.logging import disable_progress_bar

from antiphon.config import UserError
from antiphon.draws import seed_of
from antiphon.model.attention import Attention, Kernel, kernel_mask
from antiphon.model.packed import Pieces, document_attention, flash_kernel
from antiphon.model.presets import Model

LanguageModel = LlamaForCausalLM

# Workers share one terminal; a bar for each small file that is read or written would bury everything else.
disable_progress_bar()


class LastLayer(LlamaDecoderLayer):
    """The stock layer, which can leave out the places nobody asks about.

    All places are seen by the others, so attention is computed for all; what comes after it is computed place by
    place, and the last layer's is used by the loss alone.
    """

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride] - handed on as it comes
        self, hidden_states: Tensor, asked: Tensor | None = None, **settings: Any
    ) -> Tensor:
        """(B, T, D), or (N, D) for the N places asked; see `encode`. The settings are those of a stock layer."""
        if asked is None:
            return super().forward(hidden_states, **settings)
        attended, _ = self.self_attn(self.input_layernorm(hidden_states), **settings)
        hidden = (hidden_states + attended).flatten(0, 1).index_select(0, asked)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


def _with_last_layer(model: LanguageModel) -> LanguageModel:
    # Another class for the layer that is there: parameters, their names and the checkpoint's form stay as they are.
    model.model.layers[-1].__class__ = LastLayer
    return model


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
        return _with_last_layer(LlamaForCausalLM(config))


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
    return _with_last_layer(model)


def save(model: PreTrainedModel, folder: Path, weights: dict[str, Tensor] | None = None) -> None:
    """Write weights and config into a folder, in Hugging Face form.

    Args:
        model: the network.
        folder: where.
        weights: written in place of the model's own, by the names of its parameters.

    Raises:
        OSError: the disk is full or not writable.
    """
    try:
        model.save_pretrained(folder, state_dict=weights)
    except SafetensorError as error:
        raise OSError(str(error)) from error


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | Pieces | BlockMask | None,
    scaling: float,
    is_causal: bool,
    **unused: Any,
) -> tuple[Tensor, None]:
    """Attention by what `kernel_mask` made for the kernels DOCUMENTS and FLASH, as transformers' layers call it.

    Args:
        module: the attention layer.
        query: (B, H, T, E).
        key, value: (B, K, T, E).
        attention_mask: pieces or borders of documents; where there are none, one of transformers' own ways is taken.
        scaling: factor of the scores.
        is_causal: whether a token sees the past only.
        unused: what transformers hands to every implementation.

    Returns:
        (B, T, H, E), and no weights.
    """
    if isinstance(attention_mask, BlockMask):
        return flex_attention_forward(module, query, key, value, attention_mask, scaling=scaling)[0], None
    if attention_mask is None or (isinstance(attention_mask, Tensor) and attention_mask.ndim == 4):
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, is_causal=is_causal
        )
        return output, None
    rows, heads, length, _ = query.shape
    # Rotary positions are computed in float32; the kernels want one dtype, that of the products.
    query, key, value = (part.to(value.dtype).transpose(1, 2).flatten(0, 1) for part in (query, key, value))
    if isinstance(attention_mask, Pieces):
        output = document_attention(query, key, value, attention_mask, is_causal, scaling)
    else:
        flash = flash_kernel()
        assert flash is not None, "choose_kernel asks first"
        copies = heads // key.shape[1]
        if copies > 1:
            key, value = key.repeat_interleave(copies, 1), value.repeat_interleave(copies, 1)
        output = flash(query, key, value, attention_mask, length, is_causal, scaling)
    return output.unflatten(0, (rows, length)), None


for _kernel in (Kernel.DOCUMENTS, Kernel.FLASH):
    AttentionInterface.register(_kernel.value, attend)


def use_kernel(model: LanguageModel, kernel: Kernel) -> None:
    """Make the model compute attention with this kernel from now on."""
    model.set_attn_implementation(kernel.value)


def kernel(model: LanguageModel) -> Kernel:
    """The kernel the model computes attention with."""
    return Kernel(model.config._attn_implementation)


def layers(model: LanguageModel) -> list[nn.Module]:
    """The layers, in order: what can be computed again, or gathered from its shards, one at a time."""
    return list(model.model.layers)


def outer(model: LanguageModel) -> list[Tensor]:
    """The weights between tokens and hidden states: the embedding and the output matrix, which may be one."""
    return [model.model.embed_tokens.weight, model.lm_head.weight]


def checkpoint_activations(model: LanguageModel) -> None:
    """Keep only each layer's input for the backward pass of training, and compute the rest again there."""
    # By hand: the method that does this changed its name between supported releases, the attributes did not.
    again = functools.partial(checkpoint, use_reentrant=False)
    for layer in layers(model):
        layer.gradient_checkpointing = True  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
        layer._gradient_checkpointing_func = again  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]


def encode(
    model: LanguageModel,
    inputs: Tensor,
    documents: Tensor,
    positions: Tensor,
    attention: Attention,
    opened: Tensor | None = None,
    asked: Tensor | None = None,
) -> Tensor:
    """Hidden states after the last norm.

    Args:
        model: the network; under autocast the hidden states have the autocast dtype.
        inputs: (B, T) int64 token ids.
        documents: (B, T) integers; a token sees only its own document; -1 is padding.
        positions: (B, T) int64, position of each token in its document.
        attention: who may see whom inside a document.
        opened: (B, T) bool, only for PREFIX attention; see `attention.visible`.
        asked: (N,) int64, places among the B x T for which hidden states are wanted; all of them by default.

    Returns:
        (B, T, D), or (N, D) for the places asked.
    """
    kernel = Kernel(model.config._attn_implementation)
    device = documents.device.type
    precision = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
    # The mask is always ours: given a bidirectional call, transformers (5.24) ignores packing by position ids, and
    # documents would see each other. So the layers are called here, one after the other, not by LlamaModel.
    settings: dict[str, Any] = {
        "attention_mask": kernel_mask(documents, attention, kernel, precision, opened),
        "is_causal": attention is not Attention.BIDIRECTIONAL,
    }
    body = model.model
    hidden = body.embed_tokens(inputs)
    settings["position_embeddings"] = body.rotary_emb(hidden, position_ids=positions)
    *layers, last = body.layers
    for layer in layers:
        hidden = layer(hidden, **settings)
    return body.norm(last(hidden, asked=asked, **settings))


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
