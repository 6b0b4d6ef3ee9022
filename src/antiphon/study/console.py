"""The live console: what each worker is at, how far the study is, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from antiphon.study.jobs import Job

LINE_SECONDS = 10.0


class LiveConsole:
    """A watcher that redraws a few lines on a terminal, and prints a line now and then elsewhere."""

    def __init__(self, console: Console, todo: Sequence[Job], done: int, workers: int) -> None:
        """Begin a display.

        Args:
            console: where to write.
            todo: the jobs that will be done.
            done: how many jobs were done before.
            workers: jobs at once.
        """
        self.console, self.workers = console, workers
        self.total, self.before = len(todo) + done, done
        self.left = {job.id: job for job in todo}
        self.rows: dict[int, str] = {}
        self.spent: dict[bool, tuple[float, float]] = {}
        self.share: dict[str, float] = {}
        self.shares_begun: dict[str, float] = {}
        self.began = self.printed = time.monotonic()
        self.live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> LiveConsole:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()

    def started(self, worker: int, job: Job) -> None:
        self.rows[worker] = job.title
        self.shares_begun[job.id] = time.monotonic()

    def progress(self, worker: int, job: Job, facts: dict[str, Any]) -> None:
        if "tokens_per_second" in facts:
            losses = ", ".join(f"{name} {value:.3f}" for name, value in facts["loss"].items())
            self.rows[worker] = (
                f"{job.title.removeprefix('pretrain ')} {facts['step']}/{facts['steps']} · phase {facts['phase']}/"
                f"{facts['phases']} · loss {losses} · {facts['tokens_per_second'] / 1000:.1f}k tokens/s"
            )
            work = job.work
            start, stop = getattr(work, "start", 0), getattr(work, "stop", 1)
            self.share[job.id] = (facts["step"] - start) / max(stop - start, 1)

    def finished(self, worker: int, job: Job, seconds: float) -> None:
        self.left.pop(job.id, None)
        self.rows.pop(worker, None)
        spent, weight = self.spent.get(job.is_pretraining, (0.0, 0.0))
        self.spent[job.is_pretraining] = (spent + seconds, weight + job.weight)

    def failed(self, job: Job, reason: str) -> None:
        self.left.pop(job.id, None)
        self.console.print(f"[red]failed[/red] {escape(job.title)}: ", end="")
        self.console.print(reason.strip(), markup=False, highlight=False, soft_wrap=True)

    def stopping(self) -> None:
        self.console.print("stopping: saving what is being trained (Ctrl-C again stops at once)")

    def refresh(self) -> None:
        now = time.monotonic()
        if self.live:
            self.live.update(self._drawing(), refresh=True)
        elif now - self.printed > LINE_SECONDS:
            self.printed = now
            self.console.print(
                f"{self._summary()} | " + " | ".join(self.rows.values()), highlight=False, soft_wrap=True
            )

    def seconds_left(self) -> float | None:
        """About how long the rest takes; None while nothing is known."""
        rates = {kind: spent / weight for kind, (spent, weight) in self.spent.items() if weight}
        now = time.monotonic()
        if True not in rates:
            running = [
                (now - self.shares_begun[name], self.left[name].weight * share)
                for name, share in self.share.items()
                if name in self.left and share > 0
            ]
            if running:
                rates[True] = sum(seconds for seconds, _ in running) / sum(weight for _, weight in running)
        if not rates:
            return None
        # Until a kind of job has been seen, it is taken to cost as much an operation as the other kind.
        guess = next(iter(rates.values()))
        rest = sum(
            job.weight * (1 - self.share.get(name, 0.0)) * rates.get(job.is_pretraining, guess)
            for name, job in self.left.items()
        )
        return rest / self.workers

    def _summary(self) -> str:
        left = self.seconds_left()
        waiting = "estimating" if left is None else f"about {clock(left)} left"
        done = self.total - len(self.left)
        return f"{done}/{self.total} jobs · {clock(time.monotonic() - self.began)} · {waiting}"

    def _drawing(self) -> Group:
        done = self.total - len(self.left)
        head = Table.grid(padding=(0, 1))
        head.add_row(ProgressBar(total=max(self.total, 1), completed=done, width=30), Text(self._summary()))
        lines = [
            Text(f"  {self.rows.get(number, 'idle')}", overflow="ellipsis", no_wrap=True)
            for number in range(self.workers)
        ]
        return Group(head, *lines)


def clock(seconds: float) -> str:
    """A duration as 1:02:03 or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
