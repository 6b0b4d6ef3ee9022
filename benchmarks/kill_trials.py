"""Kill a study at random moments and compare its final weights with those of an undisturbed run.

    python benchmarks/kill_trials.py STUDY.yaml --kills 10

Runs `antiphon run STUDY` twice in new workspaces: once in peace, once killed with SIGKILL again and again and started
anew each time. Prints, for each kill, when it came and what was saved, then whether all states have the same weights.
Exits 1 when any state differs or is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], dest="changes")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="kill-trials-"))
    changes = [part for change in arguments.changes for part in ("--set", change)]
    antiphon = str(Path(sys.executable).with_name("antiphon"))
    command = [antiphon, "run", arguments.study, "--set", "machine.save_seconds=1", *changes, "--workspace"]

    began = time.monotonic()
    subprocess.run([*command, str(root / "calm")], check=True, stdout=subprocess.DEVNULL)
    calm = time.monotonic() - began
    print(f"undisturbed run: {calm:.0f} s", flush=True)

    draw = random.Random(arguments.seed)
    disturbed = root / "killed"
    # Prepared beforehand, so that all kills fall into training and scoring.
    for name in ("corpora", "passages", "tasks"):
        if (root / "calm" / name).is_dir():
            shutil.copytree(root / "calm" / name, disturbed / name)
    done = 0
    while done < arguments.kills:
        process = subprocess.Popen([*command, str(disturbed)], stdout=subprocess.DEVNULL)
        # Every try needs some seconds to load torch before there is anything to lose.
        wait = draw.uniform(3, 3 + 1.5 * calm / arguments.kills)
        try:
            process.wait(wait)
            print(f"  ended by itself after {done} kills; the remaining kills were not needed")
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            done += 1
            time.sleep(0.5)
            states = len(list((disturbed / "states").glob("[!.]*")))
            partial = len(list((disturbed / "partial").glob("*/step-*")))
            print(f"  kill {done} after {wait:.1f} s: {states} states and {partial} partial states on disk", flush=True)
    subprocess.run([*command, str(disturbed)], check=True, stdout=subprocess.DEVNULL)

    names = sorted(path.name for path in (root / "calm" / "states").iterdir())
    wrong = [name for name in names if weights(root / "calm", name) != weights(disturbed, name)]
    rows = [path.name for path in (root / "calm" / "results").glob("*.jsonl")]
    lost = [name for name in rows if values(root / "calm", name) != values(disturbed, name)]
    print(f"{len(names)} states: {len(names) - len(wrong)} bit-equal, {len(wrong)} differ or are missing")
    print(f"{len(rows)} score files: {len(rows) - len(lost)} equal, {len(lost)} differ or are missing")
    shutil.rmtree(root)
    return 1 if wrong or lost or done < arguments.kills else 0


def weights(space: Path, name: str) -> str:
    path = space / "states" / name / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else f"missing in {space.name}"


def values(space: Path, name: str) -> list[dict[str, object]]:
    path = space / "results" / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    rows = [json.loads(line) for line in lines] if path.is_file() else [{"missing in": space.name}]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


if __name__ == "__main__":
    sys.exit(main())
