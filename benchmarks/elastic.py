"""Stop a run of several processes, let one process end it, and lay its curve over that of an undisturbed run.

    python benchmarks/elastic.py --figure docs/elastic.svg

Trains `25% clm > 75% mlm(0.4)` on the pocket corpus twice: undisturbed in one process, and sharded over `--processes`
(FSDP2), asked to stop like by Ctrl-C when half of the steps are done, and gone on with in one process. Prints how far
the curves, the tokens and words counted and the final weights are apart, and draws both curves.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

STUDY = """\
name: elastic
question: Does a run that changes its number of processes come to what an undisturbed one comes to?
baseline: biphasic
pretrain:
  corpus: pocket
  tokenizer: {vocabulary: 4096}
  model: {layers: 4, width: 128, heads: 4, ffn: 384}
  budget: 400 steps
  batch: {rows: 8, length: 128}
  learning_rate: {peak: 1e-3, shape: wsd, warmup: 5%, decay: 20%}
  validation: {points: 20, rows: 32}
axes:
  schedule: {biphasic: "25% clm > 75% mlm(0.4)"}
  seed: [0]
finetune: {tasks: []}
machine: {workers: 1, precision: float32, parallel: fsdp}
"""
CURVES = {"training": "#5b5b5b", "clm": "#b4552d", "mlm": "#1f5a7a"}


def main() -> None:
    parser = argparse.ArgumentParser(description="A run of several processes is stopped and ended by one.")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--figure", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="elastic-") as folder:
        root = Path(folder)
        (root / "study.yaml").write_text(STUDY, encoding="utf-8")
        calm, moved = root / "calm", root / "moved"
        subprocess.run(command(root, calm, 1), check=True, stdout=subprocess.DEVNULL)
        shutil.copytree(calm / "corpora", moved / "corpora")
        process = subprocess.Popen(command(root, moved, arguments.processes), stdout=subprocess.DEVNULL)
        while process.poll() is None and not any(line["step"] >= 200 for line in curve(moved)):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.wait()
        saved = max(int(path.name.removeprefix("step-")) for path in moved.glob("partial/*/step-*"))
        subprocess.run(command(root, moved, 1), check=True, stdout=subprocess.DEVNULL)
        one, other = curve(calm), curve(moved)
        print(
            f"{arguments.processes} processes (FSDP2) up to step {saved} of {one[-1]['step']}, 1 process from there on"
        )
        same = [line["step"] for line in one] == [line["step"] for line in other]
        print(f"{len(one)} reports, the same steps: {same}")
        for name in ("tokens_seen", "words_seen"):
            print(f"{name}: {one[-1][name]:,} and {other[-1][name]:,}")
        for name in CURVES:
            print(f"{name}: largest difference of a loss {max(apart(one, other, name)[1]):.1e} nats")
        first, second = (load_file(next(space.glob("states/*/model.safetensors"))) for space in (calm, moved))
        print(f"largest difference of a weight: {max(abs(first[name] - second[name]).max() for name in first):.1e}")
        draw(one, other, saved, arguments.processes, arguments.figure)


def command(root: Path, space: Path, processes: int) -> list[str]:
    antiphon = str(Path(sys.executable).with_name("antiphon"))
    change = f"machine.processes={processes}"
    return [antiphon, "run", str(root / "study.yaml"), "--workspace", str(space), "--set", change]


def curve(space: Path) -> list[dict[str, Any]]:
    """The complete reports of the one run of a workspace."""
    texts = [text for path in space.glob("logs/*.jsonl") for text in path.read_text(encoding="utf-8").splitlines(True)]
    return [json.loads(text) for text in texts if text.endswith("\n")]


def points(lines: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Steps and losses of one of CURVES: the training loss, or that of the held-out rows by an objective."""
    found = []
    for line in lines:
        losses = line["loss"] if name == "training" else line["validation"]
        found += [(line["step"], loss) for key, loss in losses.items() if name == "training" or key.startswith(name)]
    return [step for step, _ in found], [loss for _, loss in found]


def apart(one: list[dict[str, Any]], other: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    steps, losses = points(one, name)
    return steps, [abs(a - b) for a, b in zip(losses, points(other, name)[1], strict=True)]


def draw(one: list[dict[str, Any]], other: list[dict[str, Any]], saved: int, processes: int, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    # Text as text, and no date: the same figures give the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "antiphon", "font.size": 9})
    import matplotlib.pyplot as pyplot

    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=(6.4, 5), sharex=True, layout="constrained", height_ratios=(3, 1)
    )
    for name, colour in CURVES.items():
        title = name if name == "training" else f"held-out {name}"
        above.plot(*points(one, name), color=colour, linewidth=5, alpha=0.3, label=f"{title}, undisturbed")
        above.plot(*points(other, name), color=colour, linewidth=1, label=f"{title}, moved")
        below.plot(*apart(one, other, name), color=colour, linewidth=1)
    below.set_yscale("symlog", linthresh=1e-7)
    for panel in (above, below):
        panel.axvline(saved, color="black", linewidth=0.8, linestyle=":")
        panel.spines[["top", "right"]].set_visible(False)
    above.text(saved - 4, above.get_ylim()[1], f"{processes} processes", ha="right", va="top")
    above.text(saved + 4, above.get_ylim()[1], "1 process", ha="left", va="top")
    above.set_ylabel("loss, nats a token")
    below.set_ylabel("difference")
    below.set_xlabel("step")
    above.legend(ncols=2, frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.95))
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
