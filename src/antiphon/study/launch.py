"""Do what is not done, on this machine: resident workers from a preloaded server process, one job at a time each."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from antiphon.config import UserError
from antiphon.machine import Machine
from antiphon.processes import deaf, end_with_parent
from antiphon.study.jobs import Job

GRACE_SECONDS = 20.0


class Watcher(Protocol):
    """Who is told how the work goes."""

    def started(self, worker: int, job: Job) -> None: ...
    def progress(self, worker: int, job: Job, facts: dict[str, Any]) -> None: ...
    def finished(self, worker: int, job: Job, seconds: float) -> None: ...
    def failed(self, job: Job, reason: str) -> None: ...
    def refresh(self) -> None: ...
    def stopping(self) -> None: ...


@dataclasses.dataclass
class _Worker:
    """A process of ours: its pipe, and the job it is at."""

    process: Any
    pipe: Connection
    job: Job | None = None
    began: float = 0.0


def workers(machine: Machine) -> int:
    """How many jobs run at once: as asked, or one for each core this process may use.

    With a CUDA device one job at a time has it, unless more are asked for.
    """
    if machine.workers:
        return machine.workers
    if machine.device != "cpu" and Path("/dev/nvidia0").exists():
        return 1
    # Only Linux says which cores are ours.
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, cores // (machine.threads * machine.processes))


def launch(todo: Sequence[Job], machine: Machine, watcher: Watcher) -> list[tuple[Job, str]]:
    """Do jobs, each after the one it needs.

    Args:
        todo: the jobs; a job it needs that is not among them is done already.
        machine: where and how many at once.
        watcher: told how it goes.

    Returns:
        The jobs that failed, with the reasons, and those that could not start because of them.

    Raises:
        KeyboardInterrupt: after the workers have saved their states.
    """
    if not todo:
        return []
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        # One thread a worker: two busy processes with two threads each on two cores would halve each other.
        os.environ[name] = str(machine.threads)
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        # Fine-tuning meets hundreds of shapes, and oneDNN keeps a kernel for each: 1.6 GB a worker instead of 0.7,
        # and no faster for it.
        os.environ.setdefault(name, "32")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["antiphon.study.work"])
    # While it loads torch, the server would answer Ctrl-C with a traceback; it inherits the deafness.
    with deaf():
        forkserver.ensure_running()
    launcher = _Launcher(context, list(todo), machine, watcher)
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        return launcher.run(min(workers(machine), len(todo)))
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


class _Launcher:
    def __init__(self, context: Any, todo: list[Job], machine: Machine, watcher: Watcher) -> None:
        self.context, self.machine, self.watcher = context, machine, watcher
        self.waiting = {job.id: job for job in todo}
        self.order = _order(todo)
        self.pool: dict[int, _Worker] = {}
        self.failures: list[tuple[Job, str]] = []
        self.died: dict[str, int] = {}

    def run(self, count: int) -> list[tuple[Job, str]]:
        try:
            for number in range(count):
                self.pool[number] = self.start_worker()
            while self.waiting or any(worker.job for worker in self.pool.values()):
                self.hand_out()
                if not any(worker.job for worker in self.pool.values()):
                    break
                self.listen(0.25)
                self.watcher.refresh()
            return self.failures
        except KeyboardInterrupt:
            self.wind_down()
            raise
        finally:
            self.dismiss()

    def start_worker(self) -> _Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, self.machine), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def hand_out(self) -> None:
        """Give every idle worker a job whose beginning is there."""
        lost = {failed.id for failed, _ in self.failures}
        for name in [name for name in self.order if name in self.waiting and self.waiting[name].needs in lost]:
            lost.add(name)
            self.failures.append((self.waiting.pop(name), "not started: what it starts from failed"))
        for number, worker in self.pool.items():
            busy = {other.job.id for other in self.pool.values() if other.job}
            ready = (self.waiting[name] for name in self.order if name in self.waiting)
            job = next((job for job in ready if job.needs not in self.waiting and job.needs not in busy), None)
            if worker.job is None and job is not None:
                del self.waiting[job.id]
                worker.job, worker.began = job, time.monotonic()
                # A worker may have died idle since the last look; `listen` then finds its pipe closed.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    worker.pipe.send(job.work)
                self.watcher.started(number, job)

    def listen(self, seconds: float) -> None:
        pipes = {worker.pipe: number for number, worker in self.pool.items()}
        for pipe in wait(list(pipes), timeout=seconds):
            number = pipes[pipe]  # pyright: ignore[reportArgumentType]
            worker = self.pool[number]
            try:
                kind, facts = worker.pipe.recv()
            except (EOFError, OSError):
                self.bury(number)
                continue
            job = worker.job
            if job is None:
                continue
            if kind == "progress":
                self.watcher.progress(number, job, facts)
                continue
            worker.job = None
            if kind == "done":
                self.watcher.finished(number, job, time.monotonic() - worker.began)
            elif kind == "failed":
                self.fail(job, facts)

    def bury(self, number: int) -> None:
        """A worker died: its job is tried once more by a new worker, then counts as failed."""
        worker = self.pool[number]
        worker.process.join(5)
        self.pool[number] = self.start_worker()
        job = worker.job
        if job is None:
            return
        self.died[job.id] = self.died.get(job.id, 0) + 1
        if self.died[job.id] < 2:
            self.waiting[job.id] = job
        else:
            code = worker.process.exitcode
            self.fail(job, f"its worker died twice (exit code {code}; -9 is often a lack of memory)")

    def fail(self, job: Job, reason: str) -> None:
        self.failures.append((job, reason))
        self.watcher.failed(job, reason)

    def dismiss(self) -> None:
        """End all workers: an idle one ends when its pipe closes, a busy one is killed; what it saved is on disk."""
        for worker in self.pool.values():
            worker.pipe.close()
            if worker.job is not None:
                worker.process.kill()
        for worker in self.pool.values():
            worker.process.join(5)
            worker.process.kill()

    def wind_down(self) -> None:
        """Ask the workers that pretrain to save and stop; a second interrupt does not wait.

        A fine-tuning has nothing to save: it is short, and done again.
        """
        self.watcher.stopping()
        for number, worker in list(self.pool.items()):
            if worker.job is not None and not worker.job.is_pretraining:
                worker.process.kill()
                worker.process.join()
                worker.pipe.close()
                del self.pool[number]
            elif worker.job is not None:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    worker.pipe.send(None)
        end = time.monotonic() + GRACE_SECONDS
        while any(worker.job for worker in self.pool.values()) and time.monotonic() < end:
            self.listen(0.25)
            self.watcher.refresh()


def _order(todo: Sequence[Job]) -> list[str]:
    """Job ids in the order they are handed out: the longest way to the end first, so that no core idles at the end.

    Fine-tunings fill in behind the pretrainings, in the order of the plan.
    """
    below: dict[str, float] = {}
    for job in reversed(todo):
        below[job.id] = below.get(job.id, 0.0) + job.weight
        if job.is_pretraining and job.needs:
            below[job.needs] = max(below.get(job.needs, 0.0), below[job.id])
    ranked = sorted(todo, key=lambda job: (not job.is_pretraining, -below[job.id] if job.is_pretraining else 0))
    return [job.id for job in ranked]


def _serve(pipe: Connection, machine: Machine) -> None:
    """A worker's life: take a job, do it, say how it went; end with the launcher.

    The one thing that is said to a busy worker is None, the wish to stop. It comes through the pipe, not as a shared
    event: a worker that is killed while it looks at an event takes the event's lock with it, and all others would wait.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    from antiphon.pretrain.run import Interrupted
    from antiphon.study.work import execute

    while True:
        try:
            work = pipe.recv()
        except EOFError:
            return
        if work is None:
            continue
        try:
            execute(work, machine, lambda facts: pipe.send(("progress", facts)), pipe.poll)
            pipe.send(("done", None))
        except Interrupted:
            pipe.send(("interrupted", None))
        except (UserError, OSError) as error:
            pipe.send(("failed", str(error)))
        except Exception:
            pipe.send(("failed", traceback.format_exc()))
