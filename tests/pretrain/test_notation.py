"""The notation reads what it prints, and an error points at the character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.config import UserError
from antiphon.pretrain.amount import Amount, Unit
from antiphon.pretrain.causal import CLM, Prefix
from antiphon.pretrain.cmlm import CMLM
from antiphon.pretrain.config import Pretrain
from antiphon.pretrain.grain import GeometricSpans, Grain, Spans, Tokens, Words
from antiphon.pretrain.masking import MLM, MNTP, Fate
from antiphon.pretrain.mixture import Mixture, Per
from antiphon.pretrain.objective import Objective, Ratio
from antiphon.pretrain.schedule import Cycle, Phase, Schedule

# Reading


def test_the_examples_of_the_notation_read() -> None:
    assert Schedule.parse("mlm(0.4)").items == (Phase(None, MLM(Ratio(0.4, 0.4))),)
    assert Schedule.parse("25% clm > 75% mlm(0.4)").items == (
        Phase(Amount(25, Unit.PERCENT), CLM()),
        Phase(Amount(75, Unit.PERCENT), MLM(Ratio(0.4, 0.4))),
    )
    antlm = Schedule.parse("6 epochs clm > 60 epochs mlm(0.15) > 6 epochs clm")
    assert [str(phase.amount) for phase in antlm.phases] == ["6 epochs", "60 epochs", "6 epochs"]
    cycles = Schedule.parse("(1 epoch clm > 2 epochs mlm(0.15)) x 8")
    assert isinstance(cycles.items[0], Cycle)
    assert cycles.items[0].times == 8
    assert len(cycles.phases) == 16
    (mixed,) = Schedule.parse("mix(clm: 1, mntp(0.3 -> 0.15): 15)").phases
    assert mixed.objective == Mixture(((CLM(), 1), (MNTP(Ratio(0.3, 0.15)), 15)))
    assert Schedule.parse("mlm(0.15, 80/10/10)").phases[0].objective == MLM(Ratio(0.15, 0.15), Fate(80, 10, 10))
    spanbert = Schedule.parse("mlm(0.15, spans ~5 up to 10, 80/10/10)").phases[0].objective
    assert spanbert == MLM(Ratio(0.15, 0.15), Fate(80, 10, 10), GeometricSpans(5, 10))
    assert Schedule.parse("mntp(0.3, whole words)").phases[0].objective == MNTP(Ratio(0.3, 0.3), grain=Words())
    assert Schedule.parse("prefix(0.5 -> 0.2)").phases[0].objective == Prefix(Ratio(0.5, 0.2))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" 25 %clm>75% mlm( .40 ) ", "25% clm > 75% mlm(0.4)"),
        ("( 1 clm >4 mlm(0.15) )x8", "(1 clm > 4 mlm(0.15)) x 8"),
        ("mlm(0.4 -> 0.4)", "mlm(0.4)"),
        ("mlm(0.4, 100/0/0)", "mlm(0.4)"),
        ("1000k tokens clm", "1M tokens clm"),
        ("2 step clm", "2 steps clm"),
        ("mix( clm:1,mlm(0.2):2 )", "mix(clm: 1, mlm(0.2): 2)"),
        ("mix(clm: 1, mlm(0.3): 15) per row", "mix(clm: 1, mlm(0.3): 15)"),
        ("mix(clm:1,mlm(0.3):15)per  batch", "mix(clm: 1, mlm(0.3): 15) per batch"),
        ("1 mix(clm: 1) per batch>1 clm", "1 mix(clm: 1) per batch > 1 clm"),
        ("mlm(.3,spans 1 - 3)", "mlm(0.3, spans 1-3)"),
        ("mlm(0.3, spans~3.0)", "mlm(0.3, spans ~3)"),
        ("mntp(0.3 -> 0.15, spans ~5  up to 10,80/10/10)", "mntp(0.3 -> 0.15, spans ~5 up to 10, 80/10/10)"),
        ("mlm(0.15, whole  words, 100/0/0)", "mlm(0.15, whole words)"),
        ("prefix( .75->0.5 )", "prefix(0.75 -> 0.5)"),
        ("((1 clm) x 2 > 3 clm) x 4", "((1 clm) x 2 > 3 clm) x 4"),
    ],
)
def test_blanks_and_spellings_do_not_matter(text: str, canonical: str) -> None:
    assert str(Schedule.parse(text)) == canonical
    assert Schedule.parse(canonical) == Schedule.parse(text)


RATIOS = st.floats(min_value=1e-6, max_value=1 - 1e-6)
FATES = st.builds(
    lambda mask, random: Fate(mask, min(random, 100 - mask), 100 - mask - min(random, 100 - mask)),
    st.integers(0, 100),
    st.integers(0, 100),
)
RAMPS = st.builds(Ratio, RATIOS, RATIOS)
GRAINS: st.SearchStrategy[Grain] = st.one_of(
    st.just(Tokens()),
    st.just(Words()),
    st.builds(lambda least, more: Spans(least, least + more), st.integers(1, 50), st.integers(0, 50)),
    st.builds(GeometricSpans, st.floats(1 + 1e-6, 1e6), st.none() | st.integers(2, 99)),
)
SIMPLE: st.SearchStrategy[Objective] = st.one_of(
    st.just(CLM()),
    st.builds(MLM, RAMPS, FATES, GRAINS),
    st.builds(MNTP, RAMPS, FATES, GRAINS),
    st.builds(Prefix, RAMPS),
    st.just(CMLM()),
)
OBJECTIVES: st.SearchStrategy[Objective] = st.one_of(
    SIMPLE,
    st.lists(st.tuples(SIMPLE, st.integers(1, 40)), min_size=1, max_size=4).flatmap(
        lambda parts: st.sampled_from([Mixture(tuple(parts), per) for per in Per])
    ),
)


def _nested(phases: list[Phase]) -> st.SearchStrategy[Schedule]:
    """The phases in their order, some of them bracketed into cycles."""
    items = st.recursive(
        st.sampled_from(phases),
        lambda inner: st.builds(
            lambda some, times: Cycle(tuple(some), times), st.lists(inner, min_size=1, max_size=3), st.integers(1, 9)
        ),
        max_leaves=6,
    )
    return st.lists(items, min_size=1, max_size=4).map(lambda found: Schedule(tuple(found)))


def _phases(units: list[Unit]) -> st.SearchStrategy[list[Phase]]:
    amounts = st.builds(Amount, st.floats(min_value=1e-3, max_value=1e12), st.sampled_from(units))
    return st.lists(st.builds(Phase, amounts, OBJECTIVES), min_size=1, max_size=4)


ABSOLUTE = _phases([Unit.STEPS, Unit.TOKENS, Unit.WORDS, Unit.EPOCHS]).flatmap(_nested)
SHARES = _phases([Unit.SHARE]).flatmap(_nested)
PERCENT = st.lists(st.tuples(st.integers(1, 20), OBJECTIVES), min_size=1, max_size=4).map(
    lambda parts: Schedule(
        (
            *(Phase(Amount(value, Unit.PERCENT), objective) for value, objective in parts),
            Phase(Amount(100 - sum(value for value, _ in parts), Unit.PERCENT), CLM()),
        )
    )
)
WHOLE = OBJECTIVES.map(lambda objective: Schedule((Phase(None, objective),)))


@settings(max_examples=300, deadline=None)
@given(st.one_of(ABSOLUTE, SHARES, PERCENT, WHOLE))
def test_any_schedule_reads_back_from_its_print(schedule: Schedule) -> None:
    assert Schedule.parse(str(schedule)) == schedule
    assert str(Schedule.parse(str(schedule))) == str(schedule)


@settings(max_examples=50, deadline=None)
@given(st.one_of(SHARES, PERCENT, WHOLE))
def test_any_run_reads_back_from_its_json(schedule: Schedule) -> None:
    run = Pretrain(schedule=schedule, budget=Amount.parse("400k tokens"))
    assert Pretrain.read(run.model_dump(mode="json")) == run


# Errors: the mark stands under the place that is wrong, which the texts below have between « and »


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mlm(«40»)", "a mask ratio lies between 0 and 1, got 40; did you mean 0.4?"),
        ("25% clm > 75% mlm(«15»)", "did you mean 0.15?"),
        ("mlm(«1.0»)", "a mask ratio lies between 0 and 1, got 1"),
        ("mlm(«0»)", "a mask ratio lies between 0 and 1, got 0"),
        ("mlm(0.3 -> «30»)", "did you mean 0.3?"),
        ("mlm(«»)", "expected a mask ratio between 0 and 1"),
        ("25% clm > «70%» mlm(0.4)", "the percentages add up to 95, not to 100"),
        ("25% clm > «80%» mlm(0.4) > 10% clm", "the percentages add up to 115, not to 100"),
        ("(«60%» clm) x 2", "the percentages add up to 120, not to 100"),
        ("25% clm > 75% «mln»(0.4)", "unknown objective 'mln'; did you mean 'mlm'?"),
        ("«masked»(0.4)", "unknown objective 'masked'"),
        ("«CLM»", "unknown objective 'CLM'; did you mean 'clm'?"),
        ("mlm«»", "expected '(' and a mask ratio after 'mlm'"),
        ("mlm «0.4»", "expected '(' and a mask ratio after 'mlm'"),
        ("25% clm > 75% mlm(0.4«»", "expected ')' after the mask ratio"),
        ("(1 clm > 2 mlm(0.4) «x» 8", "expected ')' after the phases of a cycle"),
        ("(1 clm > 2 mlm(0.4)) «8»", "expected 'x' and a number of times"),
        ("(1 clm) x «0»", "a cycle comes round a whole number of times"),
        ("(1 clm) x «1.5»", "a cycle comes round a whole number of times"),
        ("25% clm > «mlm»(0.4)", "phase 'mlm(0.4)' needs a length"),
        ("«clm» > 75% mlm(0.4)", "phase 'clm' needs a length"),
        ("(«clm») x 3", "phase 'clm' needs a length"),
        ("25% clm > «3» mlm(0.4)", "lengths of different kinds"),
        ("10 steps clm > 2 epochs clm > «50%» mlm(0.4)", "lengths of different kinds"),
        ("«0%» clm > 100% mlm(0.4)", "'0%' must be more than zero"),
        ("100% clm > «0» mlm(0.4)", "must be more than zero"),
        ("«25x» clm", "not an amount"),
        ("25% clm > «6epochs» mlm(0.4)", "not an amount"),
        ("clm «clm»", "expected '>' or the end"),
        ("25% clm > «»", "expected an objective (clm, mlm, mntp, prefix, cmlm, mix)"),
        ("«»", "expected an objective"),
        ("25% «>» 75% clm", "expected an objective"),
        ("mix(clm«»)", "expected ':' and a weight after each objective"),
        ("mix(clm: «0»)", "a weight is a whole number, at least 1; got 0"),
        ("mix(clm: «1.5»)", "a weight is a whole number"),
        ("mix(clm: 1, mlm(0.4): 2«»", "expected ')' after the parts of a mix"),
        ("mix(«mix»(clm: 1): 2, clm: 1)", "a mix of mixes"),
        ("mlm(0.15, «80/10»)", "100 together"),
        ("mlm(0.15, «80/10/20»)", "100 together"),
        ("mlm(0.15, «80.5/9.5/10»)", "in whole percent"),
        ("mlm(0.15, «»)", "expected 'spans', 'whole words' or a fate such as 80/10/10"),
        ("mlm(0.15, 80/«»)", "expected a percentage"),
        ("mlm(0.15, 80/10/10«,» whole words)", "expected ')' after the fate, which comes last"),
        ("mlm(0.15, whole words, «»)", "expected a percentage"),
        ("mlm(0.3, «span» 1-3)", "unknown word 'span'; did you mean 'spans'?"),
        ("mlm(0.3, whole «wrods»)", "unknown word 'wrods'; did you mean 'words'?"),
        ("mlm(0.3, whole«»)", "expected 'words' after 'whole'"),
        ("mlm(0.3, spans 3-«1»)", "the longest span is shorter than the shortest; did you mean 1-3?"),
        ("mlm(0.3, spans «0»-3)", "the shortest span is a whole number, at least 1; got 0"),
        ("mlm(0.3, spans 1-«2.5»)", "the longest span is a whole number, at least 1; got 2.5"),
        ("mlm(0.3, spans «»)", "expected lengths after 'spans'"),
        ("mlm(0.3, spans 3«»)", "expected '-' and the longest span"),
        ("mlm(0.3, spans 1-3«»", "expected ')' after what is asked as one"),
        ("mlm(0.3, spans ~«»)", "expected the mean length of a span"),
        ("mlm(0.3, spans ~«1»)", "the mean length of a span is more than 1, got 1"),
        ("mlm(0.3, spans ~3 up «until» 10)", "unknown word 'until'"),
        ("mlm(0.3, spans ~3 up to «1»)", "the longest span is a whole number, at least 2; got 1"),
        ("mlm(0.3, spans ~3 up to «»)", "expected the longest span"),
        ("prefix«»", "expected '(' and a share of each document after 'prefix'"),
        ("prefix(«1.5»)", "lies between 0 and 1, got 1.5; did you mean 0.015?"),
        ("prefix(0.2 -> «1»)", "the mean share of a document that is prefix lies between 0 and 1, got 1"),
        ("prefix(0.5«,» whole words)", "expected ')' after the share of the prefix"),
        ("mix(clm: 1, mlm(0.4): 2) per «step»", "unknown word 'step'; allowed: batch, row"),
        ("mix(clm: 1, mlm(0.4): 2) per«»", "expected 'row' or 'batch' after 'per'"),
        ("clm «# 1»", "expected '>' or the end"),
    ],
)
def test_an_error_points_at_the_character(text: str, message: str) -> None:
    plain = text.replace("«", "").replace("»", "")
    with pytest.raises(ValueError, match=r"\^$") as caught:
        Schedule.parse(plain)
    first, shown, mark = str(caught.value).split("\n")
    assert message in first
    assert shown == f"  {plain}"
    assert mark == f"  {' ' * text.index('«')}^"


def test_an_error_in_a_study_keeps_its_mark() -> None:
    with pytest.raises(UserError) as caught:
        Pretrain.read({"schedule": "mlm(40)", "budget": "10 steps"}, "study.yaml")
    assert str(caught.value).splitlines()[1:3] == ["  mlm(40)", "      ^"]
