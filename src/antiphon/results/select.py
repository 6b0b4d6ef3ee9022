"""The only reader of the test split: choose on validation, then look."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping, Sequence

from antiphon.config import UserError, nearest
from antiphon.results.table import Score

VALIDATION = "validation"
TEST = "test"


@dataclasses.dataclass(frozen=True)
class Observation:
    """A score with its place in a study.

    Attributes:
        arm: the name of what is compared ("mlm", "biphasic"); the study's axis value.
        pretraining_seed: seed of the pretraining run.
        reading: which checkpoint of the run: a label such as "20%" or "100%".
        tokens: tokens seen in pretraining at that checkpoint.
        score: the row itself.
    """

    arm: str
    pretraining_seed: int
    reading: str
    tokens: int
    score: Score


class SelectionRule(enum.Enum):
    """How many learning rates one checkpoint may have on one task.

    ACROSS_SEEDS: one, by the mean validation metric over the fine-tuning seeds.
    PER_SEED: one for each fine-tuning seed, by that seed's validation metric. Kept to repeat published numbers.

    Source: PER_SEED is what the stored scores of Gisserot-Boukhlef et al. 2025, "Should We Still Pretrain Encoders with
    Masked Language Modeling?", reproduce. It rewards noise in validation once for each seed.
    """

    ACROSS_SEEDS = "across seeds"
    PER_SEED = "per seed"


@dataclasses.dataclass(frozen=True)
class Chosen:
    """One fine-tuning run with the chosen learning rate; `validation` and `test` are nan when it failed."""

    seed: int
    learning_rate: float
    validation: float
    test: float


@dataclasses.dataclass(frozen=True)
class Selected:
    """What one checkpoint came to on one task.

    Attributes:
        arm, pretraining_seed, reading, tokens: the checkpoint, as in `Observation`.
        state: identity of the checkpoint's weights; arms that share a beginning share it.
        task, kind, metric: what was measured.
        runs: the chosen runs, one for each fine-tuning seed there is so far, by seed.
        grid: the learning rates tried so far on this task at this reading, ascending.
        num_runs: fine-tuning runs there are, over all learning rates.
        num_failed: how many of them failed (nan).
        num_missing: how many of grid x seeds are not there yet. Above zero the choice is provisional.
    """

    arm: str
    pretraining_seed: int
    reading: str
    tokens: int
    state: str
    task: str
    kind: str
    metric: str
    runs: tuple[Chosen, ...]
    grid: tuple[float, ...]
    num_runs: int
    num_failed: int
    num_missing: int


_Cell = tuple[str, int, str, str]
_Run = tuple[float, int]
_Values = dict[_Run, float]


def choose(
    observations: Iterable[Observation],
    metric_of_task: Mapping[str, str],
    rule: SelectionRule = SelectionRule.ACROSS_SEEDS,
) -> list[Selected]:
    """Choose learning rates on validation, then look at the test rows of the chosen runs only.

    A failed run (nan) never wins: a learning rate with more failed or missing seeds loses to one with fewer, whatever
    its mean; ties go to the smaller rate. A study that is still running is reported as far as it is: see
    `Selected.num_missing`.

    Args:
        observations: rows of any number of arms, seeds, readings, tasks and metrics.
        metric_of_task: the metric that decides, for each task.
        rule: one learning rate for a checkpoint and task, or one for each fine-tuning seed.

    Returns:
        One value for each (arm, pretraining seed, reading, task), in the order in which they first occur.

    Raises:
        UserError: a row of an unknown task, a job with validation but no test row (or the reverse), or two jobs that
            claim one place.
    """
    kept = [observation for observation in observations if _decides(observation, metric_of_task)]
    cells: dict[_Cell, list[Observation]] = {}
    rates: dict[tuple[str, str], set[float]] = {}
    seeds: dict[tuple[str, str], set[int]] = {}
    for item in kept:
        cells.setdefault((item.arm, item.pretraining_seed, item.reading, item.score.task), []).append(item)
        column = (item.score.task, item.reading)
        rates.setdefault(column, set()).add(item.score.learning_rate)
        seeds.setdefault(column, set()).add(item.score.seed)
    return [
        _select(members, sorted(rates[task, reading]), sorted(seeds[task, reading]), rule)
        for (_, _, reading, task), members in cells.items()
    ]


def _decides(observation: Observation, metric_of_task: Mapping[str, str]) -> bool:
    task = observation.score.task
    if task not in metric_of_task:
        raise UserError(
            f"score rows of task {task!r}, which has no metric here; {nearest(task, list(metric_of_task))}. "
            "Name the task in the study or delete its rows."
        )
    return observation.score.metric == metric_of_task[task]


def _select(members: list[Observation], rates: list[float], seeds: list[int], rule: SelectionRule) -> Selected:
    validation = _values(members, VALIDATION)
    test = _values(members, TEST)
    if validation.keys() != test.keys():
        rate, seed = sorted(validation.keys() ^ test.keys())[0]
        there, absent = (VALIDATION, TEST) if (rate, seed) in validation else (TEST, VALIDATION)
        raise UserError(
            f"{_place(members[0])}, learning rate {rate:g}, seed {seed}: there is a {there} row but no {absent} row. "
            "A job writes both at once, so its file was damaged; delete it to compute the job again."
        )
    # The choice gets the validation values and nothing else; test values only join what it chose.
    chosen = (
        _choose_across(validation, rates, seeds) if rule is SelectionRule.ACROSS_SEEDS else _choose_each(validation)
    )
    first = members[0]
    return Selected(
        arm=first.arm,
        pretraining_seed=first.pretraining_seed,
        reading=first.reading,
        tokens=first.tokens,
        state=first.score.state,
        task=first.score.task,
        kind=first.score.kind,
        metric=first.score.metric,
        runs=tuple(Chosen(seed, rate, validation[rate, seed], test[rate, seed]) for rate, seed in chosen),
        grid=tuple(rates),
        num_runs=len(validation),
        num_failed=sum(math.isnan(value) for value in validation.values()),
        num_missing=len(rates) * len(seeds) - len(validation),
    )


def _choose_across(validation: _Values, rates: Sequence[float], seeds: Sequence[int]) -> list[_Run]:
    def rank(rate: float) -> tuple[int, float, float]:
        finite = [validation[rate, seed] for seed in seeds if not math.isnan(validation.get((rate, seed), math.nan))]
        mean = math.fsum(finite) / len(finite) if finite else -math.inf
        return (len(seeds) - len(finite), -mean, rate)

    best = min((rate for rate in rates if any((rate, seed) in validation for seed in seeds)), key=rank)
    return [(best, seed) for seed in seeds if (best, seed) in validation]


def _choose_each(validation: _Values) -> list[_Run]:
    def rank(run: _Run) -> tuple[bool, float, float]:
        value = validation[run]
        return (math.isnan(value), 0.0 if math.isnan(value) else -value, run[0])

    seeds = sorted({seed for _, seed in validation})
    return [min((run for run in validation if run[1] == seed), key=rank) for seed in seeds]


def _values(members: list[Observation], split: str) -> _Values:
    found: dict[_Run, Score] = {}
    for member in members:
        score = member.score
        if score.split != split:
            continue
        earlier = found.setdefault((score.learning_rate, score.seed), score)
        if earlier.job != score.job or earlier.state != score.state:
            raise UserError(
                f"{_place(member)}, learning rate {score.learning_rate:g}, seed {score.seed}: jobs {earlier.job} and "
                f"{score.job} both claim this place. They ran under different settings; keep the rows of one."
            )
    return {run: score.value for run, score in found.items()}


def _place(observation: Observation) -> str:
    return (
        f"{observation.arm} (pretraining seed {observation.pretraining_seed}) at {observation.reading}, "
        f"task {observation.score.task}"
    )
