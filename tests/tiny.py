"""Things small enough to train in a test: a text, a network, a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from antiphon.data.batches import Batches, TokenBatch
from antiphon.data.corpus import Corpus
from antiphon.data.layout import Packing, sources
from antiphon.data.prepare import Prepared, facts
from antiphon.data.shards import Shards, Writer
from antiphon.data.supply import supply
from antiphon.data.tokenizer import Encoder
from antiphon.draws import generator
from antiphon.machine import Machine
from antiphon.pretrain.config import Course, Pretrain
from antiphon.pretrain.objective import Vocabulary

if TYPE_CHECKING:
    from antiphon.pretrain.segment import Segment
    from antiphon.study.plan import Plan
    from antiphon.study.study import Study

MODEL: Mapping[str, Any] = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "ffn": 48, "positions": 64}
BATCH: Mapping[str, Any] = {"rows": 4, "length": 32}
MACHINE = Machine(threads=1, precision="float32", device="cpu", save_seconds=1e6)
CORPUS = "tiny-corpus"
"""Identity that stands for the tiny corpus."""


def texts(seed: int, number: int) -> list[str]:
    """Documents of 5 to 60 made-up words; frequent words are frequent, and a word has a favourite next word."""
    draws = generator(seed, "tiny text")
    syllables = [first + second for first in "bdfklmnprst" for second in "aeiou"]
    words = ["".join(draws.choice(syllables, size=draws.integers(1, 4))) for _ in range(200)]
    shares = 1.0 / np.arange(1, 201)
    shares /= shares.sum()
    favourites = draws.permutation(200)
    documents = []
    for _ in range(number):
        chosen = [int(draws.choice(200, p=shares))]
        for _ in range(int(draws.integers(5, 60))):
            liked = draws.random() < 0.7
            chosen.append(int(favourites[chosen[-1]] if liked else draws.choice(200, p=shares)))
        documents.append(" ".join(words[index] for index in chosen) + ".")
    return documents


def write_text(path: Path, documents: list[str]) -> Path:
    """A .txt file of these documents."""
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def corpus(path: Path, validation_share: float = 0.1) -> Corpus:
    """A corpus at a path."""
    return Corpus(path=str(path), validation_share=validation_share)


def pretrain(schedule: str, budget: str | None = "8 steps", changes: Mapping[str, Any] | None = None) -> Pretrain:
    """A tiny run.

    Args:
        schedule: its notation.
        budget: the whole, for a schedule of shares.
        changes: values in place of the tiny ones, each a whole section.
    """
    values = {
        "model": MODEL,
        "batch": BATCH,
        "learning_rate": {"peak": 3e-3, "warmup": "2 steps", "decay": "2 steps"},
        "validation": {"points": 2, "rows": 4},
        "schedule": schedule,
        "budget": budget,
    }
    return Pretrain.read(values | dict(changes or {}))


def course(run: Pretrain, prepared: Prepared) -> Course:
    """A run on the tiny corpus, step by step."""
    return Course(run, CORPUS, supply(prepared.folder, [1], run.batch.packing, run.batch.block))


def plan(study: Study, prepared: Prepared) -> Plan:
    """The plan of a study without tasks on the tiny corpus."""
    from antiphon.study.plan import plan

    known = facts(prepared.folder)
    block = next(iter(study.runs().values())).batch.block
    return plan(study, CORPUS, known["vocabulary"], supply(prepared.folder, [1], Packing.CONTIGUOUS, block), {})


def vocabulary(encoder: Encoder) -> Vocabulary:
    """What objectives know of a tokenizer."""
    return Vocabulary.of(encoder)


def batches(prepared: Prepared, rows: int = 4, length: int = 32, seed: int = 0) -> Callable[[int], TokenBatch]:
    """The training batches of the tiny corpus, by step."""
    corpora = sources(prepared.shards["train"], [1], Packing.CONTIGUOUS, length, lambda note: None)
    every = Batches(corpora, length, prepared.encoder.pad, seed)
    return lambda step: every.take(step * rows * length, rows, length)


def shards(folder: Path, encoder: Encoder, documents: list[str]) -> Shards:
    """Documents written as shards and opened."""
    with Writer(folder, encoder) as writer:
        writer.add(documents)
        writer.close({"tokenizer_hash": "tiny"})
    return Shards.open(folder, "tiny")


def token_batch(documents: list[list[int]], length: int) -> TokenBatch:
    """Packed rows by hand.

    Args:
        documents: for each row the lengths of its documents; what is left of the row is padding.
        length: T. Token 0 is padding; the others are drawn from 4 to 99.
    """
    rows = len(documents)
    tokens = np.zeros((rows, length), dtype=np.int64)
    numbers = np.full((rows, length), -1, dtype=np.int64)
    positions = np.zeros((rows, length), dtype=np.int64)
    for row, lengths in enumerate(documents):
        start = 0
        for number, size in enumerate(lengths):
            tokens[row, start : start + size] = generator(row, "tokens", number).integers(4, 100, size)
            numbers[row, start : start + size] = number
            positions[row, start : start + size] = np.arange(size)
            start += size
    return TokenBatch(tokens, numbers, positions)


def weights(checkpoint: Path) -> dict[str, Any]:
    """The tensors of a checkpoint by name."""
    from safetensors.torch import load_file

    return load_file(checkpoint / "model.safetensors")


def far(one: Path, other: Path, tolerance: float) -> list[str]:
    """Names of the tensors of two checkpoints that differ by more."""
    import torch

    first, second = weights(one), weights(other)
    return [name for name in first if not torch.allclose(first[name], second[name], rtol=0, atol=tolerance)]


def differing(one: Path, other: Path) -> list[str]:
    """Names of the tensors of two checkpoints that are not equal bit for bit."""
    import torch

    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert first
    return [name for name in first if not torch.equal(first[name], second[name])]


def stretch(
    course: Course, folder: Path, name: str, start: int = 0, stop: int | None = None, origin: Path | None = None
) -> Segment:
    """A stretch of a run whose files lie in a folder under a name.

    Args:
        course: the run.
        folder, name: where its files go.
        start, stop: steps; the whole run by default.
        origin: checkpoint of the state at `start`.
    """
    from antiphon.pretrain.segment import Segment

    return Segment(
        course,
        start,
        course.steps if stop is None else stop,
        origin,
        folder / "states" / name,
        folder / "partial" / name,
        folder / "logs" / f"{name}.jsonl",
    )


def train(
    segment: Segment, prepared: Prepared, machine: Machine = MACHINE, interrupt_at: int = 0, ranks: Any = None
) -> list[int]:
    """Train a segment in this process.

    Args:
        segment: what to train.
        prepared: the corpus.
        machine: where.
        interrupt_at: the step after which the run is asked to stop; 0 never asks.
        ranks: this process among others.

    Returns:
        The steps that were reported.

    Raises:
        Interrupted: it stopped.
    """
    from antiphon.pretrain import run
    from antiphon.train.parallel import Parallel

    told: list[int] = []
    run.run(
        segment,
        prepared,
        machine,
        ranks or Parallel(),
        lambda facts: told.append(facts["step"]),
        lambda: bool(told) and told[-1] == interrupt_at,
    )
    return told


def write_tasks(folder: Path) -> Path:
    """A folder of data sets for the tasks sentence-polarity and wnut17, of made-up words."""
    import zipfile

    from antiphon.finetune.readers import polarity, wnut

    plain = texts(11, 120)
    archive = folder / polarity.FILES[0]
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as file:
        for label, name in enumerate(polarity.MEMBERS):
            lines = [f"{('bad', 'good')[label]} {' '.join(text.split()[:8])}" for text in plain[label::2]]
            file.writestr(name, "\n".join(lines))
    for number, name in enumerate(wnut.FILES):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        sentences = [text.rstrip(".").split()[:8] for text in plain[40 * number : 40 * number + 40]]
        rows = ["".join(f"{word}\t{_tag(word)}\n" for word in sentence) for sentence in sentences]
        path.write_text("\n".join(rows), encoding="utf-8")
    return folder


def _tag(word: str) -> str:
    return "B-person" if word.startswith(("b", "d")) else "O"
