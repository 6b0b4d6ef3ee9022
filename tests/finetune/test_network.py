"""What a network computes for a row depends on that row alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from antiphon.finetune.features import Rows, encode
from antiphon.finetune.network import Network, NotFiniteError, Place
from antiphon.model import build
from tests.finetune.toys import WORDS

CPU = torch.device("cpu")


@pytest.fixture
def rows(tokenizer: Tokenizer) -> Rows:
    """Rows of 3 to 32 tokens."""
    return encode(tokenizer, [" ".join(WORDS[:count]) for count in (9, 1, 20, 3, 3, 14, 2)], 32)[0]


@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_vectors_do_not_depend_on_the_rows_beside(
    network: Callable[..., Network], rows: Rows, attention: str, pooling: str
) -> None:
    net = network(attention=attention, pooling=pooling)
    together = net.vectors(rows, np.arange(len(rows)))
    for index in range(len(rows)):
        torch.testing.assert_close(together[index], net.vectors(rows, np.array([index]))[0], atol=2e-6, rtol=1e-5)
    turned = net.vectors(rows, np.arange(len(rows))[::-1].copy())
    torch.testing.assert_close(together, turned.flip(0), atol=2e-6, rtol=1e-5)


def test_vectors_are_those_of_the_encoder_called_plainly(
    network: Callable[..., Network], base: build.LanguageModel, rows: Rows
) -> None:
    net = network()
    with torch.no_grad():
        for index in range(len(rows)):
            inputs = torch.from_numpy(rows.tokens[rows.starts[index] : rows.starts[index + 1]])[None]
            expected = base.model(input_ids=inputs, is_causal=False).last_hidden_state[0].mean(0)
            torch.testing.assert_close(net.vectors(rows, np.array([index]))[0], expected, atol=2e-6, rtol=1e-5)


def test_the_two_attentions_differ(network: Callable[..., Network], rows: Rows) -> None:
    every = np.arange(len(rows))
    both = [network(attention=mode).hidden(rows, every)[0] for mode in ("bidirectional", "causal")]
    assert not torch.allclose(both[0], both[1], atol=1e-3)


def test_bfloat16_is_near_float32_and_answers_in_float32(network: Callable[..., Network], rows: Rows) -> None:
    every = np.arange(len(rows))
    exact = network().vectors(rows, every)
    rough = network(place=Place(CPU, torch.bfloat16)).vectors(rows, every)
    assert rough.dtype is torch.float32
    assert 0 < float((exact - rough).abs().max()) < 0.05


def test_weights_that_are_not_finite_are_noticed_in_evaluation(network: Callable[..., Network], rows: Rows) -> None:
    net = network()
    with torch.no_grad():
        next(net.body.parameters()).fill_(float("nan"))
    with pytest.raises(NotFiniteError):
        net.hidden(rows, np.array([0]))


def test_the_network_owns_its_weights(network: Callable[..., Network], base: build.LanguageModel) -> None:
    net = network()
    own = {tensor.data_ptr() for tensor in net.parameters()}
    assert own.isdisjoint(tensor.data_ptr() for tensor in base.parameters())
    assert net.head.weight.shape == (2, 32)
    assert isinstance(network(outputs=0).head, torch.nn.Identity)
