"""Intervals cover what they say; the paired test has its size; both agree with scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from antiphon.draws import generator
from antiphon.results.compare import (
    Comparison,
    Estimate,
    Method,
    Values,
    compare,
    interval,
    paired,
    probability,
    study_interval,
    t_quantile,
)
from antiphon.results.select import Chosen, Selected

DRAWS = 4000
BOUND = 3.3 * math.sqrt(0.95 * 0.05 / DRAWS)  # a right method leaves these bounds once in a thousand times


def clusters(array: np.ndarray) -> Values:
    """Values from an array of (pretraining seeds, fine-tuning seeds)."""
    return {seed: dict(enumerate(runs)) for seed, runs in enumerate(array.tolist())}


def hierarchical(draws: np.random.Generator, seeds: int, runs: int) -> np.ndarray:
    """(DRAWS, seeds, runs) values with mean 0, standard deviation 1 between seeds and 0.7 within."""
    return draws.normal(size=(DRAWS, seeds, 1)) + 0.7 * draws.normal(size=(DRAWS, seeds, runs))


def coverage(estimates: list[Estimate]) -> float:
    return float(np.mean([not estimate.excludes_zero for estimate in estimates]))


@pytest.mark.parametrize("seeds", [2, 5])
def test_the_default_interval_covers(seeds: int) -> None:
    data = hierarchical(generator(1, "coverage", seeds), seeds, 3)
    assert abs(coverage([interval(clusters(draw)) for draw in data]) - 0.95) < BOUND


def test_the_narrow_interval_does_not_cover_pretraining_variance() -> None:
    data = hierarchical(generator(2, "coverage"), 3, 5)
    assert coverage([study_interval(clusters(draw)) for draw in data]) < 0.75


def test_with_one_pretraining_seed_the_interval_covers_that_run() -> None:
    data = generator(3, "coverage").normal(size=(DRAWS, 1, 4))
    estimates = [interval(clusters(draw)) for draw in data]
    assert abs(coverage(estimates) - 0.95) < BOUND
    assert {estimate.method for estimate in estimates} == {Method.FINETUNING_SEEDS}
    assert "does not cover pretraining variance" in Method.FINETUNING_SEEDS.value


@pytest.mark.parametrize("seeds", [2, 4])
def test_the_paired_test_has_its_size(seeds: int) -> None:
    draws = generator(4, "size", seeds)
    shared = draws.normal(size=(DRAWS, seeds, 1))  # both arms see the same data order
    arm, base = (shared + hierarchical(draws, seeds, 3) for _ in range(2))
    found = [probability(paired(clusters(one), clusters(other))) for one, other in zip(arm, base, strict=True)]
    assert abs(float(np.mean(np.array(found) < 0.05)) - 0.05) < BOUND


def test_the_test_and_the_interval_agree() -> None:
    data = hierarchical(generator(5, "agree"), 4, 3)[:500]
    for draw in data:
        values = clusters(draw)
        assert interval(values).excludes_zero == (probability(values) < 0.05)


def test_equal_to_scipy() -> None:
    draws = generator(6, "scipy")
    arm, base = draws.normal(size=(2, 4, 3))
    oracle = stats.ttest_rel(arm.mean(1), base.mean(1))
    differences = paired(clusters(arm), clusters(base))
    found = interval(differences)
    low, high = oracle.confidence_interval(0.95)
    assert (found.mean, found.low, found.high) == pytest.approx(((arm - base).mean(), low, high))
    assert probability(differences) == pytest.approx(oracle.pvalue)
    assert (found.count, found.method) == (4, Method.PRETRAINING_SEEDS)
    one = interval(clusters(arm[:1]))
    assert (one.low, one.high) == pytest.approx(stats.ttest_1samp(arm[0], 0).confidence_interval(0.95))
    for freedom in (1, 2, 10):
        assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom))


def test_the_study_formula_repeats_a_published_cell() -> None:
    # Test NDCG@10 of five fine-tuning seeds of one 610M CLM model on MLDR; reported as 53.16 +- 0.42
    # (Gisserot-Boukhlef et al. 2025).
    found = study_interval({0: dict(enumerate((53.243, 53.621, 53.585, 52.801, 52.530)))})
    assert found.mean == pytest.approx(53.156)
    assert found.high - found.mean == pytest.approx(0.42, abs=5e-3)


def test_two_pretraining_seeds_reach_far() -> None:
    found = interval({0: {0: 1.0, 1: 1.0}, 1: {0: 3.0, 1: 3.0}})
    assert (found.mean, found.high - found.mean) == pytest.approx((2.0, 12.7062), abs=1e-3)


def test_failed_runs_are_left_out_and_counted_elsewhere() -> None:
    values = {0: {0: 0.5, 1: math.nan, 2: 0.7}, 1: {0: math.nan, 1: math.nan}, 2: {0: 0.8, 1: 0.8}}
    found = interval(values)
    assert (found.mean, found.count) == (pytest.approx(0.7), 2)
    assert paired(values, {0: {0: 0.1, 2: 0.2}, 3: {0: 1.0}}) == {0: {0: pytest.approx(0.4), 2: pytest.approx(0.5)}}


@pytest.mark.parametrize("values", [{}, {0: {}}, {0: {0: math.nan}}, {0: {0: math.nan}, 1: {0: math.nan}}])
def test_nothing_finished_gives_no_number(values: Values) -> None:
    for found in (interval(values), study_interval(values)):
        assert math.isnan(found.mean)
        assert math.isnan(found.low)
        assert found.method is Method.NONE
        assert not found.excludes_zero
    assert math.isnan(probability(values))


def test_one_value_gives_a_mean_without_interval() -> None:
    found = interval({0: {0: 0.4}})
    assert (found.mean, found.count, found.method) == (0.4, 1, Method.NONE)
    assert math.isnan(found.low)
    assert math.isnan(probability({0: {0: 0.4}}))


def test_equal_runs_differ_by_nothing() -> None:
    values = {0: {0: 0.4, 1: 0.5}, 1: {0: 0.6, 1: 0.7}}
    differences = paired(values, values)
    assert probability(differences) == 1.0
    assert not interval(differences).excludes_zero


def selected(arm: str, seed: int, tests: tuple[float, ...], rate: float = 1e-3) -> Selected:
    runs = tuple(Chosen(number, rate, 0.5, test) for number, test in enumerate(tests))
    state = f"{arm}-{seed}"
    return Selected(
        arm, seed, "100%", 900 + seed, state, "library", "classify", "accuracy", runs, (1e-3, 2e-3), 6, 1, 2
    )


def by_arm(members: list[Selected]) -> dict[str, Comparison]:
    return {item.arm: item for item in compare(members, "mlm")}


def test_an_arm_is_compared_with_the_baseline() -> None:
    found = by_arm(
        [
            selected("clm", 0, (0.5, 0.7)),
            selected("clm", 1, (0.6, 0.6), rate=2e-3),
            selected("mlm", 0, (0.4, 0.6)),
            selected("mlm", 1, (0.4, 0.4)),
        ]
    )
    assert found["mlm"].difference is None
    assert math.isnan(found["mlm"].probability)
    clm = found["clm"]
    assert clm.difference is not None
    assert clm.difference.mean == pytest.approx(0.15)
    assert clm.difference_narrow is not None
    assert clm.difference_narrow.method is Method.STUDY_FORMULA
    assert (clm.num_runs, clm.num_failed, clm.num_missing, clm.tokens) == (12, 2, 4, 901)
    assert clm.learning_rates == (1e-3, 2e-3)
    assert clm.states == {0: "clm-0", 1: "clm-1"}


def test_an_arm_without_baseline_has_no_difference() -> None:
    found = by_arm([selected("clm", 0, (0.5, 0.7))])
    assert found["clm"].difference is None
    found = by_arm([selected("clm", 0, (0.5, 0.7)), selected("mlm", 1, (0.5, 0.7))])
    difference = found["clm"].difference
    assert difference is not None
    assert math.isnan(difference.mean)
