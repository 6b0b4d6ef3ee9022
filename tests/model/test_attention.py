"""Who sees whom: packed rows equal documents alone, causal sees no future, bidirectional all of its document.

Every claim is tested on hidden states of the whole network, by changing single tokens, for each way of computing
attention. A mask that is ignored, shifted or added as a boolean fails here.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_mask, flex_attention

from antiphon.data.batches import PADDING, TokenBatch
from antiphon.draws import generator
from antiphon.model import build
from antiphon.model.attention import Attention, Kernel, choose_kernel, kernel_mask, visible
from antiphon.model.packed import borders, pieces
from antiphon.model.presets import Model
from antiphon.train.parallel import autocast
from tests import tiny

# FlexAttention has no backward pass on CPU and is slow without compilation; it has a test of its own.
KERNELS = (Kernel.SDPA, Kernel.MATMUL, Kernel.DOCUMENTS, Kernel.FLASH)
WAYS = [
    pytest.param(attention, kernel, precision, id=f"{attention.value}-{kernel.value}-{str(precision)[6:]}")
    for attention, kernel, precision in itertools.product(Attention, KERNELS, (torch.float32, torch.bfloat16))
    # Flash attention leaves PREFIX to FlexAttention.
    if not (attention is Attention.PREFIX and kernel is Kernel.FLASH)
]
CPU = torch.device("cpu")

# Rows of documents: one document fills the row, with batch size 1 and more; several; padding; a short one alone.
LAYOUTS = {
    "one row, one document": [[24]],
    "one row, several documents": [[5, 1, 18]],
    "one row, padding": [[7, 9]],
    "whole rows": [[24], [24], [24]],
    "mixed": [[24], [10, 14], [3, 2, 5], [1] * 24],
}
LENGTH = 24


def flash_in_words(
    query: Tensor, key: Tensor, value: Tensor, borders: Tensor, longest: int, causal: bool, scale: float
) -> Tensor:
    """What flash attention for documents of any length computes, on any device."""
    assert query.dtype is key.dtype is value.dtype
    assert query.shape == key.shape == value.shape
    assert borders.dtype is torch.int32
    ends = borders.tolist()
    assert ends[0] == 0
    assert ends[-1] == len(query)
    outputs = []
    for start, stop in itertools.pairwise(ends):
        assert 0 <= stop - start <= longest
        if stop > start:
            one, two, three = (part[start:stop].transpose(0, 1) for part in (query, key, value))
            made = functional.scaled_dot_product_attention(one, two, three, is_causal=causal, scale=scale)
            outputs.append(made.transpose(0, 1))
    return torch.cat(outputs)


@pytest.fixture(autouse=True)
def _flash(monkeypatch: pytest.MonkeyPatch) -> None:
    # All but the call of the kernel itself, which needs CUDA, is tested here.
    monkeypatch.setattr(build, "flash_kernel", lambda: flash_in_words)


@pytest.fixture(scope="module")
def network() -> build.LanguageModel:
    """A network with large weights, so that whatever is seen leaves a trace."""
    model = build.build(Model.read(tiny.MODEL), 100, 0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8.0)
    return model


def hidden(
    network: build.LanguageModel, batch: TokenBatch, attention: Attention, kernel: Kernel, precision: torch.dtype
) -> Tensor:
    build.use_kernel(network, kernel)
    with torch.no_grad(), autocast(CPU, precision):
        return build.encode(network, *_tensors(batch), attention, _opened(batch, attention))


def opened(batch: TokenBatch) -> np.ndarray:
    """Which tokens are opened where attention is PREFIX: any, not only first ones, since the mode allows them."""
    return (generator(0, "opened").random(batch.documents.shape) < 0.3) & (batch.documents != PADDING)


def _opened(batch: TokenBatch, attention: Attention) -> Tensor | None:
    return torch.from_numpy(opened(batch)) if attention is Attention.PREFIX else None


def may_see(batch: TokenBatch, attention: Attention, row: int) -> np.ndarray:
    """(T, T) bool: the definition, query by query, with nothing of the code under test."""
    length = batch.documents.shape[1]
    seen = np.zeros((length, length), dtype=bool)
    for query, key in itertools.product(range(length), range(length)):
        same = batch.documents[row, query] == batch.documents[row, key]
        ahead = {
            Attention.CAUSAL: False,
            Attention.BIDIRECTIONAL: True,
            Attention.PREFIX: bool(opened(batch)[row, key]),
        }[attention]
        seen[query, key] = same and (key <= query or ahead)
    return seen


def _tensors(batch: TokenBatch) -> tuple[Tensor, Tensor, Tensor]:
    return torch.from_numpy(batch.tokens), torch.from_numpy(batch.documents), torch.from_numpy(batch.positions)


def perturbed(batch: TokenBatch, row: int, place: int) -> TokenBatch:
    tokens = batch.tokens.copy()
    tokens[row, place] = 4 + (tokens[row, place] - 4 + 37) % 96
    return TokenBatch(tokens, batch.documents, batch.positions)


# 1: a packed row equals each document alone


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("attention", "kernel", "precision"), WAYS)
def test_a_packed_row_equals_each_document_alone(
    network: build.LanguageModel, layout: str, attention: Attention, kernel: Kernel, precision: torch.dtype
) -> None:
    batch = tiny.token_batch(LAYOUTS[layout], LENGTH)
    packed = hidden(network, batch, attention, kernel, precision)
    tolerance = 1e-5 if precision is torch.float32 else 0.1
    for row, lengths in enumerate(LAYOUTS[layout]):
        start = 0
        for size in lengths:
            whole = slice(start, start + size)
            alone = _alone(network, batch.tokens[row : row + 1, whole], attention, opened(batch)[row, whole])
            difference = (packed[row, start : start + size].float() - alone).abs().max()
            assert float(difference) < tolerance * max(1.0, float(alone.abs().max()))
            start += size


def _alone(network: build.LanguageModel, piece: np.ndarray, attention: Attention, ahead: np.ndarray) -> Tensor:
    """One document as transformers computes it, in float32: without any mask where it knows the mode itself."""
    seen = torch.from_numpy(np.tril(np.ones((len(ahead), len(ahead)), dtype=bool)) | ahead)
    network.set_attn_implementation("sdpa")
    with torch.no_grad():
        output = network.model(
            input_ids=torch.from_numpy(piece),
            attention_mask=seen[None, None] if attention is Attention.PREFIX else None,
            is_causal=attention is Attention.CAUSAL,
            use_cache=False,
        )
    return output.last_hidden_state[0]


@pytest.mark.parametrize(("attention", "kernel", "precision"), WAYS)
def test_a_document_is_blind_to_its_neighbours_to_the_bit(
    network: build.LanguageModel, attention: Attention, kernel: Kernel, precision: torch.dtype
) -> None:
    batch = tiny.token_batch([[9, 8], [4, 20]], LENGTH)
    before = hidden(network, batch, attention, kernel, precision)
    tokens = batch.tokens.copy()
    tokens[0, :9] = 99  # all of the first document
    tokens[0, 17:] = 50  # and the padding
    after = hidden(network, TokenBatch(tokens, batch.documents, batch.positions), attention, kernel, precision)
    assert torch.equal(before[0, 9:17], after[0, 9:17])
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[0, :9], after[0, :9])


# 2: causal sees no future token, bidirectional sees all of its document, and nothing else


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("attention", "kernel", "precision"), WAYS)
def test_every_token_is_seen_by_exactly_those_who_may(
    network: build.LanguageModel, layout: str, attention: Attention, kernel: Kernel, precision: torch.dtype
) -> None:
    batch = tiny.token_batch(LAYOUTS[layout], LENGTH)
    before = hidden(network, batch, attention, kernel, precision)
    for row in range(len(batch.tokens)):
        seen = may_see(batch, attention, row).astype(int)
        # The network has two layers: whoever sees a token that saw this one knows of it too.
        reached = seen @ seen > 0
        for place in np.flatnonzero(batch.documents[row] != PADDING)[:: 3 if len(batch.tokens) > 1 else 1]:
            after = hidden(network, perturbed(batch, row, place), attention, kernel, precision)
            changed = (before != after).any(dim=-1).numpy()
            expected = np.zeros_like(changed)
            expected[row] = reached[:, place]
            assert np.array_equal(changed, expected), (row, place)


@pytest.mark.parametrize(("attention", "kernel", "precision"), WAYS)
def test_padding_gives_no_nan(
    network: build.LanguageModel, attention: Attention, kernel: Kernel, precision: torch.dtype
) -> None:
    batch = tiny.token_batch([[5], []], LENGTH)
    assert torch.isfinite(hidden(network, batch, attention, kernel, precision)).all()


@pytest.mark.parametrize("attention", Attention)
def test_the_positions_are_those_given(network: build.LanguageModel, attention: Attention) -> None:
    # Rotary positions are relative: moved all together they change nothing, spread out they do.
    batch = tiny.token_batch([[24]], LENGTH)
    way = (attention, Kernel.SDPA, torch.float32)
    given = hidden(network, batch, *way)
    moved = hidden(network, TokenBatch(batch.tokens, batch.documents, batch.positions + 5), *way)
    spread = hidden(network, TokenBatch(batch.tokens, batch.documents, batch.positions * 2), *way)
    assert float((given - moved).abs().max()) < 1e-4
    assert float((given - spread).abs().max()) > 1e-2


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("attention", Attention)
def test_the_kernels_agree_in_their_gradients(network: build.LanguageModel, layout: str, attention: Attention) -> None:
    batch = tiny.token_batch(LAYOUTS[layout], LENGTH)
    real = torch.from_numpy(batch.documents != PADDING)
    gradients: list[list[Tensor]] = []
    kernels = [kernel for kernel in KERNELS if (attention, kernel) != (Attention.PREFIX, Kernel.FLASH)]
    for kernel in kernels:
        build.use_kernel(network, kernel)
        network.zero_grad()
        states = build.encode(network, *_tensors(batch), attention, _opened(batch, attention))
        states[real].square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None])
    network.zero_grad()
    for others in gradients[1:]:
        for one, other in zip(gradients[0], others, strict=True):
            assert float((one - other).abs().max()) < 1e-4 * max(1.0, float(one.abs().max()))


# The masks themselves


@pytest.mark.parametrize("attention", Attention)
def test_visible_is_what_each_mode_says(attention: Attention) -> None:
    batch = tiny.token_batch([[9, 8], [24], [1, 2, 3]], LENGTH)
    found = visible(torch.from_numpy(batch.documents), attention, _opened(batch, attention))
    for row in range(3):
        assert np.array_equal(found[row, 0].numpy(), may_see(batch, attention, row))


def test_an_opened_beginning_is_seen_by_all_and_sees_nothing_behind_itself() -> None:
    seen = visible(
        torch.zeros(1, 5, dtype=torch.int64), Attention.PREFIX, torch.tensor([[True, True, True, False, False]])
    )
    assert seen[0, 0].int().tolist() == [[1, 1, 1, 0, 0]] * 3 + [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


@pytest.mark.parametrize("attention", [Attention.CAUSAL, Attention.BIDIRECTIONAL])
def test_a_row_of_one_document_needs_no_mask_but_only_for_sdpa(attention: Attention) -> None:
    whole, packed = torch.zeros(2, 8, dtype=torch.int64), torch.tensor([[0] * 8, [0] * 7 + [1]])
    assert kernel_mask(whole, attention, Kernel.SDPA, torch.float32) is None
    assert kernel_mask(packed, attention, Kernel.SDPA, torch.float32) is not None
    added = kernel_mask(whole, attention, Kernel.MATMUL, torch.float32)
    # The matmul form adds its mask to the scores, so that a boolean one would be wrong without a word.
    assert isinstance(added, Tensor)
    assert added.dtype == torch.float32
    assert set(added.unique().tolist()) <= {0.0, torch.finfo(torch.float32).min}


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_the_added_mask_is_finite_in_its_precision(precision: torch.dtype) -> None:
    mask = kernel_mask(torch.tensor([[0, 0, 1]]), Attention.CAUSAL, Kernel.MATMUL, precision)
    assert isinstance(mask, Tensor)
    assert mask.dtype == precision
    assert torch.isfinite(mask).all()


@pytest.mark.parametrize(
    ("device", "precision", "length", "kernel"),
    [
        ("cpu", torch.bfloat16, 128, Kernel.MATMUL),
        ("cpu", torch.bfloat16, 1024, Kernel.DOCUMENTS),
        ("cpu", torch.float32, 128, Kernel.SDPA),
        ("cpu", torch.float32, 1024, Kernel.DOCUMENTS),
        ("cuda", torch.bfloat16, 128, Kernel.FLASH),
        ("cuda", torch.float32, 2048, Kernel.SDPA),
    ],
)
def test_the_kernel_is_chosen_by_device_precision_and_length(
    device: str, precision: torch.dtype, length: int, kernel: Kernel
) -> None:
    assert choose_kernel(torch.device(device), precision, length) is kernel


def test_a_mask_that_is_ignored_would_be_noticed(network: build.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests above must be able to fail: without our mask, documents see each other.
    def none(*arguments: object) -> None:
        return None

    batch = tiny.token_batch([[9, 15]], LENGTH)
    monkeypatch.setattr(build, "kernel_mask", none)
    before = hidden(network, batch, Attention.BIDIRECTIONAL, Kernel.SDPA, torch.float32)
    after = hidden(network, perturbed(batch, 0, 3), Attention.BIDIRECTIONAL, Kernel.SDPA, torch.float32)
    assert not torch.equal(before[0, 9:], after[0, 9:])


def test_the_last_layer_may_leave_out_places(network: build.LanguageModel) -> None:
    batch = tiny.token_batch(LAYOUTS["mixed"], LENGTH)
    asked = torch.tensor([0, 5, 24, 30, 47, 95])
    for attention, kernel in itertools.product((Attention.CAUSAL, Attention.BIDIRECTIONAL), KERNELS):
        build.use_kernel(network, kernel)
        whole = build.encode(network, *_tensors(batch), attention).flatten(0, 1)[asked]
        some = build.encode(network, *_tensors(batch), attention, asked=asked)
        assert torch.allclose(whole, some, atol=1e-5)
        weight = network.get_parameter("model.layers.0.self_attn.q_proj.weight")
        # Not the sum of squares: after the last norm it is a constant, and its gradient rounding alone.
        probe = torch.randn(whole.shape, generator=torch.Generator().manual_seed(5))
        (one,) = torch.autograd.grad((whole * probe).sum(), [weight])
        (other,) = torch.autograd.grad((some * probe).sum(), [weight])
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4 * float(one.abs().max()))


# FlexAttention and the borders of documents


@pytest.mark.parametrize("attention", Attention)
def test_the_blocks_hold_the_same_rule(attention: Attention) -> None:
    batch = tiny.token_batch(LAYOUTS["mixed"], LENGTH)
    documents = torch.from_numpy(batch.documents)
    blocks = kernel_mask(documents, attention, Kernel.FLEX, torch.float32, _opened(batch, attention))
    assert isinstance(blocks, BlockMask)
    rule = create_mask(blocks.mask_mod, len(documents), None, LENGTH, LENGTH, device="cpu")
    assert torch.equal(rule, visible(documents, attention, _opened(batch, attention)))


@pytest.mark.parametrize("kernel", [Kernel.FLASH, Kernel.FLEX])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_prefix_is_computed_by_blocks(
    network: build.LanguageModel, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(
        query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask, enable_gqa: bool, scale: float, **unused: Any
    ) -> Tensor:
        output = flex_attention(query, key, value, block_mask=block_mask, enable_gqa=enable_gqa, scale=scale)
        assert isinstance(output, Tensor)
        return output

    # transformers would compile it.
    monkeypatch.setattr("transformers.integrations.flex_attention.compile_friendly_flex_attention", plain)
    batch = tiny.token_batch(LAYOUTS["mixed"], LENGTH)
    dense = hidden(network, batch, Attention.PREFIX, Kernel.SDPA, torch.float32)
    found = hidden(network, batch, Attention.PREFIX, kernel, torch.float32)
    assert float((dense - found).abs().max()) < 1e-4


def test_borders_keep_their_size_whatever_the_number_of_documents() -> None:
    few = borders(torch.zeros(2, 512, dtype=torch.int64))
    many = borders(torch.from_numpy(tiny.token_batch([[30] * 8, [300, 100]], 512).documents))
    assert few.shape == many.shape == (17,)
    assert few[:4].tolist() == [0, 512, 1024, 1024]
    assert many.diff().tolist()[:11] == [30] * 8 + [272, 300, 100]
    # Too many for the room: twice the room, and so on.
    assert borders(torch.arange(512)[None].expand(2, 512)).diff().tolist() == [1] * 1024


def test_pieces_are_filled_well_and_lose_no_place() -> None:
    draws = generator(0, "lengths")
    layout = [draws.integers(1, 90, 12).tolist() for _ in range(8)]
    documents = torch.from_numpy(tiny.token_batch(layout, 1100).documents)
    made = pieces(documents, causal=False)
    assert torch.equal(made.source[made.target], torch.arange(documents.numel()))
    assert made.filled is not None
    assert int((~made.filled).sum()) == documents.numel()
    long = [(rows, length) for rows, length in made.groups if length > 16]
    assert sum(rows * length for rows, length in made.groups) == len(made.source)
    assert len(long) <= 2 * 7
