"""Each optimizer makes the step of its paper; weight decay falls on matrices alone, unless it is asked for all."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from antiphon.config import UserError
from antiphon.model import build
from antiphon.model.presets import Model
from antiphon.train.optimizer import Kind, Together, adamw, make
from tests import tiny

SETTINGS: dict[str, Any] = {"weight_decay": 0.1, "betas": (0.9, 0.95), "epsilon": 1e-5}


def _made(kind: Kind, model: nn.Module, **changes: Any) -> Together:
    if kind in (Kind.LAMB, Kind.STABLEADAMW):
        pytest.importorskip("pytorch_optimizer", reason="the extra `optimizers` is not installed")
    optimizer = make(kind, model, **{**SETTINGS, **changes})
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    return optimizer


def _decayed(model: nn.Module, decay_all: bool, kind: Kind = Kind.ADAMW) -> set[str]:
    """Names of the parameters that shrink when there is no gradient to follow."""
    optimizer = _made(kind, model, weight_decay=0.5, decay_all=decay_all)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}


@pytest.mark.parametrize("kind", Kind)
def test_norms_and_embeddings_are_left_alone(kind: Kind) -> None:
    for tied in (True, False):
        model = build.build(Model.read({**tiny.MODEL, "tied": tied}), 100, 0)
        names = {name for name, _ in model.named_parameters()}
        plain = {name for name in names if "norm" in name or "embed" in name}
        assert _decayed(model, False, kind) == names - plain
        assert _decayed(model, True, kind) == names


def test_biases_are_left_alone() -> None:
    assert _decayed(nn.Linear(3, 2), decay_all=False) == {"weight"} - {"bias"}


def test_a_frozen_parameter_is_not_the_optimizers() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    optimizer = adamw(model, weight_decay=0.1, betas=(0.9, 0.95), epsilon=1e-8)
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    assert held == {id(parameter) for parameter in model[1].parameters()}


def _three_steps(kind: Kind, model: nn.Module, **changes: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Three updates of a model's one matrix: the gradients, and the weights before and after each.

    The gradients grow tenfold from step to step: an optimizer that clips them on its own would not follow its formula.
    """
    optimizer = _made(kind, model, **changes)
    (weight,) = model.parameters()
    gradients, weights = [], [weight.detach().clone()]
    for step in range(3):
        gradients.append(torch.randn(weight.shape, generator=torch.Generator().manual_seed(step)) * 10.0 ** (step - 1))
        weight.grad = gradients[-1].clone()
        optimizer.step()
        weights.append(weight.detach().clone())
    return gradients, weights


def _matrix(rows: int = 4, columns: int = 3) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(columns, rows, bias=False)


def test_a_step_is_adamw() -> None:
    # By hand: Loshchilov and Hutter 2019 (arXiv 1711.05101), algorithm 2, with the rate also on the decay.
    gradients, weights = _three_steps(Kind.ADAMW, _matrix())
    first = second = torch.zeros_like(weights[0])
    for step, gradient in enumerate(gradients, 1):
        first, second = 0.9 * first + 0.1 * gradient, 0.95 * second + 0.05 * gradient**2
        update = (first / (1 - 0.9**step)) / ((second / (1 - 0.95**step)).sqrt() + 1e-5)
        expected = weights[step - 1] - 0.01 * (update + 0.1 * weights[step - 1])
        torch.testing.assert_close(weights[step], expected, rtol=0, atol=1e-7)


def test_a_step_is_stableadamw() -> None:
    # Wortsman et al. 2023 (arXiv 2304.13013), algorithm 2: the moments are debiased by their decay, and the rate is
    # divided by the root mean square of gradient over second moment where that is more than 1.
    gradients, weights = _three_steps(Kind.STABLEADAMW, _matrix())
    first = second = torch.zeros_like(weights[0])
    clipped = []
    for step, gradient in enumerate(gradients, 1):
        one, two = (beta * (1 - beta ** (step - 1)) / (1 - beta**step) for beta in (0.9, 0.95))
        first, second = one * first + (1 - one) * gradient, two * second + (1 - two) * gradient**2
        ratio = (gradient**2 / second.clamp(min=1e-5**2)).mean().sqrt()
        clipped.append(float(ratio) > 1)
        rate = 0.01 / max(1.0, float(ratio))
        expected = weights[step - 1] * (1 - rate * 0.1) - rate * first / (second.sqrt() + 1e-5)
        torch.testing.assert_close(weights[step], expected, rtol=0, atol=1e-6)
    assert any(clipped)


def test_a_step_is_lamb() -> None:
    # You et al. 2020 (arXiv 1904.00962), algorithm 2, without bias correction; the decay is inside the trust ratio.
    gradients, weights = _three_steps(Kind.LAMB, _matrix())
    first = second = torch.zeros_like(weights[0])
    for step, gradient in enumerate(gradients, 1):
        first, second = 0.9 * first + 0.1 * gradient, 0.95 * second + 0.05 * gradient**2
        update = first / (second.sqrt() + 1e-5) + 0.1 * weights[step - 1]
        trust = min(float(weights[step - 1].norm()), 10.0) / float(update.norm())
        expected = weights[step - 1] - 0.01 * trust * update
        torch.testing.assert_close(weights[step], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(4, 3), (3, 8)])
def test_a_step_is_muon(shape: tuple[int, int]) -> None:
    # Jordan et al. 2024: Nesterov momentum, then the nearest orthogonal matrix, here from the singular values. Five
    # rounds of Newton-Schulz bring these to between 0.7 and 1.2 only, in bfloat16, so the update is near it, not it.
    gradients, weights = _three_steps(Kind.MUON, _matrix(*shape))
    momentum = torch.zeros_like(weights[0])
    for step, gradient in enumerate(gradients, 1):
        momentum = momentum + 0.05 * (gradient - momentum)
        left, _, right = torch.linalg.svd(gradient + 0.95 * (momentum - gradient), full_matrices=False)
        # Liu et al. 2025 (arXiv 2502.16982), section 2.2: the root mean square of AdamW's updates.
        scale = 0.01 * 0.2 * max(shape) ** 0.5
        moved = (weights[step - 1] * (1 - 0.01 * 0.1) - weights[step]) / scale
        assert float((left.T @ moved @ right.T - torch.eye(3)).abs().max()) < 0.4


def test_muon_has_the_hidden_matrices_alone() -> None:
    for tied in (True, False):
        model = build.build(Model.read({**tiny.MODEL, "tied": tied}), 100, 0)
        optimizer = _made(Kind.MUON, model, outer=build.outer(model))
        muon, rest = (
            {id(parameter) for group in part.param_groups for parameter in group["params"]} for part in optimizer.parts
        )
        names = {name for name, parameter in model.named_parameters() if id(parameter) in muon}
        assert names == {name for name, _ in model.named_parameters() if "_proj" in name}
        assert len(muon) + len(rest) == len(list(model.parameters()))
        # The output matrix is not hidden, but it is a matrix, and matrices decay.
        decaying = [len(group["params"]) for group in optimizer.parts[1].param_groups if group["weight_decay"]]
        assert decaying == ([] if tied else [1])


@pytest.mark.parametrize("kind", [Kind.LAMB, Kind.STABLEADAMW])
def test_a_library_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(UserError, match=rf"'{kind.value}'.*antiphon\[optimizers\]"):
        make(kind, _matrix(), **SETTINGS)
