"""Rules that hold for every objective: who is asked, what is shown, what it depends on, what it costs."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest
import torch

from antiphon.data.batches import PADDING
from antiphon.model import build
from antiphon.model.attention import Attention
from antiphon.model.loss import Learner
from antiphon.model.presets import Model
from antiphon.pretrain.notation import OBJECTIVES
from antiphon.pretrain.objective import BIDIRECTIONAL, CAUSAL, IGNORE, PREFIX, Vocabulary
from antiphon.pretrain.schedule import Schedule
from tests import tiny
from tests.pretrain.asking import EVERY, MIXTURES, VOCABULARY, answered, askable, moved, objective, packed

STEPS = range(8)
EVERY_ONE = pytest.mark.parametrize("notation", EVERY)


def test_no_objective_is_left_out() -> None:
    assert {notation.partition("(")[0] for notation in EVERY + MIXTURES} == {kind.name for kind in OBJECTIVES}


@EVERY_ONE
def test_labels_answer_logits_and_stay_within_a_document(notation: str) -> None:
    batch = packed()
    for step in STEPS:
        (part,) = objective(notation)(batch, VOCABULARY, 0, step)
        asked = answered(batch, part, moved(notation))
        assert part.count == asked.sum() > 0
        assert np.array_equal(batch.tokens[asked], part.labels[part.labels != IGNORE])
        assert not asked[batch.documents == PADDING].any()
        assert not (part.labels[batch.documents == PADDING] != IGNORE).any()
        if moved(notation):
            # The one who answers stands just before, in the same document.
            assert not asked[:, 0].any()
            assert (batch.documents[:, 1:] == batch.documents[:, :-1])[asked[:, 1:]].all()


@EVERY_ONE
def test_nothing_else_is_changed(notation: str) -> None:
    batch = packed()
    before = [array.copy() for array in (batch.tokens, batch.documents, batch.positions)]
    (part,) = objective(notation)(batch, VOCABULARY, 0, 3)
    assert all(
        np.array_equal(one, other)
        for one, other in zip(before, (batch.tokens, batch.documents, batch.positions), strict=True)
    )
    untouched = ~answered(batch, part, moved(notation))
    assert np.array_equal(part.inputs[untouched], batch.tokens[untouched])
    assert np.array_equal(part.documents, batch.documents)
    assert np.array_equal(part.positions, batch.positions)
    assert part.inputs.dtype == part.labels.dtype == np.int64
    assert (part.opened is not None) == (part.attention == PREFIX)


@EVERY_ONE
def test_who_reads_both_ways_is_asked_for_no_special_and_shown_none_but_the_mask(notation: str) -> None:
    batch = packed()
    for step in STEPS:
        (part,) = objective(notation)(batch, VOCABULARY, 0, step)
        asked = answered(batch, part, moved(notation))
        if part.attention != BIDIRECTIONAL:
            assert np.array_equal(part.inputs, batch.tokens)
            continue
        assert not (asked & ~askable(batch)).any()
        shown = part.inputs[asked]
        assert not np.isin(shown[shown != VOCABULARY.mask], VOCABULARY.specials).any()
        if "80/10/10" not in notation:
            assert (shown == VOCABULARY.mask).all()


@EVERY_ONE
def test_no_answer_can_be_seen(notation: str) -> None:
    batch = packed()
    (part,) = objective(notation)(batch, VOCABULARY, 0, 1)
    asked = answered(batch, part, moved(notation))
    if part.attention == BIDIRECTIONAL:
        # A token that is shown as itself is asked whether it is right; of the others none is visible.
        kept = part.inputs[asked] == batch.tokens[asked]
        assert kept.mean() < (0.2 if "80/10/10" in notation else 1e-9)
    else:
        # Who answers stands before the answer, which is not open to those before it.
        assert moved(notation)
        assert part.attention == CAUSAL or (part.opened is not None and not part.opened[asked].any())


@EVERY_ONE
def test_masks_are_a_function_of_seed_and_step_whatever_came_before(notation: str) -> None:
    batch = packed(rows=8)
    ask = objective(notation)
    drawn = {}
    for seed in (0, 1):
        for step in (0, 1, 7):
            (part,) = ask(batch, VOCABULARY, seed, step)
            drawn[seed, step] = part.inputs.tobytes() + part.labels.tobytes()
    (again,) = objective(notation)(batch, VOCABULARY, 1, 7)
    assert again.inputs.tobytes() + again.labels.tobytes() == drawn[1, 7]
    assert len(set(drawn.values())) == (1 if notation == "clm" else 6)


@EVERY_ONE
def test_equal_rows_of_a_batch_get_different_masks(notation: str) -> None:
    one = packed(rows=1)
    same = dataclasses.replace(
        one, **{name: getattr(one, name).repeat(20, 0) for name in ("tokens", "documents", "positions")}
    )
    (part,) = objective(notation)(same, VOCABULARY, 0, 0)
    different = len({row.tobytes() for row in part.labels})
    assert different == 1 if notation == "clm" else different > 15


@EVERY_ONE
def test_a_row_does_not_depend_on_what_other_rows_hold(notation: str) -> None:
    batch = packed(rows=4)
    other = tiny.token_batch([[30, 30], [64], [5, 5], [9, 40]], 64)
    mixed = dataclasses.replace(
        batch,
        **{
            name: np.concatenate([getattr(other, name)[:3], getattr(batch, name)[3:]])
            for name in ("tokens", "documents", "positions")
        },
    )
    (part,) = objective(notation)(batch, VOCABULARY, 0, 0)
    (found,) = objective(notation)(mixed, VOCABULARY, 0, 0)
    assert np.array_equal(part.labels[3], found.labels[3])
    assert np.array_equal(part.inputs[3], found.inputs[3])


@pytest.mark.parametrize("notation", EVERY + MIXTURES)
def test_the_asked_share_is_what_is_asked(notation: str) -> None:
    # One document a row and no specials: the share is of all tokens, the few at borders aside.
    batch = tiny.token_batch([[256]] * 32, 256)
    steps = 60
    count = sum(
        part.count
        for step in range(steps)
        for part in objective(notation, (step + 0.5) / steps)(batch, VOCABULARY, 0, step)
    )
    share = Schedule.parse(notation).phases[0].objective.asked_share
    assert count / (steps * batch.tokens.size) == pytest.approx(share, abs=0.015)


@EVERY_ONE
def test_token_0_is_a_token_like_any_other(notation: str) -> None:
    # Where 0 is no special it is asked, as the only label here, and it counts in the loss.
    batch = tiny.token_batch([[32]] * 4, 32)
    zeros = dataclasses.replace(batch, tokens=np.zeros_like(batch.tokens))
    vocabulary = Vocabulary(100, 3, (1, 2, 3), VOCABULARY.encoder)
    (part,) = objective(notation)(zeros, vocabulary, 0, 0)
    assert part.count == (part.labels == 0).sum() > 0
    network = build.build(Model.read(tiny.MODEL), 100, 0)
    inputs, labels, documents, positions = (
        torch.from_numpy(array) for array in (part.inputs, part.labels, part.documents, part.positions)
    )
    opened = None if part.opened is None else torch.from_numpy(part.opened)
    total = Learner(network)(inputs, labels, documents, positions, Attention(part.attention), opened)
    assert float(total.detach()) / part.count == pytest.approx(np.log(100), rel=0.2)


@pytest.mark.parametrize("notation", EVERY + MIXTURES)
def test_notation_is_canonical(notation: str) -> None:
    assert str(Schedule.parse(notation)) == notation


@pytest.mark.parametrize(
    ("notation", "digest"),
    [
        ("clm", "2b6804eaa890118e"),
        ("mlm(0.4)", "4f135db80e4364cf"),
        ("mlm(0.15, 80/10/10)", "8387ff1436663049"),
        ("mntp(0.3 -> 0.15)", "96463f365a18a6e3"),
        ("mix(clm: 1, mlm(0.4): 2)", "3470c284339d5ca6"),
    ],
)
def test_the_masks_of_runs_made_long_ago_have_not_changed(notation: str, digest: str) -> None:
    batch = tiny.token_batch([[24], [10, 14], [3, 2, 5], [20]], 24)
    found = hashlib.sha256()
    for step in (0, 5):
        shown = dataclasses.replace(batch, first_row=4 * step)
        for part in objective(notation, 0.5)(shown, VOCABULARY, 7, step):
            found.update(part.inputs.tobytes() + part.labels.tobytes())
    assert found.hexdigest()[:16] == digest
