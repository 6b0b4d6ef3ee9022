"""Piece by piece or at once, the loss and its gradients are those of torch's cross-entropy over all scores."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from antiphon.model import cross_entropy
from antiphon.model.cross_entropy import linear_cross_entropy, softmax_of

VOCABULARY = 11


def case(number: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    hidden = torch.randn(number, 4, generator=generator, dtype=dtype)
    weight = torch.randn(VOCABULARY, 4, generator=generator, dtype=dtype)
    answers = torch.randint(0, VOCABULARY, (number,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), answers


@pytest.fixture(params=[1, 3, 4, 7, 100])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rows get their scores at once."""
    monkeypatch.setattr(cross_entropy, "CPU_SCORES", request.param * VOCABULARY)
    return request.param


def reference(hidden: Tensor, weight: Tensor, answers: Tensor, z_loss: float) -> Tensor:
    scores = hidden @ weight.T
    return functional.cross_entropy(scores, answers, reduction="sum") + z_loss * scores.logsumexp(-1).square().sum()


@pytest.mark.parametrize("z_loss", [0.0, 0.1])
def test_loss_and_gradients_are_those_of_all_scores(rows: int, z_loss: float) -> None:
    # B13: a fused loss whose weight gradient is wrong for all but the plain sum.
    for number in (1, 7, 12):
        hidden, weight, answers = case(number)
        ours = linear_cross_entropy(hidden, weight, answers, z_loss)
        gradients = torch.autograd.grad(ours * 0.3, (hidden, weight))
        theirs = reference(hidden, weight, answers, z_loss)
        expected = torch.autograd.grad(theirs * 0.3, (hidden, weight))
        assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-12)
        for one, other in zip(gradients, expected, strict=True):
            assert torch.allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("z_loss", [0.0, 0.1])
def test_its_gradients_are_those_of_finite_differences(rows: int, z_loss: float) -> None:
    # By hand: torch's gradcheck runs one backward pass many times, which the gradients here are not kept for.
    hidden, weight, answers = case(5)
    gradients = torch.autograd.grad(linear_cross_entropy(hidden, weight, answers, z_loss), (hidden, weight))
    step = 1e-6
    for values, gradient in zip((hidden, weight), gradients, strict=True):
        for place in range(values.numel()):
            change = torch.zeros(values.numel(), dtype=torch.float64)
            change[place] = step
            with torch.no_grad():
                values += change.view_as(values)
                above = linear_cross_entropy(hidden, weight, answers, z_loss)
                values -= 2 * change.view_as(values)
                below = linear_cross_entropy(hidden, weight, answers, z_loss)
                values += change.view_as(values)
            slope = float(above - below) / (2 * step)
            assert slope == pytest.approx(float(gradient.view(-1)[place]), rel=1e-5, abs=1e-7)


def test_what_needs_no_gradient_gets_none(rows: int) -> None:
    hidden, weight, answers = case(9)
    for wanted in (hidden, weight):
        for one in (hidden, weight):
            one.requires_grad_(one is wanted)
        (found,) = torch.autograd.grad(linear_cross_entropy(hidden, weight, answers), wanted)
        (expected,) = torch.autograd.grad(reference(hidden, weight, answers, 0.0), wanted)
        assert torch.allclose(found, expected)
    with torch.no_grad():
        assert not linear_cross_entropy(hidden, weight, answers).requires_grad


def test_no_items_are_no_loss_and_no_gradient(rows: int) -> None:
    hidden, weight, answers = case(0)
    total = linear_cross_entropy(hidden, weight, answers, 0.1)
    total.backward()
    assert float(total.detach()) == 0.0
    assert weight.grad is not None
    assert not weight.grad.any()


def test_under_autocast_products_are_rounded_and_the_loss_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, answers = case(400, torch.float32)
    found = []
    for limit in (2**30, 64 * VOCABULARY):
        monkeypatch.setattr(cross_entropy, "CPU_SCORES", limit)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total = linear_cross_entropy(hidden, weight, answers)
        assert total.dtype is torch.float32
        found.append((total.detach(), *torch.autograd.grad(total, (hidden, weight))))
    (whole, *gradients), (pieces, *others) = found
    # A loss rounded to bfloat16 would be off by up to 1 in 256.
    assert float(pieces) == pytest.approx(float(whole), rel=1e-6)
    exact = torch.autograd.grad(reference(hidden, weight, answers, 0.0), (hidden, weight))
    for one, other, true in zip(gradients, others, exact, strict=True):
        assert one.dtype is other.dtype is torch.float32
        assert float((other - true).norm() / true.norm()) < 1.5 * float((one - true).norm() / true.norm()) < 0.02


def test_gradients_are_given_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CPU_SCORES", VOCABULARY)
    hidden, weight, answers = case(3)
    total = linear_cross_entropy(hidden, weight, answers)
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="used up"):
        total.backward()


def test_only_one_piece_of_scores_exists_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CPU_SCORES", 5 * VOCABULARY)
    hidden, weight, answers = case(23)
    seen: list[int] = []

    def softmax(scores: Tensor, asked: Tensor, z_loss: float) -> tuple[Tensor, Tensor]:
        seen.append(scores.shape[0])
        return softmax_of(scores, asked, z_loss)

    linear_cross_entropy(hidden, weight, answers, softmax=softmax)
    assert sum(seen) == 23
    assert max(seen) <= 5
    assert max(seen) - min(seen) <= 1
