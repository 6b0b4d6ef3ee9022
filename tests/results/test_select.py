"""Learning rates are chosen on validation; test values cannot change the choice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest

from antiphon.config import UserError
from antiphon.draws import generator
from antiphon.results.select import Chosen, Observation, Selected, SelectionRule, choose
from antiphon.results.table import Score

RATES = (1e-4, 3e-4, 1e-3)
SEEDS = (0, 1, 2)
METRICS = {"library": "accuracy"}
Value = Callable[[float, int], float]


def rows(validation: Value, test: Value, arm: str = "mlm", pretraining_seed: int = 0) -> list[Observation]:
    return [
        Observation(
            arm, pretraining_seed, "100%", 1000, row(arm, pretraining_seed, rate, seed, split, value(rate, seed))
        )
        for rate, seed in itertools.product(RATES, SEEDS)
        for split, value in (("validation", validation), ("test", test))
    ]


def row(arm: str, pretraining_seed: int, rate: float, seed: int, split: str, value: float) -> Score:
    state = f"{arm}-{pretraining_seed}"
    job = f"{state}-{rate}-{seed}"
    return Score(job, state, "library", "classify", rate, seed, split, "accuracy", value, 100, 0, 1.0)


def only(observations: list[Observation], rule: SelectionRule = SelectionRule.ACROSS_SEEDS) -> Selected:
    (selected,) = choose(observations, METRICS, rule)
    return selected


def rates_of(selected: Selected) -> tuple[float, ...]:
    return tuple(run.learning_rate for run in selected.runs)


def test_the_best_mean_validation_wins_and_its_test_values_are_read() -> None:
    selected = only(rows(lambda rate, seed: 0.9 if rate == 3e-4 else 0.5, lambda rate, seed: rate + seed))
    assert selected.runs == tuple(Chosen(seed, 3e-4, 0.9, 3e-4 + seed) for seed in SEEDS)
    assert (selected.num_runs, selected.num_failed, selected.num_missing) == (9, 0, 0)
    assert selected.grid == RATES


@pytest.mark.parametrize("rule", SelectionRule)
def test_select_cannot_see_test(rule: SelectionRule) -> None:
    draws = generator(0, "select")
    values = {(rate, seed): float(draws.random()) for rate in RATES for seed in SEEDS}
    chosen = rates_of(only(rows(lambda *run: values[run], lambda rate, seed: 0.5), rule))
    for trial in range(30):
        tests = generator(trial, "test values").random(9)
        tests[generator(trial, "failures").random(9) < 0.3] = math.nan
        other = dict(zip(values, tests.tolist(), strict=True))
        assert rates_of(only(rows(lambda *run: values[run], lambda *run, other=other: other[run]), rule)) == chosen
    # The same draws as validation do change it, so the test above can fail.
    assert rates_of(only(rows(lambda rate, seed: rate, lambda rate, seed: 0.5), rule)) == (1e-3,) * 3
    assert chosen != (1e-3,) * 3


def test_each_seed_may_choose_for_itself() -> None:
    best = {0: 1e-3, 1: 1e-4, 2: 3e-4}
    observations = rows(lambda rate, seed: float(best[seed] == rate), lambda rate, seed: seed / 10)
    assert rates_of(only(observations, SelectionRule.PER_SEED)) == (1e-3, 1e-4, 3e-4)
    assert rates_of(only(observations)) == (1e-4,) * 3  # all means tie: the smallest


def test_across_seeds_weighs_the_mean_not_the_best_seed() -> None:
    table = {1e-4: (0.6, 0.6, 0.6), 3e-4: (0.9, 0.3, 0.3), 1e-3: (0.0, 0.0, 0.0)}
    assert rates_of(only(rows(lambda rate, seed: table[rate][seed], lambda rate, seed: 0.5))) == (1e-4,) * 3


@pytest.mark.parametrize("rule", SelectionRule)
def test_a_failed_run_never_wins(rule: SelectionRule) -> None:
    def validation(rate: float, seed: int) -> float:
        return math.nan if rate == 1e-3 else {1e-4: 0.2, 3e-4: 0.3}[rate]

    selected = only(rows(validation, lambda rate, seed: 0.5), rule)
    assert rates_of(selected) == (3e-4,) * 3
    assert selected.num_failed == 3


def test_one_failed_seed_disqualifies_a_better_mean() -> None:
    def validation(rate: float, seed: int) -> float:
        return math.nan if (rate, seed) == (1e-3, 1) else rate

    assert rates_of(only(rows(validation, lambda rate, seed: 0.5))) == (3e-4,) * 3


def test_when_every_rate_failed_somewhere_the_fewest_failures_win() -> None:
    def validation(rate: float, seed: int) -> float:
        failed = {1e-4: (0, 1), 3e-4: (2,), 1e-3: (0, 1, 2)}
        return math.nan if seed in failed[rate] else 0.5

    selected = only(rows(validation, validation))
    assert rates_of(selected) == (3e-4,) * 3
    assert [math.isnan(run.test) for run in selected.runs] == [False, False, True]


@pytest.mark.parametrize("rule", SelectionRule)
def test_all_failed_is_reported_not_raised(rule: SelectionRule) -> None:
    selected = only(rows(lambda *run: math.nan, lambda *run: math.nan), rule)
    assert rates_of(selected) == (1e-4,) * 3
    assert selected.num_failed == 9
    assert all(math.isnan(run.test) for run in selected.runs)


def test_what_has_not_come_in_is_counted() -> None:
    done = [(1e-4, 0), (1e-4, 1), (3e-4, 0)]
    observations = rows(lambda rate, seed: rate, lambda rate, seed: rate, arm="clm")
    partial = [
        item
        for item in rows(lambda rate, seed: rate, lambda rate, seed: rate, arm="mlm")
        if (item.score.learning_rate, item.score.seed) in done
    ]
    selected = {item.arm: item for item in choose(observations + partial, METRICS)}
    assert selected["clm"].num_missing == 0
    assert (selected["mlm"].num_runs, selected["mlm"].num_missing) == (3, 6)
    assert [(run.learning_rate, run.seed) for run in selected["mlm"].runs] == [(1e-4, 0), (1e-4, 1)]


def test_nothing_gives_nothing() -> None:
    assert choose([], METRICS) == []


def test_seeds_and_arms_are_selected_apart() -> None:
    observations = rows(lambda rate, seed: rate, lambda *run: 0.1, pretraining_seed=1)
    observations += rows(lambda rate, seed: -rate, lambda *run: 0.2, pretraining_seed=2)
    assert [(item.pretraining_seed, item.runs[0].learning_rate) for item in choose(observations, METRICS)] == [
        (1, 1e-3),
        (2, 1e-4),
    ]


def test_other_metrics_do_not_decide() -> None:
    observations = rows(lambda rate, seed: rate, lambda *run: 0.1)
    metrics = {"library": "f1"}
    assert choose(observations, metrics) == []


@pytest.mark.parametrize(("split", "absent"), [("validation", "test"), ("test", "validation")])
def test_half_a_job_is_an_error(split: str, absent: str) -> None:
    observations = rows(lambda rate, seed: rate, lambda *run: 0.1)
    removed = next(item for item in observations if item.score.split == absent)
    observations.remove(removed)
    with pytest.raises(UserError, match=rf"mlm .*library.*0\.0001, seed 0: there is a {split} row but no {absent} row"):
        choose(observations, METRICS)


def test_two_jobs_in_one_place_are_an_error() -> None:
    observations = rows(lambda rate, seed: rate, lambda *run: 0.1)
    first = observations[0]
    twin = Score(**{**first.score.__dict__, "job": "other"})
    with pytest.raises(UserError, match=r"mlm-0-0\.0001-0 and other both claim"):
        choose([*observations, Observation("mlm", 0, "100%", 1000, twin)], METRICS)
    assert choose([*observations, first], METRICS) == choose(observations, METRICS)


def test_an_unknown_task_is_named() -> None:
    with pytest.raises(UserError, match=r"'library'.*did you mean 'librarys'"):
        choose(rows(lambda *run: 0.1, lambda *run: 0.1), {"librarys": "accuracy"})
