"""From a plan and what is on disk to the story that the report tells."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import yaml

from antiphon.finetune.catalog import CATALOG
from antiphon.report.story import Arm, Curve, Family, Phase, Point, Story
from antiphon.results import table
from antiphon.results.select import Observation
from antiphon.study.jobs import jobs, missing
from antiphon.study.plan import Plan, RunKey, tree
from antiphon.study.study import Study
from antiphon.study.workspace import Workspace
from antiphon.train import log

PACKAGES = ("antiphon", "torch", "transformers", "tokenizers", "numpy", "scikit-learn", "scipy")


def tell(found: Plan, space: Workspace, facts: Mapping[str, Any], command: str) -> Story:
    """Everything the page says, read from what is done so far.

    Args:
        found: the study's plan.
        space: where its results lie.
        facts: the manifest of its corpus.
        command: what was typed.
    """
    study = found.study
    every = jobs(found, space)
    return Story(
        name=study.name,
        question=study.question,
        expectation=study.expectation,
        baseline=study.baseline,
        arms=tuple(_arm(found, name) for name in study.axes.schedule),
        curves=tuple(_curve(found, space, run) for run in found.courses),
        observations=tuple(observations(found, space)),
        families=tuple(_family(name) for name in study.finetune.tasks),
        readings=tuple(dict.fromkeys(reading.label for reading in found.readings)),
        plan=tree(found),
        settings=settings(study),
        versions={name: _version(name) for name in PACKAGES} | {"corpus": _source(facts)},
        cost=_cost(found, space, facts),
        missing=len(missing(every)),
        command=command,
    )


def observations(found: Plan, space: Workspace) -> list[Observation]:
    """The score rows that are there, each at every place of the study that asks for it."""
    paths = [path for item in found.scorings if (path := space.scores(item.job)).is_file()]
    rows: dict[str, list[table.Score]] = {}
    for score in table.read(paths):
        rows.setdefault(score.state, []).append(score)
    return [
        Observation(reading.arm, reading.seed, reading.label, reading.tokens, score)
        for reading in found.readings
        for score in rows.get(reading.state, [])
    ]


def settings(study: Study) -> str:
    """Every value of a study, defaults included, as YAML."""
    shared = next(iter(study.runs().values())).model_dump(mode="json", exclude={"schedule", "seed"})
    values = study.model_dump(mode="json", exclude={"machine"}) | {"pretrain": shared}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)


def _arm(found: Plan, name: str) -> Arm:
    course = found.courses[name, found.study.axes.seed[0]]
    phases = (
        Phase(round(course.tokens(span.start)), round(course.tokens(span.stop)), str(span.objective))
        for span in course.spans
    )
    return Arm(name, str(course.run.schedule), tuple(phases))


def _curve(found: Plan, space: Workspace, run: RunKey) -> Curve:
    """The reports along a run's segments; a shared segment's reports belong to each of its runs."""
    points = []
    for segment in found.path(run):
        for line in log.read(space.log(segment.target)):
            names = list(line["loss"])
            for name in names:
                validation = line["validation"] if name == names[-1] else {}
                points.append(Point(line["tokens_seen"], name, line["loss"][name], validation))
    return Curve(run[0], run[1], tuple(points))


def _family(name: str) -> Family:
    task = CATALOG[name]
    return Family(name, task.kind.value, task.title, task.metric, task.about, task.chance)


def _cost(found: Plan, space: Workspace, facts: Mapping[str, Any]) -> dict[str, str]:
    train = facts["train"]
    paths = [path for item in found.scorings if (path := space.scores(item.job)).is_file()]
    seconds = sum({score.job: score.seconds for score in table.read(paths)}.values())
    pretraining = sum(line["seconds"] for segment in found.segments for line in log.read(space.log(segment.target)))
    run = next(iter(found.courses.values()))
    return {
        "corpus": f"{train['words']:,} words, {train['tokens']:,} tokens in {train['documents']:,} documents",
        "pretraining": f"{found.tokens_shared / 1e6:,.2f}M tokens ({found.tokens_alone / 1e6:,.2f}M without sharing), "
        f"{found.flops:.2g} floating-point operations, {pretraining / 60:.1f} worker-minutes",
        "one run": f"{run.steps} steps of {run.run.batch.rows} rows x {run.run.batch.length} tokens, "
        f"{run.tokens(run.steps) / train['tokens']:.2f} epochs",
        "fine-tuning": f"{len(found.scorings)} runs, {seconds / 60:.1f} worker-minutes",
    }


def _source(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts["source"].items()) or "own text"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
