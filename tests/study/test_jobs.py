"""Only what is not there is to be done, also when a study was edited in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.data.supply import Supply
from antiphon.study.jobs import Job, PretrainWork, ScoreWork, jobs, missing
from antiphon.study.plan import Plan, plan
from antiphon.study.study import Study
from antiphon.study.workspace import Workspace

SUPPLY = Supply(slots=100_032, tokens=100_032, words=50_016)
STUDY: dict[str, Any] = {
    "name": "tiny",
    "baseline": "mlm",
    "pretrain": {
        "budget": "40 steps",
        "batch": {"rows": 8, "length": 64},
        "learning_rate": {"warmup": "4 steps", "decay": "10 steps"},
    },
    "axes": {"schedule": {"clm": "clm", "mlm": "mlm(0.4)"}, "seed": [0]},
    "finetune": {"tasks": ["pocket-code"], "learning_rates": [1e-4], "seeds": [0]},
}


def planned(changes: dict[str, Any] | None = None, data: str = "1") -> Plan:
    """The study with sections changed."""
    values = dict(STUDY)
    for section, change in (changes or {}).items():
        values[section] = {**STUDY.get(section, {}), **change} if isinstance(change, dict) else change
    study = Study.read(values)
    return plan(study, "corpus", 300, SUPPLY, dict.fromkeys(study.finetune.tasks, data))


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def do(todo: list[Job]) -> None:
    """Let jobs be done, by their marks on disk."""
    for job in todo:
        job.done.parent.mkdir(parents=True, exist_ok=True)
        if job.is_pretraining:
            job.done.mkdir()
        else:
            job.done.write_text("")


def finish(space: Workspace, changes: dict[str, Any] | None = None) -> list[Job]:
    every = jobs(planned(changes), space)
    do(missing(every))
    assert missing(every) == []
    return every


def titles(todo: list[Job]) -> list[str]:
    return [job.title for job in todo]


def left(space: Workspace, changes: dict[str, Any], data: str = "1") -> list[str]:
    return titles(missing(jobs(planned(changes, data), space)))


def test_at_first_everything_is_to_do_in_an_order_that_works(space: Workspace) -> None:
    every = jobs(planned(), space)
    assert missing(every) == every
    assert titles(every) == [
        "pretrain clm seed 0",
        "pretrain mlm seed 0",
        "pocket-code on clm seed 0 at 100%",
        "pocket-code on mlm seed 0 at 100%",
    ]
    done = {""}
    for job in every:
        assert job.needs in done
        done.add(job.id)


def test_a_job_carries_all_that_a_worker_needs(space: Workspace) -> None:
    found = planned({"finetune": {"data": "sets/"}})
    training, scoring = jobs(found, space)[0], jobs(found, space)[-1]
    assert isinstance(training.work, PretrainWork)
    assert (training.work.start, training.work.stop, training.work.target) == (0, 40, training.id)
    assert training.work.run == found.courses["clm", 0].run
    assert training.done == space.state(training.id)
    assert isinstance(scoring.work, ScoreWork)
    assert (scoring.work.job, scoring.work.state, scoring.work.data) == (scoring.id, scoring.needs, "sets/")
    assert scoring.done == space.scores(scoring.id)
    assert min(job.weight for job in (training, scoring)) > 0


def test_a_second_run_has_nothing_to_do(space: Workspace) -> None:
    finish(space)
    assert left(space, {}) == []


def test_prose_and_machine_change_nothing(space: Workspace) -> None:
    finish(space)
    assert left(space, {"question": "Why?", "name": "other", "machine": {"workers": 7, "precision": "float32"}}) == []
    assert left(space, {"pretrain": {"validation": {"points": 2}}}) == []


# A study edited between two runs: only what changed is to be done


def test_an_arm_is_added(space: Workspace) -> None:
    finish(space)
    arms = {**STUDY["axes"]["schedule"], "late": "mlm(0.2)"}
    assert left(space, {"axes": {"schedule": arms}}) == ["pretrain late seed 0", "pocket-code on late seed 0 at 100%"]


def test_an_arm_is_added_that_grows_from_one_that_is_done(space: Workspace) -> None:
    finish(space)
    arms = {**STUDY["axes"]["schedule"], "both": "25% clm > 75% mlm(0.4)"}
    # The state where they part was not kept, so the common beginning is trained again; the end of clm is not.
    assert left(space, {"axes": {"schedule": arms}}) == [
        "pretrain clm+both seed 0",
        "pretrain both seed 0",
        "pocket-code on both seed 0 at 100%",
    ]


def test_an_arm_is_taken_away(space: Workspace) -> None:
    finish(space)
    assert left(space, {"axes": {"schedule": {"mlm": "mlm(0.4)"}}}) == []


def test_an_arm_is_renamed(space: Workspace) -> None:
    finish(space)
    assert left(space, {"axes": {"schedule": {"causal": "clm", "mlm": "mlm(0.4)"}}}) == []


def test_a_schedule_is_changed(space: Workspace) -> None:
    finish(space)
    assert left(space, {"axes": {"schedule": {"clm": "clm", "mlm": "mlm(0.3)"}}}) == [
        "pretrain mlm seed 0",
        "pocket-code on mlm seed 0 at 100%",
    ]


def test_a_seed_is_added(space: Workspace) -> None:
    finish(space)
    assert left(space, {"axes": {"seed": [0, 1]}}) == [
        "pretrain clm seed 1",
        "pretrain mlm seed 1",
        "pocket-code on clm seed 1 at 100%",
        "pocket-code on mlm seed 1 at 100%",
    ]


@pytest.mark.parametrize("change", [{"learning_rates": [1e-4, 1e-3]}, {"seeds": [0, 1]}])
def test_a_rate_or_a_seed_of_fine_tuning_is_added(space: Workspace, change: dict[str, Any]) -> None:
    finish(space)
    assert left(space, {"finetune": change}) == [
        "pocket-code on clm seed 0 at 100%",
        "pocket-code on mlm seed 0 at 100%",
    ]


def test_a_task_is_added(space: Workspace) -> None:
    finish(space)
    assert left(space, {"finetune": {"tasks": ["pocket-code", "pocket-summary"]}}) == [
        "pocket-summary on clm seed 0 at 100%",
        "pocket-summary on mlm seed 0 at 100%",
    ]


def test_the_data_of_a_task_changed(space: Workspace) -> None:
    finish(space)
    assert left(space, {}, data="2") == ["pocket-code on clm seed 0 at 100%", "pocket-code on mlm seed 0 at 100%"]


def test_a_reading_is_added(space: Workspace) -> None:
    finish(space)
    # The states in the middle are made, and the ends stay as they are.
    assert left(space, {"readings": ["25%", "100%"]}) == [
        "pretrain clm seed 0",
        "pretrain mlm seed 0",
        "pocket-code on clm seed 0 at 25%",
        "pocket-code on mlm seed 0 at 25%",
    ]


def test_a_reading_is_taken_away(space: Workspace) -> None:
    finish(space, {"readings": ["25%", "100%"]})
    assert left(space, {}) == []


CHANGES = [
    {"budget": "50 steps"},
    {"model": {"layers": 3}},
    {"learning_rate": {"peak": 0.01}},
    {"batch": {"rows": 4}},
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_runs_are_changed(space: Workspace, change: dict[str, Any]) -> None:
    finish(space)
    assert len(left(space, {"pretrain": change})) == 4


# States that were deleted


def test_a_state_in_the_middle_that_nobody_needs_is_not_made_again(space: Workspace) -> None:
    arms = {"axes": {"schedule": {"clm": "clm", "both": "25% clm > 75% mlm(0.4)"}}, "baseline": "clm"}
    every = finish(space, arms)
    shared = every[0]
    assert shared.title == "pretrain clm+both seed 0"
    shared.done.rmdir()
    assert missing(every) == []


def test_a_state_in_the_middle_is_made_again_when_its_end_is_missing(space: Workspace) -> None:
    arms = {"axes": {"schedule": {"clm": "clm", "both": "25% clm > 75% mlm(0.4)"}}, "baseline": "clm"}
    every = finish(space, arms)
    every[0].done.rmdir()
    every[2].done.rmdir()
    assert titles(missing(every)) == ["pretrain clm+both seed 0", "pretrain both seed 0"]


def test_a_state_that_a_missing_score_starts_from_is_made_again(space: Workspace) -> None:
    every = finish(space, {"readings": ["25%", "100%"]})
    scoring = next(job for job in every if job.title == "pocket-code on clm seed 0 at 25%")
    scoring.done.unlink()
    start = next(job for job in every if job.id == scoring.needs)
    assert titles(missing(every)) == [scoring.title]
    start.done.rmdir()
    assert titles(missing(every)) == [start.title, scoring.title]
