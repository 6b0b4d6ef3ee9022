"""Pooling and the linear head."""

from __future__ import annotations

import pytest
import torch

from antiphon.model.heads import Pooling, linear, pool


@pytest.fixture
def hidden() -> torch.Tensor:
    return torch.randn(9, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (Pooling.MEAN, lambda text: text.mean(0)),
        (Pooling.FIRST, lambda text: text[0]),
        (Pooling.LAST, lambda text: text[-1]),
    ],
)
def test_pooling_looks_at_each_text_alone(hidden: torch.Tensor, pooling: Pooling, expected) -> None:
    lengths = torch.tensor([3, 1, 5])
    vectors = pool(hidden, lengths, pooling)
    for vector, text in zip(vectors, hidden.split([3, 1, 5]), strict=True):
        torch.testing.assert_close(vector, expected(text))


@pytest.mark.parametrize("pooling", Pooling)
def test_pooling_answers_in_float32(hidden: torch.Tensor, pooling: Pooling) -> None:
    assert pool(hidden.bfloat16(), torch.tensor([4, 5]), pooling).dtype is torch.float32


def test_mean_pooling_gives_each_token_its_share_of_the_gradient(hidden: torch.Tensor) -> None:
    hidden.requires_grad_()
    pool(hidden, torch.tensor([4, 5]), Pooling.MEAN).sum().backward()
    assert hidden.grad is not None
    torch.testing.assert_close(hidden.grad[:, 0], torch.tensor([1 / 4] * 4 + [1 / 5] * 5))


def test_the_head_depends_on_its_seed_alone() -> None:
    torch.manual_seed(1)
    one = linear(64, 32, seed=5)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    other = linear(64, 32, seed=5)
    assert torch.equal(one.weight, other.weight)
    assert not torch.equal(one.weight, linear(64, 32, seed=6).weight)
    assert torch.equal(torch.get_rng_state(), before), "the head drew from the global stream"


def test_the_head_starts_small_with_no_bias() -> None:
    head = linear(64, 64, seed=0)
    assert abs(float(head.weight.detach().std()) - 0.02) < 0.001
    assert not head.bias.detach().any()
    assert head.weight.requires_grad
