"""One update is the same for any division, for every objective.

The rows hold documents of different lengths, specials and padding, and some are asked more than others.
"""

from __future__ import annotations

import pytest
from torch import Tensor

from antiphon.model import build
from antiphon.model.attention import Kernel
from antiphon.model.loss import Learner
from antiphon.model.presets import Model
from antiphon.pretrain.objective import IGNORE, LMBatch
from antiphon.pretrain.pieces import pieces
from antiphon.train.loop import Progress, train
from antiphon.train.optimizer import adamw
from antiphon.train.parallel import Parallel
from tests import tiny
from tests.pretrain.asking import EVERY, MIXTURES, VOCABULARY, objective, packed
from tests.pretrain.learning import loss

ROWS = 7


def network() -> build.LanguageModel:
    made = build.build(Model.read(tiny.MODEL), VOCABULARY.size, 0)
    build.use_kernel(made, Kernel.SDPA)
    return made


def update(parts: list[LMBatch], rows: int) -> tuple[list[Tensor], Progress]:
    """The weights after one step in micro-batches of so many rows, and what is told of it."""
    learner = Learner(network())
    machine = tiny.MACHINE.model_copy(update={"micro_batch_tokens": rows * parts[0].inputs.shape[1]})
    told: list[Progress] = []
    train(
        learner,
        adamw(learner, weight_decay=0.1, betas=(0.9, 0.95), epsilon=1e-5),
        start=0,
        steps=1,
        batches=lambda step: pieces(parts, machine, Parallel()),
        count=lambda piece: piece.count,
        loss=lambda learner, piece: loss(learner, piece.batch),
        learning_rate=lambda step: 1e-3,
        clip=1.0,
        actions=[(1, told.append)],
    )
    return [parameter.detach() for parameter in learner.parameters()], told[0]


@pytest.mark.parametrize("notation", EVERY + MIXTURES)
def test_one_update_is_the_same_for_any_division(notation: str) -> None:
    parts = objective(notation, 0.5)(packed(ROWS), VOCABULARY, 0, 1)
    whole, told = update(parts, 0)
    counts = {int((row != IGNORE).sum()) for part in parts for row in part.labels}
    assert len(counts) > 1 or "clm" in notation  # a mean of means would differ
    for rows in (1, 2, 3, 5):
        divided, other = update(parts, rows)
        assert max(float((one - two).abs().max()) for one, two in zip(whole, divided, strict=True)) < 1e-6
        assert other.count == told.count == sum(part.count for part in parts)
        assert other.loss == pytest.approx(told.loss, rel=1e-6)
        assert other.gradient_norm == pytest.approx(told.gradient_norm, rel=1e-5)
