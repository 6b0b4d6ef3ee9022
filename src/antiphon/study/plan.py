"""Runs -> a tree of segments, shared beginnings once -> jobs.

Batches, masks and learning rates depend on the step alone, so two runs whose steps agree up to some point have the same
state there, and that stretch is trained once. Sharing never changes a result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from antiphon.config import UserError
from antiphon.data.supply import Supply
from antiphon.finetune.config import Finetune, job_id
from antiphon.model.presets import training_flops
from antiphon.pretrain.config import Course
from antiphon.study.study import Study

RunKey = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Segment:
    """A stretch of training between two states.

    Attributes:
        run: the run it is trained as; every run in `users` gives the same weights.
        start, stop: steps.
        origin: identity of the state at `start`; empty for fresh weights.
        target: identity of the state at `stop`.
        users: the runs that pass through it.
        flops: of its training.
    """

    run: RunKey
    start: int
    stop: int
    origin: str
    target: str
    users: tuple[RunKey, ...]
    flops: float


@dataclasses.dataclass(frozen=True)
class Reading:
    """A checkpoint of a run that is fine-tuned and scored."""

    arm: str
    seed: int
    label: str
    step: int
    tokens: int
    state: str


@dataclasses.dataclass(frozen=True)
class Scoring:
    """One fine-tuning of one state."""

    job: str
    state: str
    config: Finetune


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything a study asks for.

    Attributes:
        study: the study.
        corpus: identity of its prepared corpus.
        courses: each run, step by step.
        segments: parents before children.
        readings: the checkpoints to score, in the order of arms, seeds and readings.
        scorings: the fine-tunings, each once though several runs may share its state.
    """

    study: Study
    corpus: str
    courses: Mapping[RunKey, Course]
    segments: tuple[Segment, ...]
    readings: tuple[Reading, ...]
    scorings: tuple[Scoring, ...]

    @property
    def tokens_alone(self) -> float:
        """Tokens of training if every run were trained alone."""
        return sum(course.tokens(course.steps) for course in self.courses.values())

    @property
    def tokens_shared(self) -> float:
        """Tokens of training with common beginnings trained once."""
        return sum(self._tokens(segment) for segment in self.segments)

    def _tokens(self, segment: Segment) -> float:
        course = self.courses[segment.run]
        return course.tokens(segment.stop) - course.tokens(segment.start)

    @property
    def flops(self) -> float:
        """Floating-point operations of the shared training."""
        return sum(segment.flops for segment in self.segments)

    def path(self, run: RunKey) -> list[Segment]:
        """The segments of one run, in order."""
        return [segment for segment in self.segments if run in segment.users]


def plan(study: Study, corpus: str, vocabulary: int, supply: Supply, data: Mapping[str, str]) -> Plan:
    """Work out what a study needs.

    Args:
        study: the study.
        corpus: identity of its prepared corpus.
        vocabulary: V of its tokenizer.
        supply: what an epoch of it holds, in the study's blocks.
        data: identity of the examples of each task.

    Raises:
        UserError: a schedule does not resolve into steps, or a reading comes after the end of a run.
    """
    courses: dict[RunKey, Course] = {}
    readings: list[Reading] = []
    for (arm, seed), run in study.runs().items():
        try:
            course = courses[arm, seed] = Course(run, corpus, supply)
            readings += _readings(study, arm, seed, course)
        except ValueError as error:
            raise UserError(f"axes.schedule.{arm}: {error}") from None
    segments = _segments(courses, readings, vocabulary)
    return Plan(study, corpus, courses, segments, tuple(readings), _scorings(study, readings, data))


def _readings(study: Study, arm: str, seed: int, course: Course) -> list[Reading]:
    found = []
    for amount in study.readings_of(course.words(course.steps)):
        step = course.step_of(amount)
        found.append(Reading(arm, seed, str(amount), step, round(course.tokens(step)), course.identity(step)))
    return found


def _segments(courses: Mapping[RunKey, Course], readings: list[Reading], vocabulary: int) -> tuple[Segment, ...]:
    own = {key: {course.steps} for key, course in courses.items()}
    for reading in readings:
        own[reading.arm, reading.seed].add(reading.step)
    common = {(a, b): courses[a].common(courses[b]) for a in courses for b in courses if a != b}
    for (a, _), length in common.items():
        if length:
            own[a].add(length)
    # Where runs agree, they must be cut at the same places, or a stretch would be trained in two ways.
    cuts = {
        key: sorted(
            own[key] | {cut for other in courses if other != key for cut in own[other] if cut <= common[key, other]}
        )
        for key in courses
    }
    found: dict[str, Segment] = {}
    for key, course in courses.items():
        start, origin = 0, ""
        for stop in cuts[key]:
            target = course.identity(stop)
            if target in found:
                found[target] = dataclasses.replace(found[target], users=(*found[target].users, key))
            else:
                flops = _flops(course, start, stop, vocabulary)
                found[target] = Segment(key, start, stop, origin, target, (key,), flops)
            start, origin = stop, target
    return tuple(found.values())


def _flops(course: Course, start: int, stop: int, vocabulary: int) -> float:
    total = 0.0
    for span in course.spans:
        first, last = max(start, span.start), min(stop, span.stop)
        if last > first:
            tokens = course.tokens(last) - course.tokens(first)
            asked = tokens * span.objective.asked_share
            visible = float(np.average(course.pace.lengths[first:last], weights=course.pace.rows[first:last])) / 2
            total += training_flops(course.run.model, vocabulary, tokens, asked, visible)
    return total


def _scorings(study: Study, readings: list[Reading], data: Mapping[str, str]) -> tuple[Scoring, ...]:
    settings = study.finetune
    shared = settings.model_dump(exclude={"tasks", "learning_rates", "seeds", "data"}, exclude_defaults=True)
    found: dict[str, Scoring] = {}
    for state in dict.fromkeys(reading.state for reading in readings):
        for task in settings.tasks:
            for seed in settings.seeds:
                for rate in settings.learning_rates:
                    config = Finetune.read({**shared, "task": task, "learning_rate": rate, "seed": seed}, "finetune")
                    job = job_id(state, config, data[task])
                    found[job] = Scoring(job, state, config)
    return tuple(found.values())


def tree(found: Plan) -> str:
    """The plan as a text tree. Seeds whose trees look alike are drawn once."""
    drawings: dict[str, list[int]] = {}
    for seed in found.study.axes.seed:
        chosen = [segment for segment in found.segments if segment.run[1] == seed]
        drawings.setdefault("\n".join(_branches(found, chosen, "", "")), []).append(seed)
    parts = []
    for drawing, seeds in drawings.items():
        parts.append(f"seed {', '.join(map(str, seeds))}{' (a tree each)' if len(seeds) > 1 else ''}\n{drawing}")
    share = found.tokens_shared / found.tokens_alone
    parts.append(
        f"{len(found.courses)} runs, {len(found.segments)} segments: {found.tokens_shared / 1e6:,.2f}M tokens trained "
        f"instead of {found.tokens_alone / 1e6:,.2f}M ({1 - share:.0%} saved by sharing), {found.flops:.2g} FLOPs\n"
        f"{len({reading.state for reading in found.readings})} checkpoints scored in {len(found.scorings)} fine-tunings"
    )
    return "\n\n".join(parts)


def _branches(found: Plan, segments: list[Segment], origin: str, indent: str) -> list[str]:
    lines = []
    children = [segment for segment in segments if segment.origin == origin]
    for number, segment in enumerate(children):
        last = number == len(children) - 1
        course = found.courses[segment.run]
        names = dict.fromkeys(
            str(span.objective) for span in course.spans if span.start < segment.stop and span.stop > segment.start
        )
        what = " > ".join(names) if len(names) < 3 else f"{' / '.join(names)} in turn"
        arms = ", ".join(dict.fromkeys(arm for arm, _ in segment.users))
        read = {reading.label for reading in found.readings if reading.state == segment.target}
        scored = f"  [scored at {', '.join(sorted(read))}]" if read else ""
        lines.append(f"{indent}{'└─' if last else '├─'} steps {segment.start}-{segment.stop} {what}: {arms}{scored}")
        lines += _branches(found, segments, segment.target, indent + ("   " if last else "│  "))
    return lines
