"""The loop. It knows no language: it trains anything that answers with a sum and a count."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import nn

from antiphon.model.loss import Loss
from antiphon.train.parallel import Parallel

Micro = TypeVar("Micro")


class Diverged(Exception):  # noqa: N818 - says what happened
    """A step's loss or gradient was not finite. The step was not applied; the weights are those after `step` steps."""

    def __init__(self, step: int, what: str) -> None:
        super().__init__(f"{what} was not finite at step {step}; the step was not applied")
        self.step = step


@dataclasses.dataclass(frozen=True)
class Progress:
    """What one step came to.

    Attributes:
        step: number of steps applied so far, this one included.
        loss: mean loss over all items of this step's batch (nats).
        count: number of those items, over micro-batches and ranks.
        learning_rate: of this step.
        gradient_norm: global L2 norm before clipping.
    """

    step: int
    loss: float
    count: int
    learning_rate: float
    gradient_norm: float


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    start: int,
    steps: int,
    batches: Callable[[int], Sequence[Micro]],
    count: Callable[[Micro], int],
    loss: Callable[[nn.Module, Micro], Loss],
    learning_rate: Callable[[int], float],
    clip: float,
    parallel: Parallel = Parallel(),  # noqa: B008 - a frozen value
    actions: Sequence[tuple[int, Callable[[Progress], None]]] = (),
) -> None:
    """Apply steps `start` .. `steps - 1`.

    Args:
        model: changed in place.
        optimizer: over the model's parameters.
        start: steps already applied.
        steps: where to end.
        batches: the micro-batches this rank computes at a step; a function of the step alone.
        count: how many items a micro-batch's loss will sum, known before the forward pass.
        loss: the sum and count of one micro-batch.
        learning_rate: of a step.
        clip: largest global gradient norm.
        parallel: this rank among the others.
        actions: (every, action) pairs; the action is called after each `every` steps.

    Raises:
        Diverged: a loss or gradient was not finite.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.train()
    for step in range(start, steps):
        rate = learning_rate(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        micro_batches = batches(step)
        asked = int(parallel.sum(sum(count(micro) for micro in micro_batches)))
        total = 0.0
        for micro in micro_batches:
            part = loss(model, micro)
            # Gradients are summed over ranks, not averaged, so one division by the global count is the whole mean.
            (part.total / max(asked, 1)).backward()
            total += float(part.total.detach())
        parallel.sum_gradients(parameters)
        norm = float(nn.utils.clip_grad_norm_(parameters, clip))
        mean = parallel.sum(total) / max(asked, 1)
        if not (math.isfinite(mean) and math.isfinite(norm)):
            optimizer.zero_grad(set_to_none=True)
            raise Diverged(step, "the gradient" if math.isfinite(mean) else "the loss")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        progress = Progress(step + 1, mean, asked, rate, norm)
        for every, action in actions:
            if progress.step % every == 0:
                action(progress)
