"""Sentences say what the numbers say, and no more."""

from __future__ import annotations

import dataclasses
import math

import pytest

from antiphon.report import statements
from antiphon.report.findings import Findings, find
from antiphon.report.story import Story
from antiphon.results.select import Observation
from antiphon.results.table import Score
from tests.report.example_story import ARMS, FAMILIES, example_story

# For each arm the test score of pretraining seeds 0, 1, 2; two fine-tuning seeds each, 0.01 apart around it.
STEADY = {
    "clm": (0.50, 0.52, 0.54),
    "mlm": (0.60, 0.62, 0.64),
    "biphasic": (0.71, 0.72, 0.73),
    "antlm": (0.6, 0.66, 0.61),
}


def told(means: dict[str, tuple[float, ...]], **changes: object) -> Story:
    family = FAMILIES[0]
    found = []
    for arm, seeds in means.items():
        for seed, mean in enumerate(seeds):
            for run in range(2):
                for split in ("validation", "test"):
                    job, value = f"{arm}-{seed}-{run}", mean + 0.01 * run
                    score = Score(
                        job, f"{arm}-{seed}", family.task, family.kind, 1e-3, run, split, family.metric, value, 9, 0, 1
                    )
                    found.append(Observation(arm, seed, "100%", 1000, score))
    base = dataclasses.replace(example_story(), observations=tuple(found), families=(family,), readings=("100%",))
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def findings(means: dict[str, tuple[float, ...]], **changes: object) -> Findings:
    return find(told(means, **changes))


def test_the_outcome_counts_leaders_and_separated_differences() -> None:
    assert statements.headline(findings(STEADY)) == (
        "biphasic has the highest mean on Which library. 2 of 3 differences to mlm are separated from zero."
    )


def test_the_example_is_summed_up_over_tasks() -> None:
    text = statements.headline(find(example_story()))
    assert text == "biphasic has the highest mean on 4 of 4 tasks. 5 of 12 differences to mlm are separated from zero."


def test_each_arm_is_placed_against_the_baseline() -> None:
    assert statements.answers(findings(STEADY), "100%") == [
        "clm is above mlm on 0 of 1 task; separated on 1: below on Which library (\N{MINUS SIGN}10.0).",
        "biphasic is above mlm on 1 of 1 task; separated on 1: above on Which library (+10.0).",
        "antlm is above mlm on 1 of 1 task; separated on none.",
    ]


def test_nothing_separated_is_said_plainly() -> None:
    means = {"mlm": (0.5, 0.6, 0.4), "clm": (0.6, 0.5, 0.45)}
    assert statements.headline(findings(means)) == (
        "clm has the highest mean on Which library. The difference to mlm is not separated from zero."
    )


def test_equal_weights_are_named_so_that_equal_scores_are_no_finding() -> None:
    early = find(example_story())
    assert "clm and biphasic are the same weights here: their schedules have not parted yet." in statements.answers(
        early, "20%"
    )
    assert not any("same weights" in sentence for sentence in statements.answers(early, "100%"))


def test_a_tie_is_shared() -> None:
    means = {"clm": (0.7, 0.7, 0.7), "mlm": (0.6, 0.6, 0.6), "biphasic": (0.7, 0.7, 0.7)}
    assert statements.headline(findings(means)).startswith("clm and biphasic have the highest mean on Which library.")
    assert find(told({"clm": (0.5,), "mlm": (0.5,)})).leaders(FAMILIES[0], "100%") == ()


@pytest.mark.parametrize(
    ("means", "changes", "expected"),
    [
        ({}, {}, "There are no scores yet."),
        ({"mlm": (math.nan,), "clm": (math.nan,)}, {}, "No fine-tuning run has finished with a score."),
        ({"clm": (0.5,)}, {}, "There is nothing to compare with mlm yet."),
        ({"clm": (0.5,)}, {"readings": ("100%", "200%")}, "No score of the final reading (200%) has come in yet."),
        (
            {"mlm": (0.5,)},
            {"arms": ARMS[1:2]},
            "mlm alone: 50.5 on Which library. There is nothing to compare it with.",
        ),
    ],
)
def test_a_story_that_is_not_all_there(
    means: dict[str, tuple[float, ...]], changes: dict[str, object], expected: str
) -> None:
    assert statements.headline(findings(means, **changes)) == expected


def cautions(means: dict[str, tuple[float, ...]], **changes: object) -> str:
    return " ".join(statements.cautions(findings(means, **changes)))


def test_cautions_come_from_the_numbers() -> None:
    assert cautions(STEADY).startswith(
        "Intervals stand on 3 pretraining seeds and reach 4.3 standard errors to each side, so"
    )
    assert "The 3 final differences are not corrected" in cautions(STEADY)
    assert f"{0.05 * 3:.1f} of them would be expected" in cautions(STEADY)
    once = cautions({"mlm": (0.5,), "clm": (0.6,)})
    assert "clm and mlm stand on one pretraining run" in once
    assert "cover fine-tuning seeds only" in once
    assert cautions(STEADY, missing=7).startswith("The study is not finished: 7 jobs to come.")


def test_failures_are_counted_once_where_arms_share_runs() -> None:
    story = example_story()
    jobs = {item.score.job for item in story.observations}
    failed = {item.score.job for item in story.observations if math.isnan(item.score.value)}
    assert failed, "the example has failures"
    assert any(
        sentence.startswith(f"{len(failed)} of {len(jobs)} fine-tuning runs failed")
        for sentence in statements.cautions(find(story))
    )


def test_examples_that_were_cut_are_counted_once_by_split_and_task() -> None:
    story = example_story()
    numbers = {("pocket-library", "test"): 12, ("pocket-code", "validation"): 3, ("pocket-code", "test"): 1}
    scores = [
        dataclasses.replace(item.score, num_truncated=numbers.get((item.score.task, item.score.split), 0))
        for item in story.observations
    ]
    cut = [dataclasses.replace(item, score=score) for item, score in zip(story.observations, scores, strict=True)]
    assert (
        "12 of 500 test examples of Which library and 3 of 500 validation and 1 of 500 test examples of Code words "
        "were cut to the row length."
    ) in statements.cautions(find(dataclasses.replace(story, observations=tuple(cut))))
    assert "cut to the row length" not in cautions(STEADY)


def test_a_choice_at_the_end_of_the_grid_is_mentioned() -> None:
    story = example_story()
    assert not any("end of the grid" in sentence for sentence in statements.cautions(find(story)))
    smaller = tuple(
        dataclasses.replace(item, score=dataclasses.replace(item.score, learning_rate=30 * item.score.learning_rate))
        if item.score.learning_rate == 1e-4
        else item
        for item in story.observations
    )
    found = statements.cautions(find(dataclasses.replace(story, observations=smaller)))
    assert any("at an end of the grid in 32 of 32 comparisons" in sentence for sentence in found)
