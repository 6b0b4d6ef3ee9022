"""The loop. It knows no language: it trains anything that answers with a sum and a count."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor, nn

from antiphon.model.loss import Loss
from antiphon.train.culprit import Culprit, find, first
from antiphon.train.optimizer import Stepper
from antiphon.train.parallel import Parallel, clip_gradients, gradients_travel

Micro = TypeVar("Micro")


@dataclasses.dataclass(frozen=True)
class Progress:
    """What one step came to.

    Attributes:
        step: number of steps made so far, this one included.
        loss: mean loss over all items of this step's batch (nats).
        count: number of those items, over micro-batches and ranks.
        learning_rate: of this step.
        gradient_norm: global L2 norm before clipping.
        bad: how many steps in a row, this one included, were not finite and not applied; 0 after one that was.
        culprit: for a bad step, where it stopped being finite, if that was looked for and found.
    """

    step: int
    loss: float
    count: int
    learning_rate: float
    gradient_norm: float
    bad: int = 0
    culprit: Culprit | None = None


class Diverged(Exception):  # noqa: N818 - says what happened
    """Too many steps in a row were not finite. None of them was applied.

    Attributes:
        step: the last of them, counted from 0.
        last: what it came to.
    """

    def __init__(self, last: Progress) -> None:
        what = "the gradient" if math.isfinite(last.loss) else "the loss"
        times = f", {last.bad} steps in a row" if last.bad > 1 else ""
        place = f"; {last.culprit}" if last.culprit else ""
        super().__init__(f"{what} was not finite at step {last.step - 1}{times}; no such step was applied{place}")
        self.step = last.step - 1
        self.last = last


def train(
    model: nn.Module,
    optimizer: Stepper,
    *,
    start: int,
    steps: int,
    batches: Callable[[int], Sequence[Micro]],
    count: Callable[[Micro], int],
    loss: Callable[[nn.Module, Micro], Loss],
    learning_rate: Callable[[int], float],
    clip: float,
    parallel: Parallel = Parallel(),  # noqa: B008 - a frozen value
    bad_steps: int = 1,
    bad: int = 0,
    rows: Callable[[Micro], str] | None = None,
    actions: Sequence[tuple[int, Callable[[Progress], None]]] = (),
) -> None:
    """Make steps `start` .. `steps - 1`. A step whose loss or gradient is not finite changes nothing.

    Args:
        model: changed in place.
        optimizer: over the model's parameters.
        start: steps already made.
        steps: where to end.
        batches: the micro-batches this rank computes at a step, a function of the step alone; as many on every rank.
        count: how many items a micro-batch's loss will sum, known before the forward pass.
        loss: the sum and count of one micro-batch.
        learning_rate: of a step.
        clip: largest global gradient norm.
        parallel: this rank among the others.
        bad_steps: so many steps in a row that are not finite end the training.
        bad: how many of them came just before `start`.
        rows: what a micro-batch is made of, in words; if given, the first module that was not finite is looked for.
        actions: (every, action) pairs; the action is called after each `every` steps, and after every bad one.

    Raises:
        Diverged: `bad_steps` steps in a row were not finite.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.train()
    for step in range(start, steps):
        rate = learning_rate(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        micro_batches = batches(step)
        asked = int(parallel.sum(sum(count(micro) for micro in micro_batches)))
        totals: list[Tensor] = []
        for number, micro in enumerate(micro_batches, 1):
            with gradients_travel(model, number == len(micro_batches)):
                part = loss(model, micro)
                # Ranks average their gradients: times R, with one division by the global count, is the whole mean.
                (part.total * parallel.world / max(asked, 1)).backward()
            totals.append(part.total.detach())
        norm = clip_gradients(parameters, clip)
        # Read only now: asked for earlier, a device would have to be waited for at every micro-batch.
        mean = parallel.sum(sum(float(total) for total in totals)) / max(asked, 1)
        culprit = None
        if math.isfinite(mean) and math.isfinite(norm):
            optimizer.step()
            bad = 0
        else:
            bad += 1
            if rows is not None:
                culprit = first(parallel.gather(find(model, micro_batches, loss, rows, parallel.rank)))
        optimizer.zero_grad(set_to_none=True)
        progress = Progress(step + 1, mean, asked, rate, norm, bad, culprit)
        for every_steps, action in actions:
            if progress.step % every_steps == 0 or bad:
                action(progress)
        if bad >= bad_steps:
            raise Diverged(progress)
