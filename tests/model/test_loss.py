"""A loss is a sum and a count, and equals torch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as functional

from antiphon.model import build
from antiphon.model.attention import Attention, Kernel
from antiphon.model.loss import IGNORE, infonce, language_modelling
from antiphon.model.presets import Model
from antiphon.pretrain.objective import LMBatch
from tests import tiny
from tests.pretrain.asking import EVERY, MIXTURES, VOCABULARY, objective

LAYOUT = [[24], [10, 14], [3, 2, 5], [20]]


@pytest.fixture(scope="module")
def network() -> build.LanguageModel:
    return build.build(Model.read(tiny.MODEL), 100, 0)


def asked(notation: str) -> list[LMBatch]:
    return objective(notation, 0.5)(tiny.token_batch(LAYOUT, 24), VOCABULARY, 0, 0)


def tensors(batch: LMBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    first, second, third, fourth = map(torch.from_numpy, (batch.inputs, batch.labels, batch.documents, batch.positions))
    return first, second, third, fourth


def opened(batch: LMBatch) -> torch.Tensor | None:
    return None if batch.opened is None else torch.from_numpy(batch.opened)


@pytest.mark.parametrize("kernel", [Kernel.SDPA, Kernel.MATMUL, Kernel.DOCUMENTS])
@pytest.mark.parametrize("notation", EVERY + MIXTURES)
def test_the_loss_is_the_cross_entropy_of_full_logits(
    network: build.LanguageModel, notation: str, kernel: Kernel
) -> None:
    build.use_kernel(network, kernel)
    for batch in asked(notation):
        inputs, labels, documents, positions = tensors(batch)
        attention = Attention(batch.attention)
        network.zero_grad()
        ours = language_modelling(network, inputs, labels, documents, positions, attention, opened(batch))
        (ours.total / ours.count).backward()
        gradients = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
        network.zero_grad()
        states = build.encode(network, inputs, documents, positions, attention, opened(batch))
        scores = network.lm_head(states)
        theirs = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)
        theirs.backward()
        assert ours.count == int((labels != IGNORE).sum()) == batch.count
        assert float(ours.total.detach() / ours.count) == pytest.approx(float(theirs.detach()), rel=1e-6)
        for one, parameter in zip(gradients, network.parameters(), strict=True):
            assert parameter.grad is not None
            assert torch.allclose(one, parameter.grad, rtol=1e-4, atol=1e-7)


def test_the_loss_of_clm_is_the_one_of_transformers(network: build.LanguageModel) -> None:
    build.use_kernel(network, Kernel.SDPA)
    tokens = tiny.token_batch([[24], [24]], 24).tokens
    batch = asked_whole(tokens)
    ours = language_modelling(network, *tensors(batch), Attention.CAUSAL)
    theirs = network(input_ids=torch.from_numpy(tokens), labels=torch.from_numpy(tokens)).loss
    assert ours.count == 2 * 23
    assert float(ours.total.detach() / ours.count) == pytest.approx(float(theirs.detach()), rel=1e-6)


def asked_whole(tokens: np.ndarray) -> LMBatch:
    batch = tiny.token_batch([[24]] * len(tokens), 24)
    (found,) = objective("clm")(batch, VOCABULARY, 0, 0)
    assert np.array_equal(found.inputs, tokens)
    return found


def test_nothing_asked_is_a_loss_of_zero_over_zero(network: build.LanguageModel) -> None:
    inputs, labels, documents, positions = tensors(asked("clm")[0])
    nothing = language_modelling(
        network, inputs, torch.full_like(labels, IGNORE), documents, positions, Attention.CAUSAL
    )
    assert (float(nothing.total.detach()), nothing.count) == (0.0, 0)
    nothing.total.backward()


def test_under_autocast_the_loss_is_still_summed_in_float32(network: build.LanguageModel) -> None:
    batch = asked("mlm(0.4)")[0]
    exact = language_modelling(network, *tensors(batch), Attention.BIDIRECTIONAL)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = language_modelling(network, *tensors(batch), Attention.BIDIRECTIONAL)
    assert rounded.total.dtype is torch.float32
    assert float(rounded.total.detach()) == pytest.approx(float(exact.total.detach()), rel=5e-3)


def test_infonce_is_cross_entropy_over_the_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, documents = torch.randn(5, 8, generator=generator), torch.randn(5, 8, generator=generator)
    loss = infonce(queries, documents, 0.1)
    expected = 0.0
    for row in range(5):
        cosines = torch.cosine_similarity(queries[row][None], documents) / 0.1
        expected += float(torch.logsumexp(cosines, 0) - cosines[row])
    assert loss.count == 5
    assert float(loss.total) == pytest.approx(expected, rel=1e-5)
