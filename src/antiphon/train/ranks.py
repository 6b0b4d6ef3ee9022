"""This process among those that torchrun started, on one machine or on many."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as distributed
from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.rendezvous import rendezvous

from antiphon.config import UserError
from antiphon.machine import Machine
from antiphon.train.parallel import Parallel, device

LONGEST_WAIT = datetime.timedelta(minutes=15)
"""How long a rank waits for the others: longer than the first one takes to write a state."""


SECONDS_TO_TELL = 1.0
"""How long a rank that fails after another one stays, so that the launcher does not end that one before it has told."""

NEEDED = ("RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Ranks that know of each other, before anything is exchanged.

    Attributes:
        rank, world: as in Parallel.
        store: a few words that all of them read; None for one alone.
    """

    rank: int = 0
    world: int = 1
    store: Store | None = None


@contextlib.contextmanager
def met() -> Iterator[Meeting]:
    """Meet the other ranks for the length of a block; alone, when no launcher says that there are others.

    Reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun and other launchers set them.

    When a rank fails, its error leaves the block there and nowhere else: the others, who have the same error or fail
    because it is gone, end with exit code 1 and no word. Whoever started the ranks ends those that still wait, as
    torchrun does.

    Raises:
        UserError: WORLD_SIZE is set, and not all that belongs to it.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Meeting()
        return
    if unset := [name for name in NEEDED if name not in os.environ]:
        raise UserError(
            f"WORLD_SIZE says that this is one of {world} processes, but {', '.join(unset)} is not set. "
            "Start the processes with torchrun, or unset WORLD_SIZE for one process."
        )
    rank = int(os.environ["RANK"])
    # A store of our own beside the ranks' exchange: it can still be asked when that is broken.
    store, _, _ = next(rendezvous("env://", rank, world, timeout=LONGEST_WAIT))
    try:
        yield Meeting(rank, world, store)
    except Exception:
        if _first_to_fail(store):
            raise
        time.sleep(SECONDS_TO_TELL)
        raise SystemExit(1) from None


@contextlib.contextmanager
def joined(machine: Machine, meeting: Meeting) -> Iterator[Parallel]:
    """Exchange with the ranks of a meeting for the length of a block.

    Numbers travel over gloo, tensors on CUDA over NCCL, and each local rank (LOCAL_RANK) has a device of its own.

    Raises:
        UserError: there are more local ranks than devices.
    """
    if meeting.store is None:
        yield Parallel()
        return
    distributed.init_process_group(
        _own_device(machine, int(os.environ.get("LOCAL_RANK", "0"))),
        store=meeting.store,
        rank=meeting.rank,
        world_size=meeting.world,
        timeout=LONGEST_WAIT,
    )
    yield Parallel(meeting.rank, meeting.world)
    # Not after an error: it would wait for ranks that are gone.
    distributed.destroy_process_group()


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


def _first_to_fail(store: Store) -> bool:
    try:
        return store.add("antiphon: failed", 1) == 1
    except RuntimeError:
        return False  # the store is gone: so is whoever kept it
