"""Checkpoint + task -> scores: fine-tune once, evaluate on validation and test."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from antiphon.config import UserError
from antiphon.draws import generator
from antiphon.finetune import catalog, checks
from antiphon.finetune.config import Finetune, job_id, learning_rate, num_steps
from antiphon.finetune.face import Face
from antiphon.finetune.features import open_tokenizer
from antiphon.finetune.kinds import FACES
from antiphon.finetune.network import Network, NotFiniteError, Place
from antiphon.finetune.task import Dataset, Split, Task
from antiphon.machine import Machine
from antiphon.model import build
from antiphon.results.table import Score
from antiphon.train.loop import Diverged, Progress, train
from antiphon.train.optimizer import adamw
from antiphon.train.parallel import device, precision

SCORED = (Split.VALIDATION, Split.TEST)
REPORTS = 10  # progress reports in a run


def finetune(
    config: Finetune,
    state: str,
    checkpoint: Path,
    data: Path | None,
    workspace: Path,
    machine: Machine,
    progress: Callable[[dict[str, Any]], None],
) -> list[Score]:
    """Fine-tune a checkpoint on a task of the catalog and score it.

    Args:
        config: what to do.
        state: identity of the pretrained weights, for the rows.
        checkpoint: folder in Hugging Face form, tokenizer included; never changed.
        data: the folder the study names as `finetune.data`, if it names one.
        workspace: where tasks keep what is slow to make.
        machine: where to compute.
        progress: gets {"step", "steps", "loss", "learning_rate"} a few times in the run.

    Returns:
        One row for each metric on validation and on test; values are nan if training diverged.

    Raises:
        UserError: an unknown task, missing or wrong data, or a folder without a usable checkpoint.
    """
    return score(catalog.task(config.task), config, state, checkpoint, data, workspace, machine, progress)


def score(
    task: Task,
    config: Finetune,
    state: str,
    checkpoint: Path,
    data: Path | None,
    workspace: Path,
    machine: Machine,
    progress: Callable[[dict[str, Any]], None],
) -> list[Score]:
    """`finetune` for a task that need not be in the catalog; arguments as there."""
    began = time.perf_counter()
    face = FACES[task.kind]
    base = _base(checkpoint)
    length = min(task.length, config.length or task.length, int(base.config.max_position_embeddings or task.length))
    dataset = _dataset(task, data, workspace)
    features = _features(task, data, workspace, _tokenizer(checkpoint), length)
    longest = max(int(one.rows.lengths.max()) for one in features.values())
    network = Network(base, face.outputs(dataset), config.seed, config, _place(machine, longest), longest)
    try:
        _train(network, face, features[Split.TRAIN], config, machine, longest, progress)
        network.eval()
        with torch.inference_mode():
            values = face.evaluate(network, [features[split] for split in SCORED])
    except (Diverged, NotFiniteError):
        # A rate that is too high is a result, not a crash: the rows say so.
        values = [dict.fromkeys(face.metrics, math.nan) for _ in SCORED]
    seconds = time.perf_counter() - began
    return [
        Score(
            job=job_id(state, config), state=state, task=task.name, kind=task.kind.value,
            learning_rate=config.learning_rate, seed=config.seed, split=split.value, metric=metric, value=value,
            num_examples=features[split].num_examples, num_truncated=features[split].num_truncated, seconds=seconds,
        )
        for split, metrics in zip(SCORED, values, strict=True) for metric, value in metrics.items()
    ]  # fmt: skip


def _train(
    network: Network,
    face: Face[Any],
    features: Any,
    config: Finetune,
    machine: Machine,
    longest: int,
    progress: Callable[[dict[str, Any]], None],
) -> None:
    epoch = face.order(features, config.batch, generator(config.seed, "examples", 0))
    steps = num_steps(config, len(epoch))
    batches: list[np.ndarray] = epoch
    number = 0
    while len(batches) < steps:
        number += 1
        batches = batches + face.order(features, config.batch, generator(config.seed, "examples", number))

    def report(now: Progress) -> None:
        progress({"step": now.step, "steps": steps, "loss": now.loss, "learning_rate": now.learning_rate})

    train(
        network,
        adamw(network, weight_decay=config.weight_decay, betas=config.betas, epsilon=config.epsilon),
        start=0,
        steps=steps,
        batches=lambda step: face.micro(batches[step], machine.rows(longest)),
        count=lambda batch: face.count(features, batch),
        loss=lambda model, batch: face.loss(network, features, batch),
        learning_rate=learning_rate(config, steps),
        clip=config.clip,
        actions=[(max(1, steps // REPORTS), report)],
    )


def _place(machine: Machine, longest: int) -> Place:
    where = device(machine)
    # A block fills the processor's caches on CPU, and the device on CUDA.
    return Place(where, precision(machine), 4096 if where.type == "cpu" else 65536, machine.rows(longest))


def _base(checkpoint: Path) -> build.LanguageModel:
    """The pretrained network, kept for the next job on the same checkpoint; jobs copy it and never change it."""
    weights = checkpoint / "model.safetensors"
    stamp = weights.stat().st_mtime_ns if weights.is_file() else 0
    return _load(checkpoint.resolve(), stamp)


@functools.lru_cache(maxsize=1)
def _load(checkpoint: Path, stamp: int) -> build.LanguageModel:
    return build.load(checkpoint)


def _tokenizer(checkpoint: Path) -> str:
    """The text of tokenizer.json: the same for all checkpoints of a study, so that features are made once for all."""
    path = checkpoint / "tokenizer.json"
    if not path.is_file():
        raise UserError(f"{checkpoint}: no tokenizer.json here. A checkpoint to fine-tune must hold its tokenizer.")
    return path.read_text(encoding="utf-8")


@functools.lru_cache(maxsize=8)
def _dataset(task: Task, data: Path | None, workspace: Path) -> Dataset:
    dataset = task.read(data, workspace)
    checks.check(task, dataset)
    return dataset


@functools.lru_cache(maxsize=8)
def _features(task: Task, data: Path | None, workspace: Path, tokenizer: str, length: int) -> Mapping[Split, Any]:
    return FACES[task.kind].features(_dataset(task, data, workspace), open_tokenizer(tokenizer), length)
