"""What the machine can do: precision, device, and several processes with one model."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from antiphon.config import UserError
from antiphon.machine import Machine

Value = TypeVar("Value")


def device(machine: Machine) -> torch.device:
    """The device jobs compute on.

    Raises:
        UserError: CUDA was asked for and there is none.
    """
    available = torch.cuda.is_available()
    if machine.device == "cuda" and not available:
        raise UserError("machine.device is 'cuda', but no CUDA device is visible. Use 'cpu' or 'auto'.")
    # Which of several devices: train.ranks sets the current one.
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


def compiles(machine: Machine) -> bool:
    """Whether layers are compiled."""
    return machine.compile == "on" or (machine.compile == "auto" and device(machine).type == "cuda")


def autocast(where: torch.device, dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """Compute matrix products in `dtype`; weights stay float32. Nothing at all for float32."""
    if dtype is torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(where.type, dtype=dtype)


@dataclasses.dataclass(frozen=True)
class Parallel:
    """This process among R ranks, each of which holds a copy or a shard of the model.

    Attributes:
        rank: 0 .. world-1.
        world: R.
    """

    rank: int = 0
    world: int = 1

    def sum(self, value: float) -> float:
        """The sum of a number over all ranks, the same on every rank."""
        (total,) = self.sums(value)
        return total

    def sums(self, *values: float) -> tuple[float, ...]:
        """The sums of some numbers over all ranks, in one exchange."""
        if self.world == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(total)
        return tuple(total.tolist())

    def gather(self, value: Value) -> list[Value]:
        """The values of all ranks, in their order, on every rank."""
        if self.world == 1:
            return [value]
        values: list[Value | None] = [None] * self.world
        distributed.all_gather_object(values, value)
        return values  # pyright: ignore[reportReturnType]

    def share(self, rows: int) -> slice:
        """The contiguous part of a batch of B rows that is this rank's; parts differ by at most one row."""
        return slice(rows * self.rank // self.world, rows * (self.rank + 1) // self.world)


def divided(module: nn.Module, layers: Sequence[nn.Module], machine: Machine, ranks: Parallel) -> nn.Module:
    """The module as several processes train it; itself for one.

    The loop multiplies its loss by R, because both ways average the gradients of the ranks, so that after the division
    by the count of all ranks the gradient is that of the whole batch.

    Args:
        module: its forward pass is the whole computation, the loss included; on its device already.
        layers: parts of it that FSDP gathers one at a time.
        machine: `parallel` says whether each rank has a copy (DDP) or a shard (FSDP2) of weights and optimizer.
        ranks: this process among others.
    """
    sharded = machine.parallel == "fsdp"
    if ranks.world == 1:
        return module
    if sharded:
        for layer in layers:
            fully_shard(layer)
        fully_shard(module)  # in place
        return module
    with warnings.catch_warnings():
        # 2.13 has another word for it, which 2.11 does not know; every rank would tell its user so.
        warnings.filterwarnings("ignore", "`broadcast_buffers`", FutureWarning)
        # Buffers are constants here, and sending them would be one more thing to wait for.
        return DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)


@contextlib.contextmanager
def gradients_travel(model: nn.Module, travel: bool) -> Iterator[None]:
    """Whether the backward passes of this block send their gradients to the other ranks, or keep them for later."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(travel)
        model.set_is_last_backward(travel)
        yield
    elif isinstance(model, DistributedDataParallel) and not travel:
        with model.no_sync():
            yield
    else:
        yield


def settled(model: nn.Module) -> None:
    """After a forward pass without a backward: a sharded model lets go of what it gathered. All ranks together."""
    if isinstance(model, FSDPModule):
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def clip_gradients(parameters: Sequence[Tensor], largest: float) -> float:
    """Scale the gradients so that their global L2 norm, over parameters and shards, is at most `largest`.

    Torch's own norm adds up all squares of a tensor in float32: of an embedding on a CPU five digits are left, other
    ones for each way to shard it. Here rows are added up in float32, and the rest in float64.

    Returns:
        The norm before.
    """
    whole_or_shards = [parameter.grad for parameter in parameters if parameter.grad is not None]
    gradients = [part.to_local() if isinstance(part, DTensor) else part for part in whole_or_shards]
    squares = sum(torch.linalg.vector_norm(part, dim=-1).double().square().sum() for part in gradients)
    total = torch.as_tensor(squares, dtype=torch.float64)
    if any(isinstance(part, DTensor) for part in whole_or_shards):
        distributed.all_reduce(total)
    norm = math.sqrt(float(total))
    if norm > largest:
        for part in gradients:
            part.mul_(largest / norm)
    return norm


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, gathered from its shards. For a sharded one all ranks call this together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, model: Tensor) -> Tensor:
    """A whole tensor, divided and placed as another of the same shape is; every rank has the whole one."""
    tensor = tensor.to(model.device)
    if not isinstance(model, DTensor):
        return tensor
    return distribute_tensor(tensor, model.device_mesh, model.placements, src_data_rank=None)
