"""Where a step stopped being finite: its micro-batches are computed once more, with an ear at every module."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from antiphon.model.loss import Loss
from antiphon.train.parallel import gradients_travel

Micro = TypeVar("Micro")


@dataclasses.dataclass(frozen=True)
class Culprit:
    """The first thing that was not finite in a step.

    Attributes:
        rank: whose micro-batch it was.
        micro_batch: its number among that rank's.
        rows: what it was made of, in the words of whoever made it.
        place: the module or parameter, by its name in the model.
        what: "output", "gradient of the output" or "gradient"; "loss" when every module's output was finite.
    """

    rank: int
    micro_batch: int
    rows: str
    place: str
    what: str

    def __str__(self) -> str:
        who = f"the {self.what} of {self.place}" if self.place else f"the {self.what}"
        where = f"{self.rows}, " if self.rows else ""
        return f"{who} was not finite ({where}micro-batch {self.micro_batch} of rank {self.rank})"


def find(
    model: nn.Module,
    micro_batches: Sequence[Micro],
    loss: Callable[[nn.Module, Micro], Loss],
    rows: Callable[[Micro], str],
    rank: int,
) -> Culprit | None:
    """Compute every micro-batch again and name the first thing that is not finite; None if all of it is.

    All ranks call this together and compute all their micro-batches, found or not: a sharded model needs every rank
    for every pass. Gradients are dropped before and after.
    """
    found: Culprit | None = None
    with torch.compiler.set_stance("force_eager"):  # compiled code does not call hooks
        for number, micro in enumerate(micro_batches):
            model.zero_grad(set_to_none=True)
            # A sharded model keeps gradients that do not travel for the next pass; they must not stay here.
            with _watched(model) as seen, gradients_travel(model, isinstance(model, FSDPModule)):
                part = loss(model, micro)
                if not bool(torch.isfinite(part.total.detach())):
                    seen.append(("", "loss"))
                part.total.backward()
            seen += [(name, "gradient") for name in _infinite_gradients(model)]
            if found is None and seen:
                found = Culprit(rank, number, rows(micro), *seen[0])
    model.zero_grad(set_to_none=True)
    return found


def first(every: Sequence[Culprit | None]) -> Culprit | None:
    """The one to name of what all ranks found: a parameter's gradient may be another rank's, so it comes last."""
    found = [one for one in every if one is not None]
    return min(found, key=lambda one: one.what == "gradient", default=None)


@contextlib.contextmanager
def _watched(model: nn.Module) -> Iterator[list[tuple[str, str]]]:
    """Note, in the order of computing, every module whose output, and then its gradient, is not finite."""
    seen: list[tuple[str, str]] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def finished(module: nn.Module, inputs: Any, output: Any) -> None:
            for tensor in _tensors(output):
                if not bool(torch.isfinite(tensor.detach()).all()):
                    seen.append((name, "output"))
                if tensor.requires_grad:
                    tensor.register_hook(gradient)

        def gradient(value: Tensor) -> None:
            if not bool(torch.isfinite(value).all()):
                seen.append((name, "gradient of the output"))

        return finished

    handles = [
        module.register_forward_hook(watch(_plain(name) or type(module).__name__))
        for name, module in model.named_modules()
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _infinite_gradients(model: nn.Module) -> list[str]:
    """Names of the parameters with a gradient that is not finite, last layer first, as the backward pass goes."""
    return [
        _plain(name)
        for name, parameter in reversed(list(model.named_parameters()))
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all())
    ]


def _plain(name: str) -> str:
    """A name without what a wrapper puts in front."""
    return name.removeprefix("module.").removeprefix("module")


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, dict):
        return [tensor for value in output.values() for tensor in _tensors(value)]
    if isinstance(output, tuple | list):
        return [tensor for value in output for tensor in _tensors(value)]
    return []
