"""What one fine-tuning is, as a value."""

from __future__ import annotations

import pytest

from antiphon.config import UserError
from antiphon.finetune.config import Finetune, Protocol, job_id, learning_rate, num_steps

ONE = {"task": "squad", "learning_rate": 1e-4, "seed": 0}


def test_the_job_is_named_by_everything_that_is_computed() -> None:
    others = {
        "task": "wnut17", "learning_rate": 2e-4, "seed": 1, "steps": 7, "epochs": 2.0, "batch": 8, "length": 32,
        "warmup_ratio": 0.2, "betas": (0.8, 0.9), "epsilon": 1e-6, "weight_decay": 0.0, "clip": 2.0,
        "attention": "causal", "pooling": "last", "temperature": 0.1,
    }  # fmt: skip
    assert set(others) == set(Finetune.model_fields)
    names = {job_id("state", Finetune.read({**ONE, key: value})) for key, value in others.items()}
    names |= {job_id("state", Finetune.read(ONE)), job_id("other state", Finetune.read(ONE))}
    assert len(names) == len(others) + 2


def test_a_default_written_out_is_the_same_job() -> None:
    assert job_id("s", Finetune.read(ONE)) == job_id("s", Finetune.read({**ONE, "steps": Protocol().steps}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"learning_rate": 0}, "learning_rate"),
        ({"learning_rate": float("inf")}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"seed": -1}, "seed"),
        ({"batch": 0}, "batch"),
        ({"epochs": 0}, "epochs"),
        ({"warmup_ratio": 10}, "warmup_ratio"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"temperature": 0}, "temperature"),
        ({"length": 3}, "length 3"),
        ({"attention": "both"}, "attention"),
        ({"attention": "causal", "pooling": "first"}, "sees no other"),
        ({"learning_rates": [1e-4]}, "did you mean 'learning_rate'"),
    ],
)
def test_wrong_values_are_named(change: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Finetune.read({**ONE, **change})


def test_the_learning_rate_rises_to_its_peak_and_falls_to_zero_behind_the_end() -> None:
    rate = learning_rate(Finetune.read({**ONE, "learning_rate": 1.0}), 100)
    assert [rate(step) for step in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert rate(55) == pytest.approx(0.5)
    assert rate(99) == pytest.approx(1 / 90)
    assert rate(100) == 0
    assert all(0 < rate(step) <= 1 for step in range(100))


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_the_learning_rate_exists_for_every_warm_up_and_length(ratio: float) -> None:
    config = Finetune.read({**ONE, "warmup_ratio": ratio})
    for steps in (1, 2, 3, 10):
        rates = [learning_rate(config, steps)(step) for step in range(steps)]
        assert max(rates) == pytest.approx(1e-4)
        assert min(rates) > 0


def test_the_earlier_of_steps_and_epochs_ends_the_run() -> None:
    assert num_steps(Protocol(steps=1000, epochs=1), 63) == 63
    assert num_steps(Protocol(steps=50, epochs=1), 63) == 50
    assert num_steps(Protocol(steps=1000, epochs=2.5), 63) == 158
