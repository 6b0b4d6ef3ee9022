"""Compilation where it pays: layer by layer, for static shapes, never again after the first steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from antiphon.config import UserError
from antiphon.model.attention import Attention
from antiphon.model.cross_entropy import softmax_of
from antiphon.model.loss import Learner

GRAPHS = 64
"""Most graphs of one piece of code: shapes of rows x modes of attention x whether a mask is needed. torch's own limit
of 8 is met by a run that trains both objectives on rows of three lengths, and what is over it runs uncompiled."""


def compile_learner(learner: Learner, backend: str = "inductor") -> None:
    """Compile the layers, and the softmax over a large vocabulary, in place; they are compiled when first called.

    The layers share their code, so that a network of 28 compiles as fast as one of 2, and each may be wrapped on its
    own by FSDP. Sizes are static but for the number of places asked, which differs from micro-batch to micro-batch.

    Args:
        learner: changed in place; its parameters keep their names.
        backend: of torch.compile.
    """
    torch._dynamo.config.recompile_limit = GRAPHS
    for layer in learner.network.model.layers:
        layer.compile(dynamic=False, backend=backend)
    compiled: Any = torch.compile(softmax_of, dynamic=False, backend=backend)

    def softmax(scores: Tensor, answers: Tensor, z_loss: float) -> tuple[Tensor, Tensor]:
        torch._dynamo.maybe_mark_dynamic(scores, 0)
        torch._dynamo.maybe_mark_dynamic(answers, 0)
        return compiled(scores, answers, z_loss)

    learner.softmax = softmax


def check_compiled(
    learner: Learner,
    inputs: Tensor,
    labels: Tensor,
    documents: Tensor,
    positions: Tensor,
    attention: Attention,
    opened: Tensor | None = None,
    tolerance: float = 0.02,
) -> None:
    """Compute one micro-batch with compiled code and without, and refuse to train on a difference.

    Fused kernels have been wrong without a word (pytorch issue 191433), so it is looked at before the first step.

    Args:
        learner: compiled; gradients are left as None.
        inputs, labels, documents, positions, attention, opened: a micro-batch, as in `Learner.forward`.
        tolerance: largest relative difference of the loss, and of the gradient in L2 norm.

    Raises:
        UserError: they differ by more.
    """
    found = []
    for stance in ("force_eager", "default"):
        with torch.compiler.set_stance(stance):
            total = learner(inputs, labels, documents, positions, attention, opened)
            total.backward()
        gradients = [weight.grad for weight in learner.parameters() if weight.grad is not None]
        found.append((total.detach().double(), gradients))
        learner.zero_grad(set_to_none=True)
    (loss, gradients), (compiled_loss, compiled_gradients) = found
    apart = sum(
        float((one - other).double().square().sum()) for one, other in zip(gradients, compiled_gradients, strict=True)
    )
    norm = sum(float(one.double().square().sum()) for one in gradients)
    loss_difference = float((compiled_loss - loss).abs() / loss.abs().clamp(min=1e-12))
    gradient_difference = (apart / max(norm, 1e-30)) ** 0.5
    # Not a number is not below the tolerance either.
    if not (loss_difference <= tolerance and gradient_difference <= tolerance):
        raise UserError(
            f"compiled code differs from uncompiled code on the first micro-batch: the loss by {loss_difference:.2g}, "
            f"the gradient by {gradient_difference:.2g} (relative; allowed is {tolerance:g}). "
            "Train with --set machine.compile=off, and report the versions of torch and the device."
        )
