"""Speed of the data path: preparing a corpus against `datasets.map` + `save_to_disk`, and reading batches.

    pip install -e '.[benchmark]'
    python benchmarks/data.py [--megabytes 16] [--rounds 3]

Text and tokenizer are the same for all: the docstrings of the installed packages, as one .jsonl file, and a byte-level
BPE of 16,000 tokens trained on them. A time is that of a fresh process from start to written files, less that of a
process that imports the same and does nothing. The ways take turns; a ratio is the median of the rounds' ratios: above
1, ours is faster than the faster one of `datasets` with 1 and with 2 processes in that round.
"""

from __future__ import annotations

import argparse
import ast
import json
import shutil
import site
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from antiphon.data.batches import Batches
from antiphon.data.corpus import Corpus
from antiphon.data.layout import Packing, sources
from antiphon.data.prepare import Prepared, prepare
from antiphon.data.tokenizer import Tokenizer, train

OURS, ONE, TWO = "antiphon, 2 processes", "datasets, num_proc=1", "datasets, num_proc=2"
BATCH_ROWS = 32


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--megabytes", type=float, default=16)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--way", help=argparse.SUPPRESS)
    arguments.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.way:
        _do(chosen.way, chosen.folder, chosen.megabytes == 0)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        characters = write_text(folder / "text.jsonl", chosen.megabytes * 1e6)
        train(Tokenizer(vocabulary=16_000), _texts(folder / "text.jsonl"), folder / "tokenizer")
        print(f"text: {characters / 1e6:.1f} M characters; vocabulary 16,000; {chosen.rounds} rounds\n", flush=True)
        compare(folder, chosen.rounds, characters)
        read(folder)


def docstrings() -> Iterator[str]:
    """Docstrings of the installed packages, read as files."""
    warnings.simplefilter("ignore")
    for path in sorted(Path(site.getsitepackages()[0]).rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                text = ast.get_docstring(node) or ""
                if len(text) > 200:
                    yield text


def write_text(path: Path, characters: float) -> int:
    """Write distinct docstrings up to so many characters; returns how many were written."""
    written: set[str] = set()
    size = 0
    with open(path, "w", encoding="utf-8") as stream:
        for text in docstrings():
            if text in written:
                continue
            written.add(text)
            stream.write(json.dumps({"text": text}) + "\n")
            size += len(text)
            if size >= characters:
                break
    return size


def compare(folder: Path, rounds: int, characters: int) -> None:
    """Print the times of each way of preparing and the ratios."""
    times: dict[str, list[float]] = {way: [] for way in (OURS, ONE, TWO)}
    for _ in range(rounds):
        for way, found in times.items():
            idle, busy = (_timed(way, folder, nothing) for nothing in (True, False))
            found.append(busy - idle)
    print(f"{'way':24} {'seconds':>8} {'M characters/s':>15}")
    for way, found in times.items():
        print(f"{way:24} {statistics.median(found):8.2f} {characters / 1e6 / statistics.median(found):15.2f}")
    ratios = [min(one, two) / ours for ours, one, two in zip(*times.values(), strict=True)]
    print(f"ratio: {statistics.median(ratios):.2f} (rounds: {', '.join(f'{ratio:.2f}' for ratio in ratios)})\n")


def _timed(way: str, folder: Path, nothing: bool) -> float:
    for name in ("out", "cache"):
        shutil.rmtree(folder / name, ignore_errors=True)
    command = [sys.executable, __file__, "--way", way, "--folder", str(folder)]
    began = time.perf_counter()
    subprocess.run([*command, *(["--megabytes", "0"] if nothing else [])], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def _do(way: str, folder: Path, nothing: bool) -> None:
    if way == OURS:
        if not nothing:
            _prepare(folder, folder / "out")
        return
    import datasets
    from transformers import PreTrainedTokenizerFast

    datasets.disable_progress_bars()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")
    if nothing:
        return
    path, cache = str(folder / "text.jsonl"), str(folder / "cache")
    text = datasets.load_dataset("json", data_files=path, split="train", cache_dir=cache)
    workers = None if way == ONE else 2
    tokens = text.map(
        lambda batch: {"input_ids": tokenizer(batch["text"])["input_ids"]},
        batched=True,
        num_proc=workers,
        remove_columns=["text"],
    )
    tokens.save_to_disk(str(folder / "out"))


def _prepare(folder: Path, target: Path) -> None:
    corpus = Corpus(path=str(folder / "text.jsonl"), validation_share=0)
    prepare((corpus,), Tokenizer(path=str(folder / "tokenizer")), target, folder, 2, lambda facts: None)


def read(folder: Path) -> None:
    """Print how long a batch takes to read, by packing and row length."""
    _prepare(folder, folder / "read")
    prepared = Prepared.open(folder / "read")
    shards = prepared.shards["train"]
    print(f"reading batches of {BATCH_ROWS} rows from {shards[0].tokens / 1e6:.1f} M tokens")
    print(f"{'packing':12} {'block':>5} {'packed in s':>11} {'filled':>7} {'ms a batch':>11} {'M tokens/s':>11}")
    for way in Packing:
        for block in (128, 512, 2048):
            began = time.perf_counter()
            corpora = sources(shards, [1], way, block, lambda note: None)
            packed = time.perf_counter() - began
            filled = shards[0].tokens / (corpora[0].layout.blocks * block)
            seconds = statistics.median(_seconds(Batches(corpora, block, prepared.encoder.pad, 0)) for _ in range(3))
            speed = BATCH_ROWS * block / seconds / 1e6
            print(f"{way.value:12} {block:5} {packed:11.2f} {filled:7.2%} {1000 * seconds:11.2f} {speed:11.1f}")


def _seconds(batches: Batches) -> float:
    """Median time of a batch, the first ones left out."""
    slots = BATCH_ROWS * batches.block
    times = []
    for step in range(40):
        began = time.perf_counter()
        batches.take(step * slots, BATCH_ROWS, batches.block)
        times.append(time.perf_counter() - began)
    return float(np.median(times[5:]))


def _texts(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)["text"]


if __name__ == "__main__":
    main()
