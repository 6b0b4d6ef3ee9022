"""Everything the report needs to know, as plain values; the study fills them, and nothing here reads a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from antiphon.results.select import Observation, SelectionRule


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of pretraining under one objective ("clm", "mlm(0.4)"), in tokens seen."""

    start_tokens: int
    stop_tokens: int
    objective: str


@dataclasses.dataclass(frozen=True)
class Arm:
    """One of the things compared: its name, its schedule in canonical notation and the phases that it comes to."""

    name: str
    schedule: str
    phases: tuple[Phase, ...]


@dataclasses.dataclass(frozen=True)
class Point:
    """Losses at one moment of pretraining, in nats a token asked.

    Attributes:
        tokens: tokens seen.
        objective: the objective that rules here.
        train_loss: its training loss; None where only validation was measured.
        validation: validation loss under each objective measured ({"clm": 5.1, "mlm(0.4)": 4.2}); may be empty.
    """

    tokens: int
    objective: str
    train_loss: float | None
    validation: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Curve:
    """The points of one pretraining run, in the order of tokens."""

    arm: str
    seed: int
    points: tuple[Point, ...]


@dataclasses.dataclass(frozen=True)
class Family:
    """A task as the report shows it: its name, kind, a title for readers, the deciding metric, and what is asked.

    `chance` is the score of guessing, as a fraction; None where there is no simple one.
    """

    task: str
    kind: str
    title: str
    metric: str
    about: str
    chance: float | None = None


@dataclasses.dataclass(frozen=True)
class Story:
    """A study, told.

    Attributes:
        name: the study's name.
        question: what it asks, one sentence.
        expectation: what was expected, written before the results were seen.
        baseline: name of the arm that the others are compared with.
        arms, curves, observations, families: see their classes; any may be empty.
        readings: labels of the checkpoints that were fine-tuned, early to final.
        plan: the tree of segments, as text.
        settings: all values of the study, as YAML.
        versions: name -> version of what computed it.
        cost: what -> how much, both in words.
        missing: how many jobs are not done yet.
        command: what was typed to make it.
        rule: how learning rates are chosen.
    """

    name: str
    question: str
    expectation: str
    baseline: str
    arms: tuple[Arm, ...]
    curves: tuple[Curve, ...]
    observations: tuple[Observation, ...]
    families: tuple[Family, ...]
    readings: tuple[str, ...]
    plan: str
    settings: str
    versions: Mapping[str, str]
    cost: Mapping[str, str]
    missing: int
    command: str
    rule: SelectionRule = SelectionRule.ACROSS_SEEDS
