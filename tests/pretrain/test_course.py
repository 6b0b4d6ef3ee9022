"""The learning rate of every step, and the identity of every state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.config import UserError
from antiphon.data.supply import Supply
from antiphon.pretrain.amount import Amount
from antiphon.pretrain.config import Course, LearningRate, Pretrain
from antiphon.pretrain.pace import Pace
from tests import tiny
from tests.pretrain import kinds

SUPPLY = Supply(slots=5120, tokens=5120, words=2560)


def run(schedule: str, budget: str | None = "20 steps", **changes: Any) -> Pretrain:
    return Pretrain.read({"schedule": schedule, "budget": budget, **changes})


def curve(settings: dict[str, Any], steps: int) -> np.ndarray:
    """The rates of a run with 128 tokens in each step."""
    pace = Pace(SUPPLY, np.full(steps, 4), np.full(steps, 32))
    return LearningRate.read(settings).curve(pace, 0, steps)


def course(schedule: str, budget: str | None = "20 steps", data: str = "data", **changes: Any) -> Course:
    return Course(run(schedule, budget, **changes), data, SUPPLY)


def rates(found: Course) -> list[float]:
    return [found.learning_rate(step) for step in range(found.steps)]


# The learning rate


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"shape": "wsd"}, {0: 0.25, 2: 0.75, 3: 1, 4: 1, 15: 1, 16: 0.8, 18: 0.4, 19: 0.2}),
        ({"shape": "wsd", "decay_form": "sqrt"}, {3: 1, 15: 1, 16: 1 - math.sqrt(0.2), 19: 1 - math.sqrt(0.8)}),
        ({"shape": "wsd", "final": 0.1}, {0: 0.25, 15: 1, 16: 0.1 + 0.9 * 0.8, 19: 0.1 + 0.9 * 0.2}),
        ({"shape": "linear"}, {0: 0.25, 3: 1, 4: 1, 12: 0.5, 19: 1 / 16}),
        ({"shape": "cosine"}, {0: 0.25, 4: 1, 12: 0.5, 19: (1 + math.cos(math.pi * 15 / 16)) / 2}),
        ({"shape": "cosine", "final": 0.2}, {4: 1, 12: 0.6}),
        ({"shape": "constant"}, {0: 0.25, 3: 1, 10: 1, 19: 1}),
    ],
)
def test_the_curve_at_named_steps(settings: dict[str, Any], named: dict[int, float]) -> None:
    found = curve({"peak": 0.004, "warmup": "4 steps", "decay": "5 steps", **settings}, 20)
    assert len(found) == 20
    assert {step: found[step] for step in named} == pytest.approx({step: 0.004 * part for step, part in named.items()})


def test_lengths_in_percent_and_in_tokens_are_of_the_curve() -> None:
    percent = curve({"warmup": "10%", "decay": "25%"}, 200)
    steps = curve({"warmup": "2560 tokens", "decay": "50 steps"}, 200)
    assert np.array_equal(percent, steps)


@pytest.mark.parametrize("shape", ["wsd", "linear", "cosine", "constant"])
def test_no_warmup_starts_at_the_peak(shape: str) -> None:
    assert curve({"peak": 1.0, "warmup": "0.001%", "shape": shape}, 20)[0] == 1.0


@given(
    steps=st.integers(1, 300),
    warmup=st.integers(1, 100),
    decay=st.integers(1, 100),
    shape=st.sampled_from(["wsd", "linear", "cosine", "constant"]),
    form=st.sampled_from(["linear", "sqrt"]),
    final=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_a_curve_rises_then_falls_and_stays_between_its_ends(
    steps: int, warmup: int, decay: int, shape: str, form: str, final: float
) -> None:
    setting = {"peak": 1.0, "warmup": f"{warmup} steps", "decay": f"{decay} steps"}
    setting |= {"shape": shape, "decay_form": form, "final": final}
    needed = warmup + decay if shape == "wsd" else warmup
    if needed > steps:
        with pytest.raises(ValueError, match="longer than the curve"):
            curve(setting, steps)
        return
    found = curve(setting, steps)
    assert (found > 0).all()
    assert (found <= 1).all()
    assert (np.diff(found[:warmup]) > 0).all()
    assert (np.diff(found[warmup:]) <= 1e-15).all()
    assert (found[warmup:] >= final - 1e-15).all()


@pytest.mark.parametrize("shape", ["wsd", "linear", "cosine", "constant"])
@pytest.mark.parametrize("kind", kinds.KINDS.values(), ids=kinds.KINDS)
def test_one_curve_goes_on_over_the_borders_of_phases(shape: str, kind: kinds.Kind) -> None:
    setting = {"shape": shape, "warmup": "1 steps", "decay": "1 steps"}
    changes = {"batch": tiny.BATCH, **kind.changes, "learning_rate": setting}
    found = course(kind.schedule.format(a="clm", b="mlm(0.4 -> 0.2)"), kind.budget, **changes)
    assert rates(found) == rates(course("clm", f"{found.steps} steps", **changes))


@pytest.mark.parametrize("shape", ["wsd", "linear", "cosine", "constant"])
def test_a_restart_gives_every_phase_a_curve_of_its_own(shape: str) -> None:
    setting = {"shape": shape, "warmup": "2 steps", "decay": "3 steps"}
    found = rates(course("40% clm > 60% mlm(0.4)", learning_rate={**setting, "at_switch": "restart"}))
    assert found[:8] == rates(course("clm", "8 steps", learning_rate=setting))
    assert found[8:] == rates(course("clm", "12 steps", learning_rate=setting))
    assert found[8] == found[0]


def test_a_warmup_longer_than_a_restarted_phase_is_said() -> None:
    with pytest.raises(ValueError, match=r"warm-up \(4 steps\) and decay \(1\) are longer than the curve \(2 steps\)"):
        course(
            "10% clm > 90% mlm(0.4)",
            learning_rate={"warmup": "4 steps", "decay": "1 steps", "at_switch": "restart"},
        )


@pytest.mark.parametrize("form", ["linear", "sqrt"])
def test_warmup_and_decay_in_tokens_follow_a_batch_that_grows(form: str) -> None:
    # 10 steps of 128 tokens, then 10 of 256: 640 tokens are 5 early steps, 1280 are 5 late ones.
    setting = {"peak": 1.0, "decay_form": form}
    found = course(
        "clm",
        batch={"rows": "50% 4 > 8", "length": 32},
        learning_rate={**setting, "warmup": "640 tokens", "decay": "1280 tokens"},
    )
    same = course("clm", learning_rate={**setting, "warmup": "5 steps", "decay": "5 steps"})
    assert rates(found) == rates(same)


# Steps


def test_spans_rule_the_steps() -> None:
    found = course("25% clm > 75% mlm(0.4)")
    assert found.steps == 20
    assert [str(found.span(step).objective) for step in (0, 4, 5, 19)] == ["clm", "clm", "mlm(0.4)", "mlm(0.4)"]
    assert found.resets == frozenset()
    assert course("25% clm > 75% mlm(0.4)", optimizer={"at_switch": "restart"}).resets == {5}


GROWING: dict[str, Any] = {"batch": {"rows": "50% 4 -> 8 > 8", "length": "25% 16 > 25% 32 > 64"}}


def test_rows_and_their_length_follow_their_programmes() -> None:
    found = course("clm", **GROWING)
    assert [found.rows(step) for step in range(20)] == [4, 4, 5, 5, 6, 6, 6, 7, 7, 8] + [8] * 10
    assert [found.length(step) for step in range(20)] == [16] * 5 + [32] * 5 + [64] * 10
    slots = np.cumsum([0, *(found.rows(step) * found.length(step) for step in range(20))])
    assert [found.first(step) for step in range(20)] == list(slots[:20])
    assert found.tokens(20) == slots[20]
    assert found.words(20) == slots[20] / 2


@given(
    tokens=st.integers(4000, 200_000),
    rows=st.sampled_from(["4", "10% 1 -> 16 > 16", "50% 4 > 50% 2", "5 steps 1 > 9", "100% 2 -> 6"]),
    length=st.sampled_from(["32", "70% 16 > 20% 32 > 10% 64", "3 steps 8 > 16"]),
)
def test_a_budget_of_tokens_is_met_whatever_the_batch_does(tokens: int, rows: str, length: str) -> None:
    batch = {"rows": rows, "length": length}
    found = course("clm", f"{tokens} tokens", batch=batch, learning_rate={"shape": "constant", "warmup": "0"})
    largest = max(found.run.batch.rows.values) * found.run.batch.block
    assert abs(found.tokens(found.steps) - tokens) <= largest
    # As phases that fix their own length the same tokens come to the same steps.
    absolute = course(
        f"{tokens // 4} tokens clm > {tokens - tokens // 4} tokens mlm(0.3)",
        None,
        batch=batch,
        learning_rate={"shape": "constant", "warmup": "0"},
    )
    assert absolute.steps == found.steps
    assert abs(absolute.tokens(absolute.spans[0].stop) - tokens // 4) <= largest


def test_epochs_and_words_are_of_the_corpus() -> None:
    assert course("2 epochs clm > 1280 words mlm(0.3)", None, batch={"rows": 4, "length": 32}).steps == 100
    assert course("0.5 epochs clm", None, batch={"rows": 4, "length": "50% 32 > 50% 64"}).steps == 13


def test_the_step_of_an_amount() -> None:
    found = course("clm", batch={"rows": 4, "length": 32})
    amounts = ["25%", "100%", "3 steps", "640 tokens", "640 words", "0.25 epochs", "1 token"]
    assert [found.step_of(Amount.parse(text)) for text in amounts] == [5, 20, 3, 5, 10, 10, 1]
    with pytest.raises(ValueError, match=r"the run is over after 20 steps, before 1M words \(15625 steps\)"):
        found.step_of(Amount.parse("1M words"))


# Identity


BASE: dict[str, Any] = {"learning_rate": {"warmup": "2 steps", "decay": "4 steps"}}


def test_the_same_run_has_the_same_identities() -> None:
    one, other = course("25% clm > 75% mlm(0.4)", **BASE), course("25 % clm > 75% mlm(0.40)", **BASE)
    assert [one.identity(step) for step in range(21)] == [other.identity(step) for step in range(21)]
    assert len({one.identity(step) for step in range(21)}) == 21


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"model": {"layers": 3}},
        {"model": {"tied": False}},
        {"batch": {"rows": 16}},
        {"batch": {"length": 64}},
        {"batch": {"length": "50% 64 > 50% 128"}},
        {"optimizer": {"weight_decay": 0.2}},
        {"optimizer": {"clip": 0.5}},
        {"optimizer": {"decay_all": True}},
        {"learning_rate": {"peak": 2e-3, "warmup": "2 steps", "decay": "4 steps"}},
    ],
)
def test_whatever_changes_the_weights_changes_the_identity_from_the_first_step(changes: dict[str, Any]) -> None:
    one, other = course("clm", **BASE), course("clm", **(BASE | changes))
    assert one.identity(1) != other.identity(1)
    assert one.common(other) == other.common(one) == 0


def test_the_weights_of_a_mixture_are_part_of_the_identity_and_those_of_one_corpus_are_not() -> None:
    def of(*weights: int) -> str:
        corpora = [{"path": f"{number}.txt", "weight": weight} for number, weight in enumerate(weights)]
        return course("clm", corpus=corpora, **BASE).identity(1)

    assert of(1) == of(3)
    assert of(1, 1) == of(1, 1)
    assert len({of(1), of(1, 1), of(1, 2), of(2, 1)}) == 4


def test_other_data_is_another_identity() -> None:
    one, other = course("clm", **BASE), course("clm", data="other", **BASE)
    assert one.identity(0) != other.identity(0)
    assert one.common(other) == 0


def test_what_only_observes_is_not_part_of_the_identity() -> None:
    one = course("clm", **BASE)
    other = course("clm", validation={"points": 3, "rows": 8, "objectives": ["mlm(0.3)"]}, **BASE)
    assert one.identity(20) == other.identity(20)


def test_runs_share_up_to_the_step_where_they_part() -> None:
    clm = course("clm", **BASE)
    biphasic = course("25% clm > 75% mlm(0.4)", **BASE)
    masked = course("mlm(0.4)", **BASE)
    assert clm.common(biphasic) == biphasic.common(clm) == 5
    assert clm.common(masked) == 0
    assert clm.identity(5) == biphasic.identity(5)
    assert clm.identity(6) != biphasic.identity(6)
    # A longer budget shares the stable trunk, up to where the shorter run decays.
    longer = course("clm", "30 steps", **BASE)
    assert clm.common(longer) == 17
    assert clm.identity(17) == longer.identity(17)
    assert clm.identity(18) != longer.identity(18)


def test_runs_share_while_their_batches_agree() -> None:
    constant: dict[str, Any] = {"learning_rate": {"shape": "constant", "warmup": "1 steps"}}
    steady = course("clm", batch={"rows": 4, "length": 32}, **constant)
    growing = course("clm", batch={"rows": "30% 4 > 70% 8", "length": 32}, **constant)
    assert steady.common(growing) == growing.common(steady) == 6
    # Rows of another block come from another place in the text, though the first ones are as long.
    longer = course("clm", batch={"rows": 4, "length": "50% 32 > 50% 64"}, **constant)
    assert steady.common(longer) == 0


def test_a_reset_is_felt_behind_the_border_only() -> None:
    setting = {**BASE, "optimizer": {"at_switch": "restart"}}
    one = course("25% clm > 75% mlm(0.4)", **setting)
    # In clm > clm the second phase resets too: the border makes two runs differ that ask the same.
    other = course("50% clm > 50% clm", **setting)
    third = course("clm", **setting)
    assert one.common(third) == 5
    assert other.common(third) == 10


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["clm", "mlm(0.4)", "mlm(0.3 -> 0.1)"])), min_size=1, max_size=4
    )
)
def test_identities_agree_exactly_where_all_steps_agree(parts: list[tuple[int, str]]) -> None:
    steps = sum(length for length, _ in parts)
    constant: dict[str, Any] = {"learning_rate": {"shape": "constant", "warmup": "1 steps"}}
    one = course(" > ".join(f"{length} steps {name}" for length, name in parts), None, **constant)
    other = course("2 steps clm > 30 steps mlm(0.4)", None, **constant)
    common = one.common(other)
    for step in range(steps + 1):
        same = all(
            str(one.span(place).at(place)) == str(other.span(place).at(place)) for place in range(min(step, steps))
        )
        assert (one.identity(step) == other.identity(step)) == same == (step <= common)


def test_ramps_that_differ_in_the_last_digit_are_different_states() -> None:
    # The mask of a step is drawn against the ratio, so a difference however small may ask one token more.
    constant: dict[str, Any] = {"learning_rate": {"shape": "constant", "warmup": "1 steps"}}
    one = course("mlm(0.3 -> 0.15)", "1000 steps", **constant)
    other = course("mlm(0.3 -> 0.15)", "1001 steps", **constant)
    assert one.span(0).at(1) != other.span(0).at(1)
    assert one.common(other) == 1


# Bad values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schedule": "clm"}, "divides a whole; give a budget such as '400k tokens'"),
        ({"schedule": "10 steps clm", "budget": "10 steps"}, "both fix the length; drop the budget"),
        ({"schedule": "clm", "budget": "25%"}, "budget '25%' is not an amount of its own"),
        ({"schedule": "clm", "budget": "3"}, "budget '3' is not an amount of its own"),
        ({"schedule": "clm", "budget": "3 steps", "batch": {"length": 4096}}, "is more than model.positions 2048"),
        ({"schedule": "clm", "budget": "3 steps", "model": {"width": 30}}, "does not divide into 4 heads"),
        (
            {"schedule": "clm", "budget": "3 steps", "model": {"width": 36}},
            "does not divide into 4 heads of an even size",
        ),
        ({"schedule": "clm", "budget": "3 steps", "model": {"kv_heads": 3}}, "kv_heads 3 must divide heads 4"),
        ({"schedule": "clm", "budget": "3 steps", "optimizer": {"betas": [0.9, 1.0]}}, "betas.1: .*less than 1"),
        ({"schedule": "clm", "budget": "3 steps", "learning_rate": {"peak": 0}}, "peak: .*greater than 0 .got 0"),
        ({"schedule": "clm", "budget": "3 steps", "seed": -1}, "seed: "),
        ({"schedule": "clm", "budget": "3 steps", "sead": 1}, "unknown key 'sead'; did you mean 'seed'?"),
        (
            {"schedule": "clm", "budget": "3 steps", "batch": {"row": 1}},
            "batch: unknown key 'row'; did you mean 'rows'",
        ),
    ],
)
def test_a_run_that_makes_no_sense_is_said(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        Pretrain.read(values, "study.yaml")
