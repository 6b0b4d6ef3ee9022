"""Tokens per second of training against row length, batch, layers, and of reading against the size of the corpus.

    python benchmarks/scaling.py [--threads 2] [--figure docs/scaling.svg] [--tiny]

One thing varies at a time around a small network (4 layers, width 128, rows of 256 tokens, batch of 4,096 tokens,
vocabulary 8,192, MLM 0.3, bfloat16 where the processor has it, not compiled). All points take turns for a few rounds,
and what is printed and drawn is the median.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from made import stored

from antiphon.data.batches import Batches, TokenBatch
from antiphon.data.layout import Contiguous, Source
from antiphon.draws import generator
from antiphon.machine import Machine
from antiphon.model import build
from antiphon.model.attention import Attention, choose_kernel
from antiphon.model.loss import Learner
from antiphon.model.presets import Model
from antiphon.pretrain.objective import Vocabulary
from antiphon.pretrain.schedule import Schedule
from antiphon.train import parallel
from antiphon.train.memory import keep_freed_memory
from antiphon.train.optimizer import adamw

CPU = torch.device("cpu")
MEAN_DOCUMENT = 300
VOCABULARY = 8192


@dataclasses.dataclass(frozen=True)
class Point:
    """What is trained: row length, tokens in a batch, layers."""

    length: int = 256
    tokens: int = 4096
    layers: int = 4


def documents(size: int) -> Iterator[list[np.ndarray]]:
    """About `size` tokens in documents of 20 to 580, a thousand at a time."""
    draws = generator(0, "scaling", size)
    for first in range(0, -(-size // MEAN_DOCUMENT), 1000):
        lengths = draws.integers(20, 2 * MEAN_DOCUMENT - 20, min(1000, -(-size // MEAN_DOCUMENT) - first))
        yield np.split(draws.integers(4, VOCABULARY, lengths.sum()), lengths.cumsum()[:-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--figure", type=Path, default=Path("docs/scaling.svg"))
    parser.add_argument("--tiny", action="store_true", help="a few points, to see that it works")
    choice = parser.parse_args()
    torch.set_num_threads(choice.threads)
    keep_freed_memory()
    if choice.tiny:
        axes = {"length": [64, 128]}
        corpora, rounds = [10_000], 1
    else:
        axes = {
            "length": [64, 128, 256, 512, 1024, 2048],
            "tokens": [512, 1024, 2048, 4096, 8192],
            "layers": [1, 2, 4, 8],
        }
        corpora, rounds = [100_000, 1_000_000, 10_000_000, 100_000_000], choice.rounds
    lines = {
        f"training: {axis}": [(value, training(Point(**{axis: value}))) for value in values]
        for axis, values in axes.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        lines["reading: tokens in corpus"] = [(size, reading(size, Path(folder) / str(size))) for size in corpora]
        speeds: dict[tuple[str, int], list[float]] = {}
        for _ in range(rounds + 1):
            for title, points in lines.items():
                for value, run in points:
                    began = time.perf_counter()
                    tokens = run()
                    speeds.setdefault((title, value), []).append(tokens / (time.perf_counter() - began))
    # The first round warms up.
    found = {
        title: [(value, statistics.median(speeds[title, value][1:])) for value, _ in points]
        for title, points in lines.items()
    }
    for title, points in found.items():
        print(f"| {title} | tokens/s |\n|---|---|")
        print("".join(f"| {value:,} | {speed:,.0f} |\n" for value, speed in points), flush=True)
    draw(found, choice.figure)


def training(point: Point) -> Callable[[], int]:
    """Something that trains one step and tells how many tokens that was."""
    precision = parallel.precision(Machine(device="cpu"))
    learner = Learner(build.build(Model(layers=point.layers), VOCABULARY, 0))
    build.use_kernel(learner.network, choose_kernel(CPU, precision, point.length))
    optimizer = adamw(learner, weight_decay=0.1, betas=(0.9, 0.95), epsilon=1e-8)
    rows = point.tokens // point.length
    draws = generator(0, "scaling rows", point.length)
    numbers = np.cumsum(draws.random((rows, point.length)) < 1 / MEAN_DOCUMENT, axis=1)
    begins = np.where(np.diff(numbers, axis=1, prepend=-1) != 0, np.arange(point.length), 0)
    positions = np.arange(point.length) - np.maximum.accumulate(begins, axis=1)
    batch = TokenBatch(draws.integers(4, VOCABULARY, numbers.shape), numbers, positions)
    objective = Schedule.parse("mlm(0.3)").phases[0].objective.at(0.0)
    (asked,) = objective(batch, Vocabulary(VOCABULARY, 3, (0, 1, 2, 3)), 0, 0)
    tensors = [torch.from_numpy(part) for part in (asked.inputs, asked.labels, asked.documents, asked.positions)]

    def step() -> int:
        with parallel.autocast(CPU, precision):
            total = learner(*tensors, Attention.BIDIRECTIONAL)
        (total / asked.count).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return point.tokens

    return step


def reading(size: int, folder: Path) -> Callable[[], int]:
    """Something that reads 64 batches from places all over a corpus and tells how many tokens that was."""
    shards = stored(documents(size), VOCABULARY, folder)
    batches = Batches((Source(Contiguous(shards, 256)),), 256, 0, 0)

    def read() -> int:
        for step in range(64):
            batches.take(step * 4096, 16, 256)
        return 64 * 4096

    return read


def draw(found: dict[str, list[tuple[int, float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    # Text as text, and no date: the same figures give the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "antiphon"})
    import matplotlib.pyplot as pyplot

    figure, panels = pyplot.subplots(1, len(found), figsize=(3.2 * len(found), 2.8), layout="constrained")
    for panel, (title, points) in zip(np.atleast_1d(panels), found.items(), strict=True):
        panel.plot(*zip(*points, strict=True), marker="o", color="#1f5a7a")
        panel.set_xscale("log", base=10 if "corpus" in title else 2)
        panel.set_ylim(bottom=0)
        panel.set_title(title, fontsize=9)
        panel.set_ylabel("tokens/s", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
