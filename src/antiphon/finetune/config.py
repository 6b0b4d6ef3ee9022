"""What one fine-tuning is, as a value. No torch here: a study is planned and its jobs are named without it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from pydantic import Field, model_validator

from antiphon.config import Config, fingerprint


class Protocol(Config):
    """How a checkpoint is fine-tuned, the same for every task, learning rate and seed of a study.

    Source: the defaults are those of the MLM-vs-CLM study (arXiv 2507.00994), section 2.3 and its public code.

    Attributes:
        steps: at most this many steps.
        epochs: at most this often through the training examples; the earlier of the two ends the run.
        batch: training rows in one step (extract: a long context gives several rows).
        length: longest row in tokens; 0 leaves it to the task. The task and the model may ask for less, never for more.
        warmup_ratio: share of the steps in which the learning rate rises; it then falls linearly to 0.
        betas, epsilon, weight_decay: of AdamW.
        clip: largest global gradient norm.
        attention: who sees whom; the study fine-tunes every model bidirectionally, causal ones too.
        pooling: which vector stands for a text (classify, retrieve).
        temperature: divides cosine similarities in the loss (retrieve).
    """

    steps: int = Field(default=1000, ge=1)
    epochs: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    batch: int = Field(default=32, ge=1)
    length: int = Field(default=0, ge=0)
    warmup_ratio: float = Field(default=0.1, ge=0, le=1)
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = Field(default=1e-5, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    clip: float = Field(default=1.0, gt=0)
    attention: Literal["bidirectional", "causal"] = "bidirectional"
    pooling: Literal["mean", "first", "last"] = "mean"
    temperature: float = Field(default=0.05, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _sound(self) -> Protocol:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas {self.betas} must be in [0, 1)")
        if 0 < self.length < 8:
            raise ValueError(f"length {self.length} leaves no room for a text; give 8 or more, or 0 to take the task's")
        if self.attention == "causal" and self.pooling == "first":
            raise ValueError(
                "pooling 'first' with causal attention: the first token sees no other, so all texts would look alike. "
                "Take pooling 'last' or 'mean'"
            )
        return self


class Finetune(Protocol):
    """One fine-tuning: a task, a learning rate and a seed under a protocol.

    Attributes:
        task: a name in the catalog.
        learning_rate: its peak.
        seed: of the head's initialisation and the order of the examples.
    """

    task: str = Field(min_length=1)
    learning_rate: float = Field(gt=0, allow_inf_nan=False)
    seed: int = Field(ge=0)


VERSION = 1
"""Raised when the code of fine-tuning, reading or scoring changes in a way that changes scores."""


def job_id(state: str, config: Finetune, data: str = "") -> str:
    """16 hexadecimal digits that identify the fine-tuning of one pretrained state.

    All values count, defaults too: a score must not survive a default that changed.

    Args:
        state: identity of the pretrained weights.
        config: what is done to them.
        data: identity of the task: its examples, metric and row length.
    """
    return fingerprint("finetune", VERSION, state, data, config.model_dump(mode="json"))


def num_steps(config: Protocol, per_epoch: int) -> int:
    """Steps of a fine-tuning when one pass through the training examples takes `per_epoch` of them."""
    return min(config.steps, math.ceil(config.epochs * per_epoch))


def learning_rate(config: Finetune, steps: int) -> Callable[[int], float]:
    """The learning rate of each of `steps` steps: up to the peak over the warm-up, then down to 0 behind the last step.

    The first step already has a rate above 0 and the last one too, so that no update of a short run is lost.
    """
    warmup = math.ceil(config.warmup_ratio * steps)

    def rate(step: int) -> float:
        if step < warmup:
            return config.learning_rate * (step + 1) / warmup
        return config.learning_rate * (steps - step) / max(1, steps - warmup)

    return rate
