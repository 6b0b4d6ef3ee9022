"""What the machine can do: precision, device, and sums over ranks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable

import torch
import torch.distributed as distributed
from torch import Tensor

from antiphon.config import UserError
from antiphon.machine import Machine


def device(machine: Machine) -> torch.device:
    """The device jobs compute on.

    Raises:
        UserError: CUDA was asked for and there is none.
    """
    available = torch.cuda.is_available()
    if machine.device == "cuda" and not available:
        raise UserError("machine.device is 'cuda', but no CUDA device is visible. Use 'cpu' or 'auto'.")
    return torch.device("cuda" if available and machine.device != "cpu" else "cpu")


def precision(machine: Machine) -> torch.dtype:
    """The dtype of the forward pass: bfloat16 only where the processor computes it natively.

    Without native support CPU autocast is many times slower than float32, so "auto" asks the processor.
    """
    if machine.precision != "auto":
        return torch.float32 if machine.precision == "float32" else torch.bfloat16
    if device(machine).type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if native else torch.float32


def autocast(where: torch.device, dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """Compute matrix products in `dtype`; weights stay float32. Nothing at all for float32."""
    if dtype is torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(where.type, dtype=dtype)


@dataclasses.dataclass(frozen=True)
class Parallel:
    """This process among R ranks, each of which holds a copy of the model.

    Attributes:
        rank: 0 .. world-1.
        world: R.
    """

    rank: int = 0
    world: int = 1

    def sum(self, value: float) -> float:
        """The sum of a number over all ranks, the same on every rank."""
        if self.world == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(total)
        return float(total)

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Add the gradients of all ranks, in place; a rank without a gradient adds zeros."""
        if self.world == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad)

    def share(self, rows: int) -> slice:
        """The contiguous part of a batch of B rows that is this rank's; parts differ by at most one row."""
        return slice(rows * self.rank // self.world, rows * (self.rank + 1) // self.world)
