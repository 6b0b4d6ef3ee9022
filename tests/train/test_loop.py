"""The loop divides once, by the whole count; it knows no language, so neither do these tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import pytest
import torch
from torch import Tensor, nn

from antiphon.model.loss import Loss
from antiphon.train.loop import Diverged, Progress, train
from antiphon.train.optimizer import adamw
from antiphon.train.parallel import clip_gradients

Pairs = tuple[Tensor, Tensor]


def data(step: int) -> Pairs:
    """20 pairs of a linear law with noise, a function of the step."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(20, 3, generator=generator)
    return inputs, inputs @ torch.tensor([[1.0], [-2.0], [0.5]]) + torch.randn(20, 1, generator=generator)


def divided(sizes: Sequence[int]) -> Callable[[int], list[Pairs]]:
    def batches(step: int) -> list[Pairs]:
        return list(zip(*(part.split(list(sizes)) for part in data(step)), strict=True))

    return batches


def squared(model: nn.Module, pairs: Pairs) -> Loss:
    inputs, answers = pairs
    return Loss((model(inputs) - answers).square().sum(), len(inputs))


def network() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 1)


def fit(
    model: nn.Module,
    batches: Callable[[int], list[Pairs]],
    *,
    steps: int = 5,
    start: int = 0,
    learning_rate: Callable[[int], float] = lambda step: 0.1,
    loss: Callable[[nn.Module, Pairs], Loss] = squared,
    clip: float = 1e9,
    bad_steps: int = 1,
    bad: int = 0,
    rows: Callable[[Pairs], str] | None = None,
    actions: Sequence[tuple[int, Callable[[Progress], None]]] = (),
) -> list[Progress]:
    told: list[Progress] = []
    train(
        model,
        torch.optim.SGD(model.parameters(), lr=123.0),
        start=start,
        steps=steps,
        batches=batches,
        count=lambda pairs: len(pairs[0]),
        loss=loss,
        learning_rate=learning_rate,
        clip=clip,
        bad_steps=bad_steps,
        bad=bad,
        rows=rows,
        actions=[(1, told.append), *actions],
    )
    return told


@pytest.mark.parametrize("sizes", [[20], [10, 10], [1, 19], [7, 7, 6], [1] * 20, [20, 0]])
def test_one_update_is_the_same_for_any_division(sizes: list[int]) -> None:
    whole, parts = network(), network()
    told_whole, told_parts = fit(whole, divided([20])), fit(parts, divided(sizes))
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-6)
    for one, other in zip(told_whole, told_parts, strict=True):
        assert (one.step, one.count) == (other.step, other.count)
        assert one.loss == pytest.approx(other.loss, rel=1e-6)
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-5)


def test_an_update_is_the_one_of_the_mean_loss() -> None:
    model, reference = network(), network()
    (told,) = fit(model, divided([13, 7]), steps=1)
    inputs, answers = data(0)
    mean = (reference(inputs) - answers).square().mean()
    mean.backward()
    assert told.loss == pytest.approx(float(mean.detach()), rel=1e-6)
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert theirs.grad is not None
        assert torch.allclose(ours, theirs - 0.1 * theirs.grad, atol=1e-6)


def test_the_learning_rate_is_that_of_the_step() -> None:
    model = network()
    rates = [0.1, 0.0, 0.03]
    before = [parameter.detach().clone() for parameter in model.parameters()]
    told = fit(model, divided([20]), steps=2, learning_rate=lambda step: [0.0, 0.0][step])
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    told = fit(model, divided([20]), steps=3, learning_rate=rates.__getitem__)
    assert [progress.learning_rate for progress in told] == rates


def test_a_start_in_the_middle_goes_on_with_the_same_batches() -> None:
    whole, halves = network(), network()
    fit(whole, divided([20]), steps=6)
    fit(halves, divided([20]), steps=2)
    told = fit(halves, divided([20]), start=2, steps=6)
    assert [progress.step for progress in told] == [3, 4, 5, 6]
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), halves.parameters(), strict=True))


def test_the_gradient_is_clipped_by_its_global_norm() -> None:
    model, free = network(), network()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    (told,) = fit(model, divided([20]), steps=1, clip=0.5, learning_rate=lambda step: 1.0)
    (told_free,) = fit(free, divided([20]), steps=1)
    moved = torch.cat([(one - other).flatten() for one, other in zip(before, model.parameters(), strict=True)])
    assert told.gradient_norm == told_free.gradient_norm > 0.5  # reported before clipping
    assert float(moved.detach().norm()) == pytest.approx(0.5, rel=1e-4)


def test_the_norm_of_a_large_gradient_is_exact() -> None:
    # Squares added up one after the other in float32 are off by a hundred times as much.
    gradient = torch.randn(4096, 128, generator=torch.Generator().manual_seed(0))
    parts = [torch.nn.Parameter(part.clone()) for part in (gradient, gradient[:3000], gradient[3000:], gradient[:, 0])]
    for part in parts:
        part.grad = part.detach().clone()
    exact = math.sqrt(sum(float(part.detach().double().square().sum()) for part in parts))
    assert clip_gradients(parts, 1e9) == pytest.approx(exact, rel=1e-7)
    assert parts[0].grad is not None
    assert torch.equal(parts[0].grad, parts[0])
    assert clip_gradients(parts, 1.0) == pytest.approx(exact, rel=1e-7)
    assert clip_gradients(parts, 1.0) == pytest.approx(1.0, rel=1e-7)


def test_actions_come_in_order_after_every_so_many_steps() -> None:
    seen: list[tuple[str, int]] = []
    fit(
        network(),
        divided([20]),
        steps=6,
        actions=[
            (2, lambda told: seen.append(("two", told.step))),
            (3, lambda told: seen.append(("three", told.step))),
        ],
    )
    assert seen == [("two", 2), ("three", 3), ("two", 4), ("two", 6), ("three", 6)]


def test_the_model_is_in_training_mode() -> None:
    model = network()
    model.eval()
    fit(model, divided([20]), steps=1)
    assert model.training


def broken_at(steps: Collection[int], what: str) -> Callable[[nn.Module, Pairs], Loss]:
    """The squared loss, whose value or gradient is not finite at some steps."""
    bad = [data(step)[0] for step in steps]

    def loss(model: nn.Module, pairs: Pairs) -> Loss:
        whole = squared(model, pairs)
        if not any(torch.equal(pairs[0], inputs) for inputs in bad):
            return whole
        # At 0 the square root is finite and its slope is not.
        broken = whole.total * math.nan if what == "loss" else whole.total + (whole.total * 0).sqrt()
        return Loss(broken, whole.count)

    return loss


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_not_applied(what: str) -> None:
    model, reference = network(), network()
    fit(reference, divided([20]), steps=2)
    with pytest.raises(Diverged, match=f"the {what} was not finite at step 2") as caught:
        fit(model, divided([20]), loss=broken_at([2], what))
    assert caught.value.step == 2
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), reference.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_training_goes_on_with_the_next_step(what: str) -> None:
    model, reference = network(), network()
    told = fit(model, divided([20]), steps=6, loss=broken_at([1, 3, 4], what), bad_steps=3)
    for step in (0, 2, 5):
        fit(reference, divided([20]), start=step, steps=step + 1)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), reference.parameters(), strict=True))
    assert [progress.step for progress in told] == [1, 2, 3, 4, 5, 6]
    assert [progress.bad for progress in told] == [0, 1, 0, 1, 2, 0]


def test_so_many_bad_steps_in_a_row_end_it_and_those_before_the_start_count() -> None:
    seen: list[Progress] = []
    with pytest.raises(Diverged, match="at step 4, 3 steps in a row; no such step was applied"):
        fit(network(), divided([20]), steps=9, loss=broken_at([1, 2, 3, 4], "loss"), bad_steps=3, start=3, bad=1,
            actions=[(7, seen.append)])  # fmt: skip
    assert [progress.bad for progress in seen] == [2, 3]  # every bad step is told, whatever an action's interval


def test_a_bad_step_is_told_with_its_micro_batch_and_place() -> None:
    with pytest.raises(Diverged, match=r"the loss was not finite \(20 pairs, micro-batch 0 of rank 0\)"):
        fit(network(), divided([20]), loss=broken_at([0], "loss"), rows=lambda pairs: f"{len(pairs[0])} pairs")


def test_a_step_that_asks_nothing_changes_nothing() -> None:
    model = network()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    (told,) = fit(model, lambda step: [(torch.zeros(0, 3), torch.zeros(0, 1))], steps=1)
    assert (told.count, told.loss) == (0, 0.0)
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


def test_it_trains() -> None:
    model = network()
    optimizer = adamw(model, weight_decay=0.0, betas=(0.9, 0.95), epsilon=1e-8)
    train(
        model,
        optimizer,
        start=0,
        steps=300,
        batches=divided([20]),
        count=lambda pairs: len(pairs[0]),
        loss=squared,
        learning_rate=lambda step: 0.05,
        clip=10.0,
    )
    assert model.weight.detach().flatten().tolist() == pytest.approx([1.0, -2.0, 0.5], abs=0.3)
