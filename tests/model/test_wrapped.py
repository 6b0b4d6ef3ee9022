"""Cross-entropy in pieces, and the last layer's own class, under DDP and FSDP2: the gradient of one process."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from antiphon.train.parallel import Parallel
from tests import ranks


@pytest.mark.parametrize("tied", [True, False])
def test_two_ranks_have_the_gradient_of_one_process(tied: bool, tmp_path: Path) -> None:
    ranks.run(_rank, tmp_path / "meeting", 2, tied)


def _rank(here: Parallel, tied: bool) -> None:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor
    from torch.nn.parallel import DistributedDataParallel

    from antiphon.model import build, cross_entropy
    from antiphon.model.attention import Attention
    from antiphon.model.loss import Learner
    from antiphon.model.presets import Model
    from tests import tiny

    cross_entropy.CPU_SCORES = 10 * 100
    single = Learner(build.build(Model.read({**tiny.MODEL, "tied": tied}), 100, 0), z_loss=1e-3)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 100, (4, 24), generator=generator)
    labels = torch.where(torch.rand(4, 24, generator=generator) < 0.4, inputs, -100)
    documents, positions = torch.zeros_like(inputs), torch.arange(24).expand(4, 24)
    replicated, sharded = DistributedDataParallel(copy.deepcopy(single)), copy.deepcopy(single)
    mesh = init_device_mesh("cpu", (2,))
    for layer in sharded.network.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    single(inputs, labels, documents, positions, Attention.BIDIRECTIONAL).backward()
    mine = slice(2 * here.rank, 2 * here.rank + 2)
    for wrapped in (replicated, sharded):
        total = wrapped(inputs[mine], labels[mine], documents[mine], positions[mine], Attention.BIDIRECTIONAL)
        # Both take the mean over ranks, where the whole is a sum.
        (2 * total).backward()
        for one, other in zip(single.parameters(), wrapped.parameters(), strict=True):
            assert one.grad is not None
            gradient = other.grad.full_tensor() if isinstance(other.grad, DTensor) else other.grad
            assert gradient is not None
            assert torch.allclose(one.grad, gradient, rtol=1e-5, atol=1e-5)
