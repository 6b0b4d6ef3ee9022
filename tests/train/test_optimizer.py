"""Weight decay falls on matrices alone, unless it is asked to fall on everything."""

from __future__ import annotations

import torch
from torch import nn

from antiphon.model import build
from antiphon.model.presets import Model
from antiphon.train.optimizer import adamw
from tests import tiny


def _decayed(model: nn.Module, decay_all: bool) -> set[str]:
    """Names of the parameters that shrink when there is no gradient to follow."""
    optimizer = adamw(model, weight_decay=0.5, betas=(0.9, 0.95), epsilon=1e-8, decay_all=decay_all)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}


def test_norms_and_embeddings_are_left_alone() -> None:
    for tied in (True, False):
        model = build.build(Model.read({**tiny.MODEL, "tied": tied}), 100, 0)
        names = {name for name, _ in model.named_parameters()}
        plain = {name for name in names if "norm" in name or "embed" in name}
        assert _decayed(model, decay_all=False) == names - plain
        assert _decayed(model, decay_all=True) == names


def test_biases_are_left_alone() -> None:
    assert _decayed(nn.Linear(3, 2), decay_all=False) == {"weight"} - {"bias"}


def test_a_frozen_parameter_is_not_the_optimizers() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    optimizer = adamw(model, weight_decay=0.1, betas=(0.9, 0.95), epsilon=1e-8)
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    assert held == {id(parameter) for parameter in model[1].parameters()}


def test_a_step_is_adamw() -> None:
    # By hand: Loshchilov and Hutter 2019 (arXiv 1711.05101), algorithm 2, with the rate also on the decay.
    model = nn.Linear(2, 1, bias=False)
    start = model.weight.detach().clone()
    gradient = torch.tensor([[0.3, -0.7]])
    optimizer = adamw(model, weight_decay=0.1, betas=(0.9, 0.95), epsilon=1e-5)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    model.weight.grad = gradient.clone()
    optimizer.step()
    first, second = 0.1 * gradient / (1 - 0.9), 0.05 * gradient.square() / (1 - 0.95)
    expected = start - 0.01 * 0.1 * start - 0.01 * first / (second.sqrt() + 1e-5)
    assert torch.allclose(model.weight.detach(), expected, atol=1e-7)
