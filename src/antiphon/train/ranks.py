"""This process among those that torchrun started, on one machine or on many."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator

import torch
import torch.distributed as distributed
from torch.distributed.rendezvous import rendezvous

from antiphon.config import UserError
from antiphon.machine import Machine
from antiphon.train.parallel import Parallel, device

LONGEST_WAIT = datetime.timedelta(minutes=15)
"""How long a rank waits for the others: longer than the first one takes to write a state."""


@contextlib.contextmanager
def joined(machine: Machine) -> Iterator[Parallel]:
    """Meet the other ranks for the length of a block; alone, when no launcher says that there are others.

    Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun and other launchers set them. Numbers
    travel over gloo, tensors on CUDA over NCCL, and each local rank has a device of its own.

    When a rank fails, its error leaves the block there and nowhere else: the others, who fail because it is gone, end
    with exit code 1 and no word. Whoever started the ranks ends those that still wait, as torchrun does.

    Raises:
        UserError: there are more local ranks than devices.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Parallel()
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    # A store of our own beside the ranks' exchange: it can still be asked when that is broken.
    store, _, _ = next(rendezvous("env://", rank, world, timeout=LONGEST_WAIT))
    try:
        backend = _own_device(machine, local)
        distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=LONGEST_WAIT)
        yield Parallel(rank, world)
        distributed.destroy_process_group()
    except Exception:
        # Not the group's end: it would wait for ranks that are gone.
        if _first_to_fail(store):
            raise
        raise SystemExit(1) from None


def _own_device(machine: Machine, local: int) -> str:
    """Make this rank's device the current one; returns the backends for it."""
    if device(machine).type != "cuda":
        return "gloo"
    if local >= torch.cuda.device_count():
        raise UserError(
            f"this machine has {torch.cuda.device_count()} CUDA devices, and rank {local} of it (counted from 0) has "
            "none. Start as many processes as there are devices, or set machine.device to 'cpu'."
        )
    torch.cuda.set_device(local)
    return "cpu:gloo,cuda:nccl"


def _first_to_fail(store: distributed.Store) -> bool:  # pyright: ignore[reportPrivateImportUsage]
    try:
        return store.add("antiphon: failed", 1) == 1
    except RuntimeError:
        return False  # the store is gone: so is whoever kept it
