"""One run of a study by itself: in a worker of this process, or in the processes that a cluster's launcher started."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from antiphon.files import lock
from antiphon.study import drive, launch
from antiphon.study.console import LiveConsole, clock
from antiphon.study.jobs import Job, PretrainWork, jobs
from antiphon.study.plan import Plan, RunKey
from antiphon.study.study import Finetuning, Study, read
from antiphon.study.workspace import Workspace

if TYPE_CHECKING:
    from antiphon.machine import Machine
    from antiphon.train.parallel import Parallel

REFRESH_SECONDS = 0.25
EXIT_STOPPED = 130


def pretrain(path: Path, changes: Sequence[str], name: str, space: Workspace, console: Console) -> int:
    """Train what one run lacks, here; its corpus is prepared first. The exit code is 1 when that failed.

    Args:
        path, changes: the study, as study.read takes them.
        name: of the run, as Study.named takes it.
        space: where everything lies.
        console: told how it goes.

    Raises:
        UserError: the study, the name or the corpus is wrong, or another process trains this run.
        KeyboardInterrupt: after the state was saved.
    """
    study = read(path, changes)
    study.named(name)
    _prepare(study, space, console)
    with _claimed(study, name, space, console) as todo:
        if not todo:
            return 0
        began = time.monotonic()
        machine = study.machine.model_copy(update={"workers": 1})
        with LiveConsole(console, todo, 0, 1) as watcher:
            failures = launch.launch(todo, machine, watcher)
        if not failures:
            _say_done(console, name, todo, began)
    return 1 if failures else 0


def pretrain_as_a_rank(path: Path, changes: Sequence[str], name: str, space: Workspace, console: Console) -> int:
    """Train what one run lacks as one of the ranks that a launcher started; arguments and errors as in `pretrain`.

    The first rank plans, tells and writes. The machines share a disk, on which the corpus is prepared already, unless
    there is one rank only: to prepare it takes longer than others should wait.
    """
    from antiphon.pretrain.run import Interrupted
    from antiphon.train.ranks import joined, met

    stopped = False
    with met() as meeting:
        study = read(path, changes)
        study.named(name)
        if meeting.world == 1:
            _prepare(study, space, console)
        with joined(study.machine, meeting) as ranks, _asked_to_stop() as asked:
            first = ranks.rank == 0
            seen = console if first else Console(quiet=True, force_terminal=False)
            with _claimed(study, name, space, seen) if first else contextlib.nullcontext([]) as lacking:
                # One looks: what is done may change from one look to the next.
                todo = ranks.gather(lacking)[0]
                began = time.monotonic()
                try:
                    with LiveConsole(seen, todo, 0, 1) as watcher:
                        _train(todo, study.machine, ranks, watcher, asked)
                    if todo:
                        _say_done(seen, name, todo, began)
                except Interrupted:
                    stopped = True
    if stopped and first:
        raise KeyboardInterrupt
    return EXIT_STOPPED if stopped else 0


def _prepare(study: Study, space: Workspace, console: Console) -> None:
    if not drive.corpus_folder(study, space).is_dir():
        with lock(space.lock, wait=False, holder="another `antiphon`"):
            drive.prepare_corpus(study, space, console)


def _train(
    todo: Sequence[Job], machine: Machine, ranks: Parallel, watcher: LiveConsole, asked: Callable[[], bool]
) -> None:
    import torch

    from antiphon.pretrain.run import Interrupted
    from antiphon.study import ranks as together

    torch.set_num_threads(machine.threads)
    drawn, told = time.monotonic(), False

    def stopped() -> bool:
        """Asked after every step, so that the display is kept up here."""
        nonlocal drawn, told
        if time.monotonic() - drawn > REFRESH_SECONDS:
            drawn = time.monotonic()
            watcher.refresh()
        if asked() and not told:
            told = True
            drive.say(watcher.console, "stopping: saving what is being trained")
        return told

    for job in todo:
        assert isinstance(job.work, PretrainWork)
        if ranks.sum(float(stopped())):
            raise Interrupted
        began = time.monotonic()
        watcher.started(0, job)

        def report(facts: dict[str, Any], job: Job = job) -> None:
            watcher.progress(0, job, facts)

        together.pretrain(job.work, machine, ranks, report, stopped)
        watcher.finished(0, job, time.monotonic() - began)


@contextlib.contextmanager
def _claimed(study: Study, name: str, space: Workspace, console: Console) -> Iterator[list[Job]]:
    """The segments that a run lacks, in order; for the length of the block nobody else trains them.

    Others may train other runs of the same workspace meanwhile.
    """
    run = study.named(name)
    # Without tasks: their data are not needed to train.
    found = drive.planned(study.model_copy(update={"finetune": Finetuning()}), space)
    with lock(space.lock, wait=False, holder="another `antiphon`", shared=True), contextlib.ExitStack() as claims:
        for job in _lacking(found, run, space):
            claims.enter_context(lock(space.claim(job.id), wait=False, holder="another `antiphon pretrain`"))
        todo = _lacking(found, run, space)  # another one may just have ended
        count = len(found.path(run))
        if not todo:
            state = space.state(found.path(run)[-1].target)
            drive.say(console, f"nothing to do: run {name} is trained; its last state is {state}")
        else:
            drive.say(console, f"run {name}: {len(todo)} of {count} segments to do")
        for job in todo:
            if step := drive.saved_step(space, job):
                drive.say(console, f"  {job.title} goes on from step {step}")
        yield todo


def _lacking(found: Plan, run: RunKey, space: Workspace) -> list[Job]:
    """The segments of a run that are still to be trained, as jobs: see jobs.missing."""
    path = {segment.target for segment in found.path(run)}
    readings = {reading.state for reading in found.readings if (reading.arm, reading.seed) == run}
    steps = [job for job in jobs(found, space) if job.id in path]
    todo: list[Job] = []
    for job in reversed(steps):
        wanted = job is steps[-1] or job.id in readings or (todo and todo[-1].needs == job.id)
        if wanted and not job.done.exists():
            todo.append(job)
    return todo[::-1]


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """For the length of a block, Ctrl-C and the signal to terminate are a wish, which the function tells of."""
    asked: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda number, frame: asked.append(number)) for number in numbers}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_done(console: Console, name: str, todo: Sequence[Job], began: float) -> None:
    seconds = clock(time.monotonic() - began)
    drive.say(console, f"run {name}: trained in {seconds}; its last state is {todo[-1].done}")
