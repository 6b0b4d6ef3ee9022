"""Means, intervals and paired differences of selected scores; imports scipy only when a quantile is asked for.

Fine-tuning runs of one pretrained model are not independent draws of "pretraining under this schedule": they share the
luck of that pretraining run. So the unit of the default interval is the pretraining seed, and the narrower interval
over fine-tuning seeds is given beside it, never instead of it.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping, Sequence

from antiphon.results.select import Selected

LEVEL = 0.95

Values = Mapping[int, Mapping[int, float]]
"""Pretraining seed -> fine-tuning seed -> value; nan where the run failed."""


class Method(enum.Enum):
    """What an interval stands on, in the reader's words."""

    PRETRAINING_SEEDS = "t interval over pretraining seeds"
    FINETUNING_SEEDS = "t interval over fine-tuning seeds of one pretraining run; does not cover pretraining variance"
    STUDY_FORMULA = "normal interval over fine-tuning seeds; does not cover pretraining variance"
    NONE = "no interval: fewer than two values"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean with its 95% interval.

    Attributes:
        mean: nan when no run finished.
        low, high: the interval's ends; nan when there is none.
        count: how many units the interval stands on (pretraining seeds, or fine-tuning runs).
        method: what those units are.
    """

    mean: float
    low: float
    high: float
    count: int
    method: Method

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval exists and lies on one side of zero."""
        return self.low > 0 or self.high < 0


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One arm on one task at one reading, and its difference to the baseline arm.

    Attributes:
        task, reading, arm: the place; `tokens` were seen in pretraining by then.
        score: mean over pretraining seeds of means over fine-tuning seeds, with the default interval.
        score_narrow: the same mean with the interval over fine-tuning seeds only.
        difference, difference_narrow: paired difference to the baseline; None for the baseline itself or without it.
        probability: two-sided p value of the paired t test behind `difference`; nan when there is none.
        states: identity of the weights, by pretraining seed.
        values: the selected test values, for drawing.
        learning_rates: the chosen ones, ascending, each once.
        grid: the learning rates tried.
        num_runs, num_failed, num_missing: fine-tuning runs over the whole grid, those that failed, those to come.
    """

    task: str
    reading: str
    arm: str
    tokens: int
    score: Estimate
    score_narrow: Estimate
    difference: Estimate | None
    difference_narrow: Estimate | None
    probability: float
    states: Mapping[int, str]
    values: Values
    learning_rates: tuple[float, ...]
    grid: tuple[float, ...]
    num_runs: int
    num_failed: int
    num_missing: int


def compare(selected: Sequence[Selected], baseline: str) -> list[Comparison]:
    """Estimate every arm on every task at every reading, and its paired difference to the baseline arm.

    Args:
        selected: what `select.choose` returned.
        baseline: the arm that the others are compared with; it may not have come in yet.

    Returns:
        One value for each (task, reading, arm), in the order in which they first occur.
    """
    groups: dict[tuple[str, str, str], list[Selected]] = {}
    for item in selected:
        groups.setdefault((item.task, item.reading, item.arm), []).append(item)
    found = []
    for (task, reading, arm), members in groups.items():
        values = _values(members)
        base = groups.get((task, reading, baseline)) if arm != baseline else None
        differences = paired(values, _values(base)) if base else None
        found.append(
            Comparison(
                task=task,
                reading=reading,
                arm=arm,
                tokens=max(member.tokens for member in members),
                score=interval(values),
                score_narrow=study_interval(values),
                difference=interval(differences) if differences is not None else None,
                difference_narrow=study_interval(differences) if differences is not None else None,
                probability=probability(differences) if differences is not None else math.nan,
                states={member.pretraining_seed: member.state for member in members},
                values=values,
                learning_rates=tuple(sorted({run.learning_rate for member in members for run in member.runs})),
                grid=tuple(sorted({rate for member in members for rate in member.grid})),
                num_runs=sum(member.num_runs for member in members),
                num_failed=sum(member.num_failed for member in members),
                num_missing=sum(member.num_missing for member in members),
            )
        )
    return found


def paired(values: Values, baseline: Values) -> Values:
    """Differences of runs that share both seeds: the same data order in pretraining, the same head in fine-tuning.

    A pair with a failed or missing side is left out, on both sides, so that a mean difference compares like with like.
    """
    return {
        pretraining: {
            finetuning: value - baseline[pretraining][finetuning]
            for finetuning, value in runs.items()
            if finetuning in baseline[pretraining]
        }
        for pretraining, runs in values.items()
        if pretraining in baseline
    }


def interval(values: Values) -> Estimate:
    """The default: a t interval whose units are pretraining-seed means.

    With two pretraining seeds it is 12.7 standard errors to each side. That is what two values can say. With one
    pretraining seed the units are its fine-tuning seeds, and `method` says what that leaves out.
    """
    units, method = _units(values)
    mean = _mean(units)
    if method is Method.NONE:
        return Estimate(mean, math.nan, math.nan, len(units), method)
    reach = t_quantile(len(units) - 1) * _deviation(units) / math.sqrt(len(units))
    return Estimate(mean, mean - reach, mean + reach, len(units), method)


def study_interval(values: Values) -> Estimate:
    """Normal interval that treats the pretrained models as given: only fine-tuning seeds vary.

    For one pretraining seed this is mean +- 1.96 s / sqrt(n). For more, the standard errors of the seeds' means are
    combined, so that spread between pretraining seeds never enters.

    Source: Gisserot-Boukhlef et al. 2025, "Should We Still Pretrain Encoders with Masked Language Modeling?"; its
    stored scores give 1.96 s / sqrt(5), not a t interval.
    """
    clusters = _clusters(values)
    mean = _mean([_mean(cluster) for cluster in clusters])
    count = sum(map(len, clusters))
    if not clusters or min(map(len, clusters)) < 2:
        return Estimate(mean, math.nan, math.nan, count, Method.NONE)
    variance = math.fsum(_deviation(cluster) ** 2 / len(cluster) for cluster in clusters) / len(clusters) ** 2
    reach = 1.96 * math.sqrt(variance)
    return Estimate(mean, mean - reach, mean + reach, count, Method.STUDY_FORMULA)


def probability(differences: Values) -> float:
    """Two-sided p value of the t test that the mean difference is zero, on the units of `interval`; nan without one."""
    units, method = _units(differences)
    if method is Method.NONE:
        return math.nan
    mean, error = _mean(units), _deviation(units) / math.sqrt(len(units))
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    from scipy import special

    return float(2 * special.stdtr(len(units) - 1, -abs(mean) / error))


@functools.cache
def t_quantile(freedom: int) -> float:
    """How many standard errors a two-sided 95% interval reaches to each side, at these degrees of freedom."""
    # scipy.special alone loads in a third of the time of scipy.stats.
    from scipy import special

    return float(special.stdtrit(freedom, (1 + LEVEL) / 2))


def _units(values: Values) -> tuple[list[float], Method]:
    clusters = _clusters(values)
    if len(clusters) >= 2:
        return [_mean(cluster) for cluster in clusters], Method.PRETRAINING_SEEDS
    if clusters and len(clusters[0]) >= 2:
        return clusters[0], Method.FINETUNING_SEEDS
    return (clusters[0] if clusters else []), Method.NONE


def _clusters(values: Values) -> list[list[float]]:
    finished = ([value for value in runs.values() if not math.isnan(value)] for runs in values.values())
    return [cluster for cluster in finished if cluster]


def _values(members: Sequence[Selected]) -> Values:
    return {member.pretraining_seed: {run.seed: run.test for run in member.runs} for member in members}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _deviation(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
