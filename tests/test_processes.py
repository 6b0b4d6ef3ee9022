"""Workers end with the process that started them, and leave Ctrl-C to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

POOL = """
import multiprocessing, time
from antiphon.processes import pool

if __name__ == "__main__":
    with pool(2) as executor:
        list(executor.map(abs, range(4)))
        work = [executor.submit(time.sleep, 0.2) for _ in range(TASKS)]
        print(*[child.pid for child in multiprocessing.active_children()], flush=True)
        time.sleep(60)
"""

# Three modules of the library are pipes that nobody writes to, so whoever reads one is at work for ever.
LIBRARY = """
import multiprocessing, os, sys, threading, time
from antiphon.data import docstrings

def tell():
    while len(multiprocessing.active_children()) < 2:
        time.sleep(0.02)
    os.close(os.open("site/fakelib/one.py", os.O_WRONLY))  # waits until a worker reads it
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)

if __name__ == "__main__":
    sys.path.insert(0, "site")
    docstrings._FILES_AT_ONCE = 1
    threading.Thread(target=tell, daemon=True).start()
    docstrings.extract({"fakelib": "fakelib"}, workers=2)
"""


@contextmanager
def running(script: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A script in a process group of its own, and the processes it has started; all of them are ended at last."""
    path = folder / "script.py"
    path.write_text(script, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(path)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            children = [int(pid) for pid in process.stdout.readline().split()]
            assert len(children) == 2, process.communicate()
            yield process, children
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def lives(pid: int) -> bool:
    """Whether a process is there and not a zombie, which nobody may wait for in a container."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def all_end(pids: list[int], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while any(map(lives, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(lives, pids))


@pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")
def test_workers_of_a_killed_process_end(tmp_path: Path) -> None:
    with running(POOL.replace("TASKS", "9"), tmp_path) as (process, children):
        assert all(map(lives, children))
        process.kill()
        process.wait()
        assert all_end(children)


@pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")
@pytest.mark.parametrize("tasks", [0, 1000])
def test_an_interrupt_is_told_once_and_drops_what_waits(tmp_path: Path, tasks: int) -> None:
    with running(POOL.replace("TASKS", str(tasks)), tmp_path) as (process, children):
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
        assert process.returncode != 0
        assert complaint.count("Traceback") == 1
        assert "SpawnProcess" not in complaint
        assert time.monotonic() - began < 20
        assert all_end(children)


@pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")
def test_reading_libraries_leaves_no_process_behind(tmp_path: Path) -> None:
    folder = tmp_path / "site" / "fakelib"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    for name in ("one", "two", "three"):
        os.mkfifo(folder / f"{name}.py")
    with running(LIBRARY, tmp_path) as (process, children):
        process.kill()
        process.wait()
        assert all_end(children)
