"""Worker processes that end with the process that started them, however it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor


def end_with_parent() -> None:
    """Watch the parent from a thread, and end this process when the parent has ended: a kill -9 leaves no orphan."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def launched() -> bool:
    """Whether this process is one of those that torchrun, or another launcher that speaks as it does, has started."""
    return "WORLD_SIZE" in os.environ


@contextlib.contextmanager
def pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes for the length of a block, to be opened by the main thread.

    They leave Ctrl-C to this process, where each would print a traceback of its own; what they have not begun is
    dropped when the block is left. They end with this process, where they would wait for ever on a queue whose other
    end they hold themselves.
    """
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_follow)
    try:
        with deaf():
            for _ in range(workers):
                executor.submit(int)  # starts one more, unless one is idle already
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Ignore Ctrl-C for the length of a block, to be entered by the main thread; what starts in it never hears any."""
    hearing = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, hearing)


def _follow() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
