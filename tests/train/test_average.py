"""Averaged weights follow their formula, from the first weights on."""

from __future__ import annotations

import torch
from torch import nn

from antiphon.train.average import Average


def test_an_average_is_that_of_the_formula() -> None:
    model = nn.Linear(3, 2)
    average = Average(model, 0.9)
    expected = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    assert all(torch.equal(average.tensors[name].double(), value) for name, value in expected.items())
    for _ in range(5):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1.0)
        average.update()
        for name, parameter in model.named_parameters():
            expected[name] = 0.9 * expected[name] + 0.1 * parameter.detach().double()
            assert torch.allclose(average.tensors[name].double(), expected[name], rtol=0, atol=1e-5)


def test_an_average_that_goes_on_is_the_one_that_never_stopped() -> None:
    model = nn.Linear(3, 2)
    whole = Average(model, 0.5)
    whole_then_half = None
    for step in range(4):
        with torch.no_grad():
            model.weight.mul_(1.5)
        whole.update()
        if whole_then_half is not None:
            whole_then_half.update()
        if step == 1:
            whole_then_half = Average(model, 0.5, {name: value.clone() for name, value in whole.tensors.items()})
    assert whole_then_half is not None
    assert all(torch.equal(value, whole_then_half.tensors[name]) for name, value in whole.tensors.items())
