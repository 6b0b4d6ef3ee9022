"""The next batch is made in a thread while a step is computed; it depends on its step alone, so nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Ahead(Generic[Made]):
    """A function of the step that has the value of the next step ready, or nearly so."""

    def __init__(self, make: Callable[[int], Made], stop: int) -> None:
        """Wrap a function.

        Args:
            make: a pure function of the step.
            stop: the step before which there is nothing to make any more.
        """
        self._make = make
        self._stop = stop
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        self._coming: tuple[int, Future[Made]] | None = None

    def __call__(self, step: int) -> Made:
        """The value at `step`; an exception in making it is raised here."""
        coming = self._coming
        found = coming[1].result() if coming is not None and coming[0] == step else self._make(step)
        following = step + 1
        self._coming = (following, self._thread.submit(self._make, following)) if following < self._stop else None
        return found

    def close(self) -> None:
        """End the thread; a value under way is dropped."""
        self._thread.shutdown(wait=True, cancel_futures=True)
