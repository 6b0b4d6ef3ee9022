"""A segment trained by several processes that sum their gradients."""

from __future__ import annotations

import contextlib
import multiprocessing
from pathlib import Path

from antiphon.machine import Machine
from antiphon.pretrain.run import Interrupted
from antiphon.pretrain.segment import Segment
from tests import tiny


def train(
    segment: Segment, corpus: Path, meeting: Path, world: int, interrupt_at: int = 0, machine: Machine = tiny.MACHINE
) -> None:
    """Train a segment on `world` ranks over gloo.

    Args:
        segment: what to train.
        corpus: folder of its prepared corpus.
        meeting: a new file through which the ranks find each other.
        world: R.
        interrupt_at: the step after which the first rank is asked to stop; 0 never asks.
        machine: where.
    """
    context = multiprocessing.get_context("forkserver")
    # The same server that the launcher's workers come from, so that it is started once in a session.
    context.set_forkserver_preload(["antiphon.study.work"])
    processes = [
        context.Process(target=_rank, args=(segment, corpus, meeting, rank, world, interrupt_at, machine), daemon=True)
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


def _rank(
    segment: Segment, corpus: Path, meeting: Path, rank: int, world: int, interrupt_at: int, machine: Machine
) -> None:
    import torch
    import torch.distributed as distributed

    from antiphon.data.prepare import Prepared
    from antiphon.train.parallel import Parallel

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    try:
        with contextlib.suppress(Interrupted):
            tiny.train(segment, Prepared.open(corpus), machine, interrupt_at=interrupt_at, ranks=Parallel(rank, world))
    finally:
        distributed.destroy_process_group()
