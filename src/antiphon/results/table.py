"""Score rows: one metric value a row, long form, append-only, one file a job.

One file a job means no locks on a shared disk. Reading unites the files and refuses two different values for one key.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path

from antiphon.config import UserError
from antiphon.files import write_text


@dataclasses.dataclass(frozen=True)
class Score:
    """One metric value.

    Attributes:
        job: fingerprint of the fine-tuning (state, task, protocol, learning rate, seed) that made the value.
        state: identity of the pretrained weights that were fine-tuned.
        task: the task's name ("pocket-library").
        kind: the task's kind: classify, tag, extract or retrieve.
        learning_rate: peak learning rate of the fine-tuning.
        seed: seed of the fine-tuning (head, order of examples).
        split: "validation" or "test".
        metric: the metric's name ("accuracy", "f1", "exact_match", "ndcg@10").
        value: the metric, as a fraction in [0, 1]; nan when the run diverged.
        num_examples: how many examples the value stands on.
        num_truncated: how many of them did not fit the row and were cut.
        seconds: wall time of the whole job.
    """

    job: str
    state: str
    task: str
    kind: str
    learning_rate: float
    seed: int
    split: str
    metric: str
    value: float
    num_examples: int
    num_truncated: int
    seconds: float

    @property
    def key(self) -> tuple[str, str, str]:
        """What may have only one value."""
        return (self.job, self.split, self.metric)


def write(path: Path, scores: Iterable[Score]) -> None:
    """Write one job's rows as JSON lines, atomically."""
    write_text(path, "".join(json.dumps(dataclasses.asdict(score), sort_keys=True) + "\n" for score in scores))


def read(paths: Iterable[Path]) -> list[Score]:
    """Unite the rows of many files; a repeated row counts once.

    Raises:
        UserError: a line is not a row, or two rows give one key different values.
    """
    found: dict[tuple[str, str, str], tuple[Score, Path]] = {}
    for path in paths:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                score = _row(line)
            except (ValueError, TypeError) as error:
                raise UserError(
                    f"{path}:{number}: not a score row ({error}). Delete the file to compute it again."
                ) from None
            earlier = found.setdefault(score.key, (score, path))
            if not _same(earlier[0].value, score.value):
                raise UserError(
                    f"{path}:{number}: {score.task} {score.split} {score.metric} is {score.value!r}, but {earlier[1]} "
                    f"says {earlier[0].value!r} for the same job {score.job}. One of the files is wrong; delete it."
                )
    return [score for score, _ in found.values()]


_TYPES = {"str": (str,), "int": (int,), "float": (float, int)}


def _row(line: bytes) -> Score:
    score = Score(**json.loads(line))
    for field in dataclasses.fields(score):
        value = getattr(score, field.name)
        if isinstance(value, bool) or not isinstance(value, _TYPES[str(field.type)]):
            raise TypeError(f"{field.name} is {value!r}, not of type {field.type}")
    return score


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
