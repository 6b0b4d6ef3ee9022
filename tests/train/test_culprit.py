"""A step that is not finite is told with the first module that was not."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from antiphon.model.loss import Loss
from antiphon.train.culprit import Culprit, find, first


class Bad(nn.Module):
    """A layer whose output, or whose gradient, is not finite from some size of its input on."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, inputs: Tensor) -> Tensor:
        if float(inputs.detach().abs().max()) < 1e6 or self.what == "nothing":
            return inputs
        # At 0 the square root is finite and its slope is not.
        return inputs * math.inf if self.what == "output" else inputs + (inputs * 0).sqrt()


def model(what: str) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3, bias=False), nn.Sequential(Bad(what), nn.Linear(3, 3)), nn.Linear(3, 1))


def total(model: nn.Module, inputs: Tensor) -> Loss:
    return Loss(model(inputs).square().sum(), len(inputs))


def told(model: nn.Module, number: int = 2, bad: int = 1) -> Culprit | None:
    micro_batches = [torch.ones(2, 3) for _ in range(number)]
    micro_batches[bad] = micro_batches[bad] * 1e8
    return find(model, micro_batches, total, lambda micro: f"{len(micro)} rows", 3)


def test_the_first_module_with_an_output_that_is_not_finite_is_named() -> None:
    found = told(model("output"))
    assert found == Culprit(3, 1, "2 rows", "1.0", "output")
    assert str(found) == "the output of 1.0 was not finite (2 rows, micro-batch 1 of rank 3)"


def test_without_one_it_is_the_module_whose_gradient_is_the_first_that_is_not_finite() -> None:
    # What follows the first layer makes it: the gradient that reaches that layer's output is the first bad one.
    assert told(model("gradient")) == Culprit(3, 1, "2 rows", "0", "gradient of the output")


def test_a_weight_whose_gradient_alone_overflows_is_named() -> None:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 1e-30)
    found = find(layer, [torch.full((1, 1), 1e30)], lambda model, x: Loss((model(x) * 1e20).sum(), 1), str, 0)
    assert found is not None
    assert (found.place, found.what) == ("weight", "gradient")


def test_a_loss_that_is_not_finite_on_finite_outputs_is_the_loss() -> None:
    found = find(nn.Linear(3, 1), [torch.ones(1, 3)], lambda model, x: Loss(model(x).sum() * math.nan, 1), str, 0)
    assert found is not None
    assert str(found).startswith("the loss was not finite")


def test_nothing_is_found_where_all_is_finite_and_nothing_is_left_behind() -> None:
    network = model("nothing")
    assert told(network) is None
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())


@pytest.mark.parametrize("bad", [0, 2])
def test_the_micro_batch_is_the_one(bad: int) -> None:
    found = told(model("output"), number=3, bad=bad)
    assert found is not None
    assert found.micro_batch == bad


def test_of_several_ranks_the_first_is_named_unless_it_only_knows_a_parameter() -> None:
    ours, theirs = Culprit(0, 0, "", "a", "gradient"), Culprit(1, 0, "", "b", "output")
    assert first([None, theirs]) == theirs
    assert first([ours, theirs]) == theirs
    assert first([ours, None]) == ours
    assert first([None]) is None
