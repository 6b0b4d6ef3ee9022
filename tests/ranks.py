"""Functions run by several processes that meet over gloo: one start serves many cases."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.machine import Machine
from antiphon.pretrain.run import Interrupted
from antiphon.pretrain.segment import Segment
from tests import tiny

if TYPE_CHECKING:
    from antiphon.train.parallel import Parallel


@dataclasses.dataclass(frozen=True)
class Case:
    """A segment to train.

    Attributes:
        segment: what to train.
        machine: where.
        interrupt_at: the step after which the first rank is asked to stop; 0 never asks.
    """

    segment: Segment
    machine: Machine = tiny.MACHINE
    interrupt_at: int = 0


def train(cases: Sequence[Case], corpus: Path, meeting: Path, world: int) -> None:
    """Train segments, one after the other, on `world` ranks; arguments as in `run`."""
    run(_train, meeting, world, cases, corpus)


def run(function: Callable[..., None], meeting: Path, world: int, *arguments: Any) -> None:
    """Call function(Parallel, *arguments) on every rank.

    Args:
        function: of a module that can be imported.
        meeting: a new file through which the ranks find each other.
        world: R.
        arguments: can be pickled.
    """
    context = multiprocessing.get_context("forkserver")
    # The same server that the launcher's workers come from, so that it is started once in a session.
    context.set_forkserver_preload(["antiphon.study.work"])
    processes = [
        context.Process(target=_rank, args=(function, meeting, rank, world, arguments), daemon=True)
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * world


def _rank(function: Callable[..., None], meeting: Path, rank: int, world: int, arguments: tuple[Any, ...]) -> None:
    import torch
    import torch.distributed as distributed

    from antiphon.train.parallel import Parallel

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    try:
        function(Parallel(rank, world), *arguments)
    finally:
        distributed.destroy_process_group()


def _train(ranks: Parallel, cases: Sequence[Case], corpus: Path) -> None:
    from antiphon.data.prepare import Prepared

    prepared = Prepared.open(corpus)
    for case in cases:
        with contextlib.suppress(Interrupted):
            tiny.train(case.segment, prepared, case.machine, case.interrupt_at, ranks)
