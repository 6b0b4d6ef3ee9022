"""Work is done once and to the bit, whoever is killed meanwhile."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.data.prepare import Prepared
from antiphon.machine import Machine
from antiphon.study import launch
from antiphon.study.jobs import Job, PretrainWork, jobs, missing
from antiphon.study.study import Study
from antiphon.study.workspace import Workspace
from antiphon.train import checkpoint
from tests import tiny

STEPS = 120
MACHINE = Machine(workers=1, threads=1, precision="float32", device="cpu", save_seconds=0.05)


@dataclasses.dataclass
class Told:
    """A watcher that keeps what it is told, and may do something at a report."""

    at_report: Callable[[Job, int], None] = lambda job, step: None
    events: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def started(self, worker: int, job: Job) -> None:
        self.events.append(("started", job.title))

    def progress(self, worker: int, job: Job, facts: dict[str, Any]) -> None:
        self.at_report(job, facts["step"])

    def finished(self, worker: int, job: Job, seconds: float) -> None:
        self.events.append(("finished", job.title))

    def failed(self, job: Job, reason: str) -> None:
        self.events.append(("failed", job.title))

    def stopping(self) -> None:
        self.events.append(("stopping", ""))

    def refresh(self) -> None:
        pass

    def count(self, event: str, title: str) -> int:
        return self.events.count((event, title))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        monkeypatch.setenv(name, "32")


@pytest.fixture
def space(prepared: Prepared, tmp_path: Path) -> Workspace:
    """A workspace in which the tiny corpus is prepared."""
    found = Workspace(tmp_path / "space")
    found.corpus(tiny.CORPUS).parent.mkdir(parents=True)
    found.corpus(tiny.CORPUS).symlink_to(prepared.folder)
    return found


def work(space: Workspace, prepared: Prepared, arms: dict[str, str], seeds: list[int] | None = None) -> list[Job]:
    study = Study.read(
        {
            "name": "tiny",
            "baseline": next(iter(arms)),
            "pretrain": {
                "budget": f"{STEPS} steps",
                "model": dict(tiny.MODEL),
                "batch": dict(tiny.BATCH),
                "validation": {"points": 2, "rows": 4},
            },
            "axes": {"schedule": arms, "seed": seeds or [0]},
        }
    )
    return jobs(tiny.plan(study, prepared), space)


@pytest.fixture(scope="module")
def alone(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs trained in one go, in this process: the states that the launcher must come to."""
    folder = tmp_path_factory.mktemp("alone")
    targets = {}
    for arm, schedule in {"clm": "clm", "both": "25% clm > 75% mlm(0.4)"}.items():
        changes = {"validation": {"points": 0}, "learning_rate": {}}
        found = tiny.course(tiny.pretrain(schedule, f"{STEPS} steps", changes), prepared)
        segment = tiny.stretch(found, folder, arm)
        tiny.train(segment, prepared)
        targets[arm] = segment.target
    return targets


def once(act: Callable[[], None]) -> Callable[[Job, int], None]:
    """Something done at the first report from the second half of a run, and not at those that follow."""
    done: list[int] = []

    def at_report(job: Job, step: int) -> None:
        if step >= STEPS // 2 and not done:
            done.append(step)
            act()

    return at_report


def kill_workers() -> None:
    for process in multiprocessing.active_children():
        if process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)


def workers_left() -> int:
    deadline = time.monotonic() + 5
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    return len(multiprocessing.active_children())


def test_a_study_is_done_by_several_workers_to_the_bit(
    space: Workspace, prepared: Prepared, alone: dict[str, Path]
) -> None:
    every = work(space, prepared, {"clm": "clm", "both": "25% clm > 75% mlm(0.4)"})
    told = Told()
    assert launch.launch(every, MACHINE.model_copy(update={"workers": 2}), told) == []
    assert missing(every) == []
    assert sorted(told.events) == sorted((event, job.title) for job in every for event in ("started", "finished"))
    # The common beginning first, and then both ends.
    assert told.events[:2] == [("started", every[0].title), ("finished", every[0].title)]
    ends = {job.title: job.done for job in every[1:]}
    assert tiny.differing(ends["pretrain clm seed 0"], alone["clm"]) == []
    assert tiny.differing(ends["pretrain both seed 0"], alone["both"]) == []
    assert workers_left() == 0
    # A second time there is nothing to do, and nobody is started for it.
    assert launch.launch(missing(every), MACHINE, told) == []


def test_a_worker_killed_in_the_middle_of_a_job_changes_nothing(
    space: Workspace, prepared: Prepared, alone: dict[str, Path]
) -> None:
    every = work(space, prepared, {"both": "25% clm > 75% mlm(0.4)"})
    told = Told(once(kill_workers))
    assert launch.launch(every, MACHINE, told) == []
    assert told.count("started", every[0].title) == 2
    assert told.count("finished", every[0].title) == 1
    assert tiny.differing(every[0].done, alone["both"]) == []
    assert workers_left() == 0


def test_a_job_whose_worker_dies_twice_has_failed_and_others_go_on(space: Workspace, prepared: Prepared) -> None:
    arms = {"clm": "clm", "both": "25% clm > 75% mlm(0.4)", "mlm": "mlm(0.4)"}
    every = work(space, prepared, arms)
    trunk = every[0]
    assert trunk.title == "pretrain clm+both seed 0"
    told = Told(lambda job, step: kill_workers() if job is trunk else None)
    failures = launch.launch(every, MACHINE, told)
    assert told.count("started", trunk.title) == 2
    reasons = {job.title: reason for job, reason in failures}
    assert "its worker died twice (exit code -9" in reasons.pop(trunk.title)
    # What needs it is not even tried.
    assert reasons == dict.fromkeys(
        ["pretrain clm seed 0", "pretrain both seed 0"], "not started: what it starts from failed"
    )
    assert told.count("finished", "pretrain mlm seed 0") == 1
    assert workers_left() == 0


def test_a_job_that_fails_is_told_with_its_reason_and_others_go_on(space: Workspace, prepared: Prepared) -> None:
    every = work(space, prepared, {"clm": "clm", "both": "25% clm > 75% mlm(0.4)", "mlm": "mlm(0.4)"})
    every[0].done.mkdir(parents=True)  # as if a state were there that is none
    failures = launch.launch(missing(every), MACHINE, Told())
    reasons = {job.title: reason for job, reason in failures}
    assert set(reasons) == {"pretrain clm seed 0", "pretrain both seed 0"}
    assert all("not a complete checkpoint" in reason for reason in reasons.values())
    assert [job.title for job in missing(every)] == ["pretrain clm seed 0", "pretrain both seed 0"]


def test_an_error_of_ours_is_told_with_its_traceback(space: Workspace, prepared: Prepared) -> None:
    (job,) = work(space, prepared, {"clm": "clm"})
    assert isinstance(job.work, PretrainWork)
    nonsense: Any = None
    broken = dataclasses.replace(job, work=dataclasses.replace(job.work, run=nonsense))
    ((failed, reason),) = launch.launch([broken], MACHINE, Told())
    assert failed is broken
    assert "Traceback" in reason


def test_an_interrupt_saves_and_the_next_launch_goes_on(
    space: Workspace, prepared: Prepared, alone: dict[str, Path]
) -> None:
    every = work(space, prepared, {"both": "25% clm > 75% mlm(0.4)"})

    def interrupt() -> None:
        raise KeyboardInterrupt

    slow = MACHINE.model_copy(update={"save_seconds": 1e6})
    with pytest.raises(KeyboardInterrupt):
        launch.launch(every, slow, Told(once(interrupt)))
    assert workers_left() == 0
    (state,) = space.partial(every[0].id).iterdir()
    saved = checkpoint.read_facts(state)["step"]
    assert STEPS // 2 <= saved < STEPS
    steps: list[int] = []
    assert launch.launch(missing(every), slow, Told(lambda job, step: steps.append(step))) == []
    assert steps[0] > saved
    assert tiny.differing(every[0].done, alone["both"]) == []


def test_a_signal_to_terminate_is_an_interrupt(space: Workspace, prepared: Prepared) -> None:
    every = work(space, prepared, {"both": "25% clm > 75% mlm(0.4)"})
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        launch.launch(every, MACHINE, Told(once(lambda: os.kill(os.getpid(), signal.SIGTERM))))
    assert signal.getsignal(signal.SIGTERM) is before
    assert list(space.partial(every[0].id).iterdir())
    assert workers_left() == 0


def test_a_worker_that_died_idle_is_replaced(
    space: Workspace, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It dies between two looks at its pipe, just before it is handed a job.
    (job,) = work(space, prepared, {"clm": "clm"})
    real = launch._Launcher.hand_out
    dead: list[bool] = []

    def hand_out(self: launch._Launcher) -> None:
        if not dead:
            dead.append(True)
            kill_workers()
            for worker in self.pool.values():
                worker.process.join(5)
        real(self)

    monkeypatch.setattr(launch._Launcher, "hand_out", hand_out)
    assert launch.launch([job], MACHINE, Told()) == []
    assert missing([job]) == []


def test_the_longest_way_to_the_end_comes_first(space: Workspace, prepared: Prepared) -> None:
    arms = {"mlm": "mlm(0.4)", "clm": "clm", "both": "25% clm > 75% mlm(0.4)"}
    every = work(space, prepared, arms)
    named = {job.id: job.title for job in every}
    order = [named[name] for name in launch._order(every)]
    # The trunk has two ends behind it; clm costs more than mlm, since all its tokens get logits.
    assert order[0] == "pretrain clm+both seed 0"
    assert order.index("pretrain clm seed 0") < order.index("pretrain both seed 0")


@pytest.mark.parametrize(("machine", "count"), [(Machine(workers=3), 3), (Machine(workers=1, threads=2), 1)])
def test_as_many_workers_as_asked(machine: Machine, count: int) -> None:
    assert launch.workers(machine) == count


def test_by_itself_one_worker_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert launch.workers(Machine()) == 8
    assert launch.workers(Machine(threads=2)) == 4
    assert launch.workers(Machine(threads=16)) == 1
