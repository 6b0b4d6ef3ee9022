"""A network learns one batch by heart under every objective, and what it then says is the text.

Its loss alone would prove little, since any labels can be learnt by heart: so its answers are held against the tokens.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from antiphon.model import build
from antiphon.model.attention import Kernel
from antiphon.model.loss import Learner
from antiphon.model.presets import Model
from antiphon.pretrain import causal
from antiphon.pretrain.objective import IGNORE, LMBatch, moved_left
from antiphon.train.loop import Progress, train
from antiphon.train.optimizer import adamw
from tests import tiny
from tests.pretrain.asking import EVERY, VOCABULARY, moved, objective
from tests.pretrain.learning import arguments, loss

# No two rows are alike, and no two documents begin alike: the first token of each tells them apart.
BATCH = tiny.token_batch([[14, 18], [32], [20, 12], [17, 14]], 32)
STEPS = 40
MODEL = Model.read({**tiny.MODEL, "layers": 1, "width": 128, "ffn": 256})


def learn(questions: list[list[LMBatch]]) -> tuple[build.LanguageModel, list[float]]:
    """A network after 40 steps on each of some questions, which come in turn; and the loss of each step."""
    learner = Learner(build.build(MODEL, VOCABULARY.size, 0))
    build.use_kernel(learner.network, Kernel.SDPA)
    told: list[Progress] = []
    train(
        learner,
        adamw(learner, weight_decay=0.0, betas=(0.9, 0.95), epsilon=1e-8),
        start=0,
        steps=STEPS * len(questions),
        batches=lambda step: questions[step % len(questions)],
        count=lambda micro: micro.count,
        loss=loss,
        learning_rate=lambda step: 5e-3 * min(1.0, (step + 1) / 5),
        clip=1.0,
        actions=[(1, told.append)],
    )
    return learner.network, [progress.loss for progress in told]


def question(notation: str) -> LMBatch:
    """The first one that leaves in each document enough to tell its places apart by."""
    for step in range(100):
        (part,) = objective(notation, 0.5)(BATCH, VOCABULARY, 0, step)
        left = [
            shown[documents == number].mean()
            for shown, documents in zip(part.inputs != VOCABULARY.mask, BATCH.documents, strict=True)
            for number in range(documents.max() + 1)
        ]
        if min(left) >= 0.4:
            return part
    raise AssertionError("none leaves enough")


def right(network: build.LanguageModel, part: LMBatch, ahead: bool) -> float:
    """The share of the asked places whose most likely answer is the token of the text at this place, or the next."""
    with torch.no_grad():
        inputs, _, documents, positions, attention, opened = arguments(part)
        states = build.encode(network, inputs, documents, positions, attention, opened)
        said = build.logits(network, states.flatten(0, 1)).argmax(-1).view(part.inputs.shape).numpy()
    rows = {
        (documents.tobytes(), positions.tobytes()): tokens
        for documents, positions, tokens in zip(BATCH.documents, BATCH.positions, BATCH.tokens, strict=True)
    }
    places = zip(part.documents, part.positions, strict=True)
    text = np.stack([rows[documents.tobytes(), positions.tobytes()] for documents, positions in places])
    true = np.roll(text, -1, axis=1) if ahead else text
    return float((said == true)[part.labels != IGNORE].mean())


@pytest.mark.parametrize("notation", EVERY)
def test_forty_steps_on_one_batch_learn_it_by_heart(notation: str) -> None:
    part = question(notation)
    network, losses = learn([[part]])
    assert losses[0] == pytest.approx(np.log(VOCABULARY.size), abs=0.4)  # at first nothing is known
    assert losses[-1] < 0.03 * losses[0]
    assert right(network, part, moved(notation)) == 1.0


@pytest.mark.parametrize("notation", ["mix(clm: 1, mlm(0.3): 1)", "mix(clm: 1, mntp(0.3): 1) per batch"])
def test_two_objectives_are_learnt_by_heart_by_one_network(notation: str) -> None:
    turns = 2 if "per batch" in notation else 1
    questions = [objective(notation)(BATCH, VOCABULARY, 0, turn) for turn in range(turns)]
    network, losses = learn(questions)
    assert max(losses[-turns:]) < 0.03 * losses[0]
    parts = [part for each in questions for part in each]
    assert {part.attention for part in parts} == {"causal", "bidirectional"}
    for part in parts:
        assert right(network, part, "mntp" in notation or part.attention == "causal") == 1.0


def test_labels_that_answer_the_wrong_place_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    # They are learnt as well as the right ones: the loss does not tell.
    monkeypatch.setattr(
        causal, "moved_left", lambda tokens, documents: moved_left(moved_left(tokens, documents), documents)
    )
    part = question("clm")
    network, losses = learn([[part]])
    assert losses[-1] < 0.03 * losses[0]
    assert right(network, part, moved("clm")) < 0.1
