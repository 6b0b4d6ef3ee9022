"""Rules that hold for every kind of schedule and every objective in it: pure, resumed and shared to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.data.batches import Batches
from antiphon.data.layout import sources
from antiphon.data.prepare import Prepared, prepare
from antiphon.data.tokenizer import Tokenizer
from antiphon.pretrain.config import Course
from antiphon.pretrain.objective import Vocabulary
from antiphon.pretrain.run import Interrupted
from tests import tiny
from tests.pretrain.asking import EVERY, MIXTURES
from tests.pretrain.kinds import KINDS, course
from tests.pretrain.states import states_differ

ALL = EVERY + MIXTURES
# Each kind trains with two of the objectives, and each objective in one of the kinds.
TRAINED = {name: (ALL[2 * number], ALL[(2 * number + 1) % len(ALL)]) for number, name in enumerate(KINDS)}
EVERY_KIND = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(scope="module")
def short(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A text that is shown after two steps and a quarter of 4 rows of 32 tokens."""
    space = tmp_path_factory.mktemp("short")
    text = tiny.write_text(space / "short.txt", tiny.texts(6, 3))
    folder = space / tiny.CORPUS
    tokenizer = Tokenizer(path=str(prepared.folder / "tokenizer"))
    prepare((tiny.corpus(text, validation_share=0.0),), tokenizer, folder, space, 1, lambda facts: None)
    return Prepared.open(folder)


def trained(name: str, short: Prepared) -> Course:
    return course(KINDS[name], short, *TRAINED[name])


@pytest.fixture(scope="module")
def undisturbed(short: Prepared, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The final checkpoint of each kind, trained in one go."""
    folder = tmp_path_factory.mktemp("undisturbed")
    targets = {}
    for name in KINDS:
        segment = tiny.stretch(trained(name, short), folder, name)
        tiny.train(segment, short)
        targets[name] = segment.target
    return targets


def test_every_objective_is_trained() -> None:
    assert {notation for pair in TRAINED.values() for notation in pair} == set(ALL)


def what_is_computed(found: Course, short: Prepared, step: int) -> list[Any]:
    """All that a step is made of, from a reader of the text that has read nothing before."""
    run = found.run
    corpora = sources(short.shards["train"], run.weights, run.batch.packing, run.batch.block, lambda note: None)
    batches = Batches(corpora, run.batch.block, short.encoder.pad, run.seed)
    batch = batches.take(found.first(step), found.rows(step), found.length(step))
    parts = found.span(step).at(step)(batch, Vocabulary.of(short.encoder), run.seed, step)
    arrays = [getattr(part, name) for part in parts for name in ("inputs", "labels", "documents", "positions")]
    opened = [None if part.opened is None else part.opened.tobytes() for part in parts]
    return [found.learning_rate(step), *opened, *(array.tobytes() for array in arrays)]


@EVERY_KIND
def test_a_step_is_computed_the_same_whatever_came_before(short: Prepared, name: str) -> None:
    kind = KINDS[name]
    for one, other in zip(ALL, ALL[7:] + ALL[:7], strict=True):
        found, again = course(kind, short, one, other), course(kind, short, one, other)
        names = {"a": one, "b": other}
        assert [str(found.span(step).objective) for step in range(found.steps)] == [names[turn] for turn in kind.turns]
        assert found.supply.slots < found.first(found.steps - 1)  # the text is shown more than once
        forward = [what_is_computed(found, short, step) for step in range(found.steps)]
        backward = [what_is_computed(again, short, step) for step in reversed(range(again.steps))]
        assert forward == backward[::-1]
        shown = [found.rows(step) * found.length(step) for step in range(found.steps)]
        assert [found.first(step) for step in range(found.steps)] == [sum(shown[:step]) for step in range(found.steps)]


# 6: stop and resume


@EVERY_KIND
def test_a_run_stopped_after_every_step_is_bit_equal(
    short: Prepared, tmp_path: Path, undisturbed: dict[str, Path], name: str
) -> None:
    segment = tiny.stretch(trained(name, short), tmp_path, "halting")
    for stop in range(1, segment.stop):
        with pytest.raises(Interrupted):
            tiny.train(segment, short, interrupt_at=stop)
    tiny.train(segment, short)
    assert tiny.differing(segment.target, undisturbed[name]) == []
    assert states_differ(segment.target, undisturbed[name]) == []


# 7: shared beginnings


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if "b" in kind.turns])
def test_a_beginning_trained_as_another_run_is_the_same(
    short: Prepared, tmp_path: Path, undisturbed: dict[str, Path], name: str
) -> None:
    # The other run asks for something else from the second phase on.
    found, other = trained(name, short), course(KINDS[name], short, TRAINED[name][0], "mlm(0.7)")
    common = found.common(other)
    assert common == KINDS[name].turns.index("b")
    trunk = tiny.stretch(other, tmp_path, "trunk", 0, common)
    tiny.train(trunk, short)
    branch = tiny.stretch(found, tmp_path, "branch", common, found.steps, trunk.target)
    tiny.train(branch, short)
    assert tiny.differing(branch.target, undisturbed[name]) == []
    assert states_differ(branch.target, undisturbed[name]) == []
