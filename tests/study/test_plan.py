"""A study is planned as a tree in which no stretch of training stands twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.config import UserError
from antiphon.data.supply import Supply
from antiphon.study.plan import Plan, plan, tree
from antiphon.study.study import Study

SUPPLY = Supply(slots=100_032, tokens=100_032, words=50_016)
RATE = {"warmup": "4 steps", "decay": "10 steps"}


def study(arms: dict[str, str], changes: dict[str, Any] | None = None) -> Study:
    """A study of 40 steps a run."""
    values: dict[str, Any] = {
        "name": "tiny",
        "baseline": next(iter(arms)),
        "pretrain": {"budget": "40 steps", "batch": {"rows": 8, "length": 64}, "learning_rate": RATE},
        "axes": {"schedule": arms},
    }
    return Study.read(values | (changes or {}))


def planned(arms: dict[str, str], changes: dict[str, Any] | None = None) -> Plan:
    found = study(arms, changes)
    return plan(found, "corpus", 300, SUPPLY, {task: f"{task} 1" for task in found.finetune.tasks})


def stretches(found: Plan) -> list[tuple[int, int, tuple[str, ...]]]:
    return [(segment.start, segment.stop, tuple(arm for arm, _ in segment.users)) for segment in found.segments]


ARMS = {"clm": "clm", "mlm": "mlm(0.4)", "both": "25% clm > 75% mlm(0.4)"}


def test_a_common_beginning_is_one_segment() -> None:
    found = planned(ARMS)
    assert stretches(found) == [
        (0, 10, ("clm", "both")),
        (10, 40, ("clm",)),
        (0, 40, ("mlm",)),
        (10, 40, ("both",)),
    ]
    assert found.tokens_alone == 3 * 40 * 512
    assert found.tokens_shared == 110 * 512


def test_a_reading_cuts_and_is_named_by_its_state() -> None:
    found = planned(ARMS, {"readings": ["10%", "100%"]})
    assert stretches(found)[:3] == [(0, 4, ("clm", "both")), (4, 10, ("clm", "both")), (10, 40, ("clm",))]
    assert [(reading.arm, reading.label, reading.step, reading.tokens) for reading in found.readings] == [
        ("clm", "10%", 4, 2048),
        ("clm", "100%", 40, 20480),
        ("mlm", "10%", 4, 2048),
        ("mlm", "100%", 40, 20480),
        ("both", "10%", 4, 2048),
        ("both", "100%", 40, 20480),
    ]
    by_name = {(reading.arm, reading.label): reading.state for reading in found.readings}
    assert by_name["clm", "10%"] == by_name["both", "10%"]
    assert len(set(by_name.values())) == 5


def test_a_reading_that_rounds_to_nothing_is_the_first_step() -> None:
    found = planned({"clm": "clm"}, {"readings": ["0.1%", "100%"]})
    assert [reading.step for reading in found.readings] == [1, 40]


def test_seeds_share_nothing() -> None:
    found = planned(ARMS, {"axes": {"schedule": ARMS, "seed": [0, 1]}})
    assert len(found.segments) == 8
    assert all(len({seed for _, seed in segment.users}) == 1 for segment in found.segments)


def test_longer_budgets_grow_from_the_same_trunk() -> None:
    arms = {"short": "20 steps clm", "long": "40 steps clm", "longest": "60 steps clm"}
    found = planned(arms, {"pretrain": {"batch": {"rows": 8, "length": 64}, "learning_rate": RATE}})
    # Each is stable until 10 steps before its end.
    trunk = [segment for segment in found.segments if len(segment.users) > 1]
    assert [(segment.start, segment.stop, len(segment.users)) for segment in trunk] == [(0, 11, 3), (11, 31, 2)]


def test_equal_arms_are_trained_once() -> None:
    found = planned({"one": "clm", "other": "100% clm"})
    assert stretches(found) == [(0, 40, ("one", "other"))]


PHASES = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from(["clm", "mlm(0.4)", "mlm(0.2 -> 0.4)"])), min_size=1, max_size=4
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(PHASES, min_size=1, max_size=5),
    st.lists(st.integers(1, 99), max_size=3, unique=True),
    st.sampled_from(["constant", "wsd"]),
)
def test_any_study_is_planned_without_loss_or_repetition(
    arms: list[list[tuple[int, str]]], readings: list[int], shape: str
) -> None:
    schedules = {
        f"arm{number}": " > ".join(f"{length} steps {name}" for length, name in phases)
        for number, phases in enumerate(arms)
    }
    pretrain = {
        "batch": {"rows": 8, "length": 64},
        "learning_rate": {"shape": shape, "warmup": "1 steps", "decay": "10%"},
    }
    try:
        found = planned(
            schedules, {"pretrain": pretrain, "readings": [f"{value}%" for value in sorted(readings)] + ["100%"]}
        )
    except UserError as error:
        assert "longer than the curve" in str(error)  # noqa: PT017 - a run of one step has no room for a decay
        return
    targets = [segment.target for segment in found.segments]
    assert len(set(targets)) == len(targets)
    for key, course in found.courses.items():
        path = found.path(key)
        # The segments of a run follow each other without a gap, from nothing to its end ...
        assert [segment.start for segment in path] == [0, *(segment.stop for segment in path[:-1])]
        assert path[-1].stop == course.steps
        assert [segment.origin for segment in path] == ["", *(segment.target for segment in path[:-1])]
        # ... and each ends in the state that this run has there, whoever it was planned as.
        assert all(segment.target == course.identity(segment.stop) for segment in path)
    # Parents come before children.
    for number, segment in enumerate(found.segments):
        assert segment.origin in ("", *targets[:number])
    # No step is trained twice: a step of a run is told by the state it leads to.
    steps = [
        found.courses[segment.run].identity(step)
        for segment in found.segments
        for step in range(segment.start + 1, segment.stop + 1)
    ]
    assert len(set(steps)) == len(steps)
    assert {reading.state for reading in found.readings} <= set(targets)
    assert found.tokens_shared == len(steps) * 512 <= found.tokens_alone


# Fine-tunings

TASKS = {"tasks": ["pocket-code", "pocket-library"], "learning_rates": [1e-4, 1e-3], "seeds": [0, 1, 2]}


def test_readings_may_be_amounts_of_their_own() -> None:
    found = planned({"clm": "clm"}, {"readings": ["3 steps", "2560 words", "50%", "100%"]})
    assert [(reading.label, reading.step) for reading in found.readings] == [
        ("3 steps", 3),
        ("2.56k words", 10),
        ("50%", 20),
        ("100%", 40),
    ]
    with pytest.raises(UserError, match=r"axes\.schedule\.clm: the run is over after 40 steps, before 1M words"):
        planned({"clm": "clm"}, {"readings": ["1M words", "100%"]})


def test_babylm_readings_are_the_named_word_counts_up_to_the_end() -> None:
    run = {"budget": "100M words", "batch": {"rows": 1024, "length": 256}, "learning_rate": RATE}
    found = planned({"mlm": "mlm(0.3)"}, {"readings": "babylm", "pretrain": run})
    counts = [*range(1, 11), *range(20, 100, 10)]
    assert [reading.label for reading in found.readings] == [*(f"{count}M words" for count in counts), "100%"]
    words = [found.courses["mlm", 0].words(reading.step) for reading in found.readings]
    assert words == pytest.approx([count * 1e6 for count in [*counts, 100]], abs=1024 * 256 / 2)


def test_a_state_is_fine_tuned_once_though_two_runs_share_it() -> None:
    found = planned(ARMS, {"readings": ["10%", "100%"], "finetune": TASKS})
    states = {reading.state for reading in found.readings}
    assert len(found.scorings) == len(states) * 2 * 2 * 3 == 60
    assert len({item.job for item in found.scorings}) == 60


def test_a_fine_tuning_is_named_by_all_that_changes_its_scores() -> None:
    base = study({"clm": "clm"}, {"finetune": TASKS})

    def ids(found: Study, data: str) -> set[str]:
        return {item.job for item in plan(found, "corpus", 300, SUPPLY, dict.fromkeys(TASKS["tasks"], data)).scorings}

    same = ids(base, "1")
    assert ids(study({"clm": "clm"}, {"finetune": TASKS, "question": "Why?"}), "1") == same
    assert ids(base, "2").isdisjoint(same)
    for change in ({"steps": 7}, {"batch": 4}, {"attention": "causal"}, {"pooling": "last"}, {"weight_decay": 0.5}):
        assert ids(study({"clm": "clm"}, {"finetune": TASKS | change}), "1").isdisjoint(same)


# What is shown


def test_the_tree_shows_what_is_trained_once() -> None:
    text = tree(planned(ARMS, {"readings": ["10%", "100%"], "axes": {"schedule": ARMS, "seed": [0, 1]}}))
    assert text.splitlines() == [
        "seed 0, 1 (a tree each)",
        "├─ steps 0-4 clm: clm, both  [scored at 10%]",
        "│  └─ steps 4-10 clm: clm, both",
        "│     ├─ steps 10-40 clm: clm  [scored at 100%]",
        "│     └─ steps 10-40 mlm(0.4): both  [scored at 100%]",
        "└─ steps 0-4 mlm(0.4): mlm  [scored at 10%]",
        "   └─ steps 4-40 mlm(0.4): mlm  [scored at 100%]",
        "",
        text.splitlines()[-2],
        "10 checkpoints scored in 0 fine-tunings",
    ]
    assert "6 runs, 12 segments: 0.11M tokens trained instead of 0.12M (8% saved by sharing)" in text


def test_the_cost_is_that_of_what_is_trained() -> None:
    alone = planned({"mlm": "mlm(0.4)"})
    shared = planned(ARMS)
    masked = next(segment for segment in shared.segments if segment.run[0] == "mlm")
    assert masked.flops == alone.flops
    causal = planned({"clm": "clm"})
    assert causal.flops > alone.flops  # all tokens get logits
    assert shared.flops < causal.flops + alone.flops + planned({"both": ARMS["both"]}).flops


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ({"tiny": "1% clm > 99% mlm(0.4)"}, "axes.schedule.tiny: phase '1% clm' of .* is 0.4 steps long"),
        ({"odd": "2 steps clm"}, "both fix the length"),
    ],
)
def test_a_schedule_that_does_not_resolve_is_said(arms: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        planned(arms)


def test_an_epoch_shows_every_row() -> None:
    # 100,000 tokens in rows of 64 are 1,563 rows, the last one shorter.
    found = planned({"clm": "2 epochs clm"}, {"pretrain": {"batch": {"rows": 8, "length": 64}}})
    assert found.courses["clm", 0].steps == round(2 * 1563 / 8)
