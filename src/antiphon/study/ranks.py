"""A pretraining job in one process or in several: `torchrun` starts the ranks, and this module is what they run."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from antiphon.config import UserError
from antiphon.data.prepare import Prepared
from antiphon.data.supply import supply
from antiphon.machine import Machine
from antiphon.pretrain import run as pretraining
from antiphon.pretrain.config import Course
from antiphon.pretrain.segment import Segment
from antiphon.study.jobs import PretrainWork
from antiphon.study.workspace import Workspace
from antiphon.train.memory import keep_freed_memory
from antiphon.train.parallel import Parallel
from antiphon.train.ranks import joined, met

Report = Callable[[dict[str, Any]], None]

LONGEST_REASON = 3000
"""Characters of a reason that are passed on: with its line, less than a pipe takes in one piece."""


def pretrain(
    work: PretrainWork, machine: Machine, ranks: Parallel, report: Report, stopped: Callable[[], bool]
) -> None:
    """Train one segment as one of the ranks; see pretrain.run."""
    keep_freed_memory()
    space = Workspace(work.workspace)
    folder = space.corpus(work.corpus)
    batch = work.run.batch
    course = Course(work.run, work.corpus, supply(folder, work.run.weights, batch.packing, batch.block))
    segment = Segment(
        course,
        work.start,
        work.stop,
        space.state(work.origin) if work.origin else None,
        space.state(work.target),
        space.partial(work.target),
        space.log(work.target),
    )
    pretraining.run(segment, Prepared.open(folder), machine, ranks, report, stopped)


def pretrain_together(work: PretrainWork, machine: Machine, report: Report, stopped: Callable[[], bool]) -> None:
    """Train one segment in `machine.processes` processes of this machine; arguments and errors as in pretrain.run.

    Their standard input is a rope: they stop when it is pulled (a byte arrives), and end when it is cut, which
    happens by itself when this process ends, however it ends.
    """
    with tempfile.TemporaryDirectory(prefix="antiphon-job-") as folder:
        job, noise = Path(folder) / "job", Path(folder) / "noise"
        job.write_bytes(pickle.dumps((work, machine)))
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
            *("--nproc-per-node", str(machine.processes), "-m", "antiphon.study.ranks", str(job)),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": str(machine.threads)}
        with (
            noise.open("wb") as stderr,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment
            ) as process,
        ):
            try:
                last = _listen(process, report, stopped)
            except BaseException:
                process.kill()  # the rope is cut when the block is left, and the ranks end
                raise
        if "interrupted" in last:
            raise pretraining.Interrupted
        if "failed" in last:
            raise (UserError if last["told"] else RuntimeError)(last["failed"])
        if process.returncode:
            words = noise.read_text(encoding="utf-8", errors="replace")[-LONGEST_REASON:]
            raise RuntimeError(f"the job's processes ended with exit code {process.returncode}:\n{words}")


def _listen(process: subprocess.Popen[bytes], report: Report, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Pass progress on and a wish to stop in, until all ranks have ended; what was said last that is not progress."""
    assert process.stdin is not None
    assert process.stdout is not None
    last: dict[str, Any] = {}
    rest, asked = b"", False
    while True:
        if not asked and stopped():
            process.stdin.write(b"\n")
            process.stdin.flush()
            asked = True
        if not wait([process.stdout.fileno()], timeout=0.25):
            continue
        read = os.read(process.stdout.fileno(), 2**16)
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                continue  # some library's chatter
            if isinstance(said, dict) and "progress" in said:
                report(said["progress"])
            elif isinstance(said, dict):
                last = said
        if not read:
            process.wait()
            return last


def main(job: Path) -> int:
    """What one rank does; the exit code."""
    pulled = threading.Event()
    threading.Thread(target=_hold_the_rope, args=(pulled,), daemon=True).start()
    import torch

    work, machine = pickle.loads(job.read_bytes())
    torch.set_num_threads(machine.threads)
    try:
        with met() as meeting, joined(machine, meeting) as ranks:
            try:
                pretrain(work, machine, ranks, lambda facts: _say(progress=facts), pulled.is_set)
            except pretraining.Interrupted:
                if ranks.rank == 0:
                    _say(interrupted=True)
    except (UserError, OSError) as error:
        _say(failed=str(error)[:LONGEST_REASON], told=True)
        return 1
    except Exception:
        _say(failed=traceback.format_exc()[-LONGEST_REASON:], told=False)
        return 1
    return 0


def _hold_the_rope(pulled: threading.Event) -> None:
    while os.read(0, 1):
        pulled.set()
    os._exit(1)


def _say(**what: Any) -> None:
    os.write(1, (json.dumps(what) + "\n").encode())


if __name__ == "__main__":
    # Not sys.exit: threads of the exchange between ranks that still run would abort an interpreter that shuts down.
    os._exit(main(Path(sys.argv[1])))
