"""Kill a study at random moments, go on with another number of processes, and compare with an undisturbed run.

    python benchmarks/kill_trials.py STUDY.yaml --kills 50 --processes 1 2 4 --parallel fsdp

Runs `antiphon run STUDY` in new workspaces: in peace with one process a job, in peace with the most processes asked for
(how far rounding alone comes), and killed with SIGKILL again and again and started anew each time. A kill hits the
launcher or, as often, any one process below it; it comes at any moment after the start, while steps are made, or while
a state is being written. Prints, for each kill, whom it hit and when, then whether weights, ledgers, curves and scores
are those of the undisturbed run: bit for bit if no job had several processes, else within a tolerance (sums over
several processes round in another order). Exits 1 when anything is missing or farther away, or when a process outlived
its launcher. Linux only: processes are found in /proc.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

MOMENTS = ("any", "training", "training", "saving", "saving", "saving")
LAUNCHERS_GRACE = 20.0
"""Seconds after which a process that outlives its launcher counts as an orphan."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a study again and again, and compare its end.")
    parser.add_argument("study")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, nargs="+", default=[1])
    parser.add_argument("--parallel", default="ddp")
    parser.add_argument("--tolerance", type=float, default=1e-6, help="of weights, where a job had several processes")
    parser.add_argument("--save-seconds", type=float, default=0.5)
    parser.add_argument("--set", action="append", default=[], dest="changes")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="kill-trials-"))
    changes = [f"machine.save_seconds={arguments.save_seconds}", f"machine.parallel={arguments.parallel}"]
    changes += arguments.changes
    calm, killed = root / "calm", root / "killed"

    began = time.monotonic()
    subprocess.run(command(arguments.study, calm, 1, changes), check=True, stdout=subprocess.DEVNULL)
    print(f"undisturbed run: {time.monotonic() - began:.0f} s", flush=True)
    # Prepared beforehand, so that all kills fall into training and scoring.
    for name in ("corpora", "passages", "tasks"):
        if (calm / name).is_dir():
            shutil.copytree(calm / name, killed / name)

    most = max(arguments.processes)
    if most > 1:
        shutil.copytree(killed, root / "most")
        subprocess.run(command(arguments.study, root / "most", most, changes), check=True, stdout=subprocess.DEVNULL)
        print(f"undisturbed with {most} processes: {max(distances(calm, root / 'most').values()):.1e} away", flush=True)

    draw = random.Random(arguments.seed)
    counts = itertools.cycle(arguments.processes)
    hits: collections.Counter[str] = collections.Counter()
    orphans = 0
    for number in range(1, arguments.kills + 1):
        processes = next(counts)
        launcher = subprocess.Popen(command(arguments.study, killed, processes, changes), stdout=subprocess.DEVNULL)
        moment = wait_for(draw.choice(MOMENTS), killed, launcher, draw)
        if launcher.poll() is not None:
            print(f"  ended by itself after {sum(hits.values())} kills")
            break
        whom, left = strike(launcher, draw)
        orphans += left
        hits[f"{moment} / {whom}"] += 1
        print(f"  kill {number}: {processes} processes, {whom}, {moment}; {on_disk(killed)}", flush=True)
    subprocess.run(command(arguments.study, killed, next(counts), changes), check=True, stdout=subprocess.DEVNULL)

    print("kills: " + ", ".join(f"{count} x {what}" for what, count in sorted(hits.items())))
    print(f"processes that outlived their launcher: {orphans}")
    wrong = compare(calm, killed, arguments.tolerance if most > 1 else 0.0)
    shutil.rmtree(root)
    return 1 if wrong or orphans or sum(hits.values()) < arguments.kills else 0


def command(study: str, space: Path, processes: int, changes: Sequence[str]) -> list[str]:
    settings = [*changes, f"machine.processes={processes}"]
    antiphon = str(Path(sys.executable).with_name("antiphon"))
    return [antiphon, "run", study, "--workspace", str(space), *(p for change in settings for p in ("--set", change))]


def wait_for(moment: str, space: Path, launcher: subprocess.Popen[bytes], draw: random.Random) -> str:
    """Wait for a moment of this kind; what it really was."""
    if moment == "any":
        wait_until(lambda: False, launcher, draw.uniform(0, 20))
        return moment
    lines = reported(space)
    # Every try needs some seconds to load torch before there is anything to lose.
    wait_until(lambda: reported(space) > lines, launcher, 120)
    wait_until(lambda: False, launcher, draw.uniform(0, 2))
    if moment == "saving" and not wait_until(lambda: writing(space), launcher, 5):
        return "training"
    return moment


def wait_until(reached: Any, launcher: subprocess.Popen[bytes], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and launcher.poll() is None:
        if reached():
            return True
        time.sleep(0.001)
    return False


def reported(space: Path) -> int:
    """Lines of all logs of training."""
    return sum(path.stat().st_size for path in (space / "logs").glob("*.jsonl"))


def writing(space: Path) -> bool:
    """Whether a state is being written: it has a name with a dot until it is whole."""
    return any(space.glob("partial/*/.*")) or any(space.glob("states/.*"))


def strike(launcher: subprocess.Popen[bytes], draw: random.Random) -> tuple[str, int]:
    """Kill the launcher or one process below it; who was hit, and how many outlived the launcher's end."""
    below = list(descendants(launcher.pid))
    victim = draw.choice(below) if below and draw.random() < 0.5 else launcher.pid
    whom = "launcher" if victim == launcher.pid else "process below"
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    if victim != launcher.pid:
        time.sleep(draw.uniform(0, 3))  # what the others do about it must be right too
        below = list(descendants(launcher.pid))
        launcher.kill()
    launcher.wait()
    end = time.monotonic() + LAUNCHERS_GRACE
    while time.monotonic() < end and any(alive(process) for process in below):
        time.sleep(0.05)
    left = [process for process in below if alive(process)]
    for process in left:
        print(f"  outlived by {LAUNCHERS_GRACE:g} s: {arguments_of(process)}", flush=True)
    return whom, len(left)


def descendants(root: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == root:
                yield int(folder.name)
                yield from descendants(int(folder.name))


def arguments_of(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")[-200:]
    return "ended since"


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def on_disk(space: Path) -> str:
    whole = len(list((space / "states").glob("[!.]*")))
    partial = len(list(space.glob("partial/*/step-*")))
    cut = len(list(space.glob("partial/*/.*"))) + len(list(space.glob("states/.*")))
    return f"on disk {whole} states, {partial} on the way, {cut} cut off"


def compare(calm: Path, killed: Path, tolerance: float) -> int:
    """Print what is equal and what is not; how much is not."""
    far = distances(calm, killed)
    wrong = sum(value > tolerance for value in far.values())
    exact = sum(value == 0 for value in far.values())
    print(
        f"{len(far)} states: {exact} bit-equal, {len(far) - exact - wrong} within {tolerance:g}, {wrong} not or missing"
    )
    print(f"largest difference of a weight: {max(far.values()):.1e}")
    logs = sorted(path.name for path in (calm / "logs").glob("*.jsonl"))
    curves = [(lines(calm / "logs" / name), lines(killed / "logs" / name)) for name in logs]
    lost = sum(ledger(one) != ledger(other) for one, other in curves)
    print(f"{len(logs)} logs: {len(logs) - lost} with every report once and the same tokens and words, {lost} not")
    pairs = [pair for one, other in curves for pair in zip(one, other, strict=False)]
    apart = [abs(one["loss"][name] - other["loss"].get(name, math.inf)) for one, other in pairs for name in one["loss"]]
    print(f"{len(pairs)} reports: largest difference of a loss {max(apart, default=0.0):.1e}")
    rows = [path.name for path in (calm / "results").glob("*.jsonl")] if (calm / "results").is_dir() else []
    scores = sum(values(calm / "results" / name) != values(killed / "results" / name) for name in rows)
    print(f"{len(rows)} score files: {len(rows) - scores} equal, {scores} differ or are missing")
    return wrong + lost + (scores if tolerance == 0 else 0)


def distances(one: Path, other: Path) -> dict[str, float]:
    """Of the states of two workspaces."""
    names = sorted(path.name for path in (one / "states").iterdir())
    return {name: distance(one / "states" / name, other / "states" / name) for name in names}


def distance(one: Path, other: Path) -> float:
    """The largest difference of a weight; infinite where there is none to compare."""
    if not (other / "model.safetensors").is_file():
        return float("inf")
    first, second = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    return max(float(abs(first[name] - second[name]).max()) for name in first)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def ledger(curve: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(line[name] for name in ("step", "tokens_seen", "words_seen")) for line in curve]


def values(path: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in lines(path)]


if __name__ == "__main__":
    sys.exit(main())
