"""A checkpoint and a task become scores."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from antiphon.config import UserError
from antiphon.finetune import run
from antiphon.finetune.config import Finetune, job_id
from antiphon.finetune.kinds import FACES
from antiphon.finetune.task import Dataset, Kind, Split, Task, Text
from antiphon.machine import Machine
from antiphon.results.table import Score
from tests.finetune.toys import dataset, task

MACHINE = Machine(precision="float32", device="cpu")
TOLD: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums over threads may come in any order; one thread makes runs equal to the last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    TOLD.clear()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def scored(checkpoint: Path, tmp_path: Path) -> Callable[..., list[Score]]:
    """Fine-tune the tiny checkpoint: scored(task, machine=..., **changes to the protocol)."""

    def score(one: Task, machine: Machine = MACHINE, folder: Path = checkpoint, **changes: Any) -> list[Score]:
        values = {"learning_rate": 3e-3, "seed": 0, "batch": 8, "steps": 4, "epochs": 100, **changes}
        config = Finetune.read({"task": one.name, **values})
        return run.score(one, config, "state", folder, None, tmp_path, machine, TOLD.append)

    return score


def values(scores: list[Score]) -> dict[tuple[str, str], float]:
    return {(score.split, score.metric): score.value for score in scores}


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
def test_forty_steps_over_fit_a_handful_of_examples(
    scored: Callable[..., list[Score]], kind: Kind, attention: str
) -> None:
    one = task(kind, dataset(kind))
    scores = scored(one, steps=40, learning_rate=1e-2, weight_decay=0.0, attention=attention)
    assert TOLD[-1]["step"] == TOLD[-1]["steps"] == 40
    assert TOLD[-1]["loss"] < min(0.1, TOLD[0]["loss"])
    assert values(scores) == {
        (split, metric): pytest.approx(1.0) for split in ("validation", "test") for metric in FACES[kind].metrics
    }


@pytest.mark.parametrize("kind", Kind)
def test_the_seed_determines_the_result_to_the_last_bit(scored: Callable[..., list[Score]], kind: Kind) -> None:
    one = task(kind, dataset(kind, 12))
    losses = []
    for seed in (0, 0, 1):
        TOLD.clear()
        torch.manual_seed(len(losses))
        scored(one, seed=seed, batch=4, steps=10)
        losses.append([told["loss"] for told in TOLD])
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


@pytest.mark.parametrize("kind", Kind)
def test_a_micro_batch_of_rows_changes_no_loss(scored: Callable[..., list[Score]], kind: Kind) -> None:
    one = task(kind, dataset(kind, 12))
    losses = []
    for tokens in (0, 100):
        TOLD.clear()
        scored(one, MACHINE.model_copy(update={"micro_batch_tokens": tokens}), steps=10, learning_rate=1e-3)
        losses.append([told["loss"] for told in TOLD])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_fine_tuning_never_changes_the_checkpoint_in_memory(
    scored: Callable[..., list[Score]], checkpoint: Path
) -> None:
    before = {name: tensor.clone() for name, tensor in run._base(checkpoint).state_dict().items()}
    for kind in Kind:
        scored(task(kind, dataset(kind)), learning_rate=1e-2)
    after = run._base(checkpoint).state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert all(parameter.grad is None for parameter in run._base(checkpoint).parameters())


def test_a_checkpoint_written_anew_is_read_anew(
    scored: Callable[..., list[Score]], checkpoint: Path, tmp_path: Path
) -> None:
    one = task(Kind.CLASSIFY, dataset(Kind.CLASSIFY))
    copied = tmp_path / "copy"
    shutil.copytree(checkpoint, copied)
    first = scored(one, folder=copied)
    network = run._base(copied)
    assert run._base(copied) is network
    path = copied / "model.safetensors"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    assert run._base(copied) is not network
    assert values(scored(one, folder=copied)) == values(first)


def test_rows_say_what_was_computed(scored: Callable[..., list[Score]]) -> None:
    data = dataset(Kind.EXTRACT)
    scores = scored(task(Kind.EXTRACT, data), seed=3)
    config = Finetune(task="tiny-extract", learning_rate=3e-3, seed=3, batch=8, steps=4, epochs=100)
    assert {(score.split, score.metric) for score in scores} == {
        (split, metric) for split in ("validation", "test") for metric in ("f1", "exact_match")
    }
    for score in scores:
        assert (score.job, score.state) == (job_id("state", config), "state")
        assert (score.task, score.kind, score.learning_rate, score.seed) == ("tiny-extract", "extract", 3e-3, 3)
        assert (score.num_examples, score.num_truncated) == (8, 0)
        assert score.seconds > 0


@pytest.mark.parametrize("kind", Kind)
def test_a_rate_that_is_too_high_is_a_result_and_no_crash(scored: Callable[..., list[Score]], kind: Kind) -> None:
    scores = scored(task(kind, dataset(kind)), learning_rate=1e30, steps=10)
    assert len(scores) == 2 * len(FACES[kind].metrics)
    assert all(math.isnan(score.value) for score in scores)
    assert all(score.num_examples == 8 for score in scores)


def test_rows_are_as_long_as_task_protocol_and_model_allow(scored: Callable[..., list[Score]]) -> None:
    texts = [Text(" ".join(["the"] * count), index % 2) for index, count in enumerate((4, 20, 80, 120))]
    data = Dataset(dict.fromkeys(Split, tuple(texts)), ("a", "b"))
    # The model has 96 positions; the specials take two of each row.
    assert scored(task(Kind.CLASSIFY, data, length=64))[0].num_truncated == 2
    assert scored(task(Kind.CLASSIFY, data, length=64), length=16)[0].num_truncated == 3
    assert scored(task(Kind.CLASSIFY, data, length=64), length=500)[0].num_truncated == 2
    assert scored(task(Kind.CLASSIFY, data, length=500))[0].num_truncated == 1


def test_one_epoch_is_the_default_end(scored: Callable[..., list[Score]]) -> None:
    scored(task(Kind.CLASSIFY, dataset(Kind.CLASSIFY, 20)), epochs=1, steps=1000)
    assert TOLD[-1]["step"] == TOLD[-1]["steps"] == 3


def test_the_protocol_matters(scored: Callable[..., list[Score]]) -> None:
    one = task(Kind.RETRIEVE, dataset(Kind.RETRIEVE, 12))
    changes: list[dict[str, Any]] = [
        {}, {"attention": "causal"}, {"pooling": "last"}, {"temperature": 0.5}, {"weight_decay": 1.0}, {"clip": 1e-3},
        {"betas": (0.5, 0.5)}, {"epsilon": 1.0}, {"warmup_ratio": 0.9}, {"batch": 4}, {"learning_rate": 1e-3},
        {"length": 8},
    ]  # fmt: skip
    losses = set()
    for change in changes:
        TOLD.clear()
        scored(one, **{"steps": 10, **change})
        losses.add(TOLD[-1]["loss"])
    assert len(losses) == len(changes)


def test_wrong_data_is_refused_before_training(scored: Callable[..., list[Score]]) -> None:
    data = Dataset(dict.fromkeys(Split, (Text("the", 5),)), ("a", "b"))
    with pytest.raises(UserError, match="label 5 is out of range"):
        scored(task(Kind.CLASSIFY, data))
    assert not TOLD


def test_a_checkpoint_without_tokenizer_is_refused(
    scored: Callable[..., list[Score]], checkpoint: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(checkpoint, bare)
    (bare / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        scored(task(Kind.CLASSIFY, dataset(Kind.CLASSIFY)), folder=bare)


def test_the_public_door_looks_into_the_catalog(checkpoint: Path, tmp_path: Path) -> None:
    config = Finetune(task="squat", learning_rate=1e-3, seed=0)
    with pytest.raises(UserError, match="did you mean 'squad'"):
        run.finetune(config, "state", checkpoint, None, tmp_path, MACHINE, TOLD.append)
