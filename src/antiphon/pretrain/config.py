"""What a pretraining run computes, as a value. No torch: studies are planned with it."""

from __future__ import annotations

import enum
import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from antiphon.config import Config, fingerprint
from antiphon.data.corpus import Corpus
from antiphon.data.tokenizer import Tokenizer
from antiphon.model.presets import Model
from antiphon.pretrain.amount import Amount, Sizes, Unit
from antiphon.pretrain.schedule import Schedule, Span


class Batch(Config):
    """The shape of a batch: B rows of T tokens, over all micro-batches and ranks."""

    rows: int = Field(default=32, ge=1)
    length: int = Field(default=128, ge=8)


class AtSwitch(enum.Enum):
    """What happens at the border of two phases."""

    CONTINUE = "continue"
    RESTART = "restart"


class LearningRate(Config):
    """The learning rate as a function of the step.

    Attributes:
        peak: the highest rate.
        shape: "wsd" (warm-up, stable, decay to `final`), "cosine", "linear" or "constant", each after the warm-up.
        warmup: length of the linear warm-up.
        decay: length of the decay of "wsd"; the other shapes decay over all that follows the warm-up.
        decay_form: "linear" or "sqrt" (1 - sqrt(x), Haegele et al. 2024, arXiv 2405.18392).
        final: where the decay ends, as a share of the peak.
        at_switch: one curve over the whole schedule, or a curve of its own for each phase.
    """

    peak: float = Field(default=1e-3, gt=0)
    shape: Literal["wsd", "cosine", "linear", "constant"] = "wsd"
    warmup: Amount = Amount(5, Unit.PERCENT)
    decay: Amount = Amount(10, Unit.PERCENT)
    decay_form: Literal["linear", "sqrt"] = "linear"
    final: float = Field(default=0.0, ge=0, le=1)
    at_switch: AtSwitch = AtSwitch.CONTINUE

    @field_validator("warmup", "decay", mode="before")
    @classmethod
    def _length(cls, value: Any) -> Amount:
        if str(value).strip() in ("0", "0%"):
            return Amount(0, Unit.STEPS)
        amount = Amount.parse(value)
        if amount.unit is Unit.SHARE:
            raise ValueError(f"{str(value)!r} has no unit; write '{value} steps' or '{value}%'")
        return amount

    def curve(self, steps: int, sizes: Sizes) -> np.ndarray:
        """(steps,) float64: the rate of every step of one curve."""
        warmup = self.warmup.of_total(steps, sizes)
        decay = self.decay.of_total(steps, sizes) if self.shape == "wsd" else steps - warmup
        if warmup + max(decay, 0) > steps:
            raise ValueError(
                f"warm-up ({warmup} steps) and decay ({max(decay, 0)}) are longer than the curve ({steps} steps); "
                "shorten learning_rate.warmup or learning_rate.decay"
            )
        step = np.arange(steps)
        rising = np.minimum((step + 1) / max(warmup, 1), 1.0) if warmup else np.ones(steps)
        done = np.clip((step - (steps - decay)) / max(decay, 1), 0.0, 1.0)
        falling = {
            "wsd": 1 - (done if self.decay_form == "linear" else np.sqrt(done)),
            "linear": 1 - done,
            "cosine": (1 + np.cos(math.pi * done)) / 2,
            "constant": np.ones(steps),
        }[self.shape]
        return self.peak * rising * (self.final + (1 - self.final) * falling)


class Optimizer(Config):
    """AdamW.

    Attributes:
        betas, epsilon, weight_decay, clip: the defaults are the MLM-vs-CLM study's (arXiv 2507.00994, Table 1).
        decay_all: decay norms and embeddings too, as the study's code does.
        at_switch: keep the moments at the border of two phases, or start them anew.
    """

    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    epsilon: float = Field(default=1e-5, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    clip: float = Field(default=1.0, gt=0)
    decay_all: bool = False
    at_switch: AtSwitch = AtSwitch.CONTINUE


class Validation(Config):
    """Validation losses along the way. They observe a run and never change it, so they are not part of its identity.

    Attributes:
        points: about how many times over a run.
        rows: rows of the validation text, the same ones each time.
        objectives: each is asked with a mask set that never changes, whatever objective rules the phase.
    """

    points: int = Field(default=16, ge=0)
    rows: int = Field(default=32, ge=1)
    objectives: tuple[Schedule, ...] = (Schedule.parse("clm"), Schedule.parse("mlm(0.15)"))


class Pretrain(Config):
    """A pretraining run.

    Attributes:
        corpus, tokenizer: the data.
        model: the network.
        schedule: which objective rules when.
        budget: the whole that a schedule of shares divides; absent when the schedule fixes its own total.
        batch: shape of a step.
        learning_rate, optimizer: how to learn.
        seed: of initialisation, order of rows and masks.
        validation: losses on held-out text.
    """

    corpus: Corpus = Corpus()
    tokenizer: Tokenizer = Tokenizer()
    model: Model = Model()
    schedule: Schedule
    budget: Amount | None = None
    batch: Batch = Batch()
    learning_rate: LearningRate = LearningRate()
    optimizer: Optimizer = Optimizer()
    seed: int = Field(default=0, ge=0)
    validation: Validation = Validation()

    @model_validator(mode="after")
    def _fits(self) -> Pretrain:
        if self.batch.length > self.model.positions:
            raise ValueError(f"batch.length {self.batch.length} is more than model.positions {self.model.positions}")
        if self.budget is not None and not self.budget.absolute:
            raise ValueError(
                f"budget {str(self.budget)!r} is not an amount of its own; write '400k tokens' or '2 epochs'"
            )
        if self.schedule.absolute and self.budget is not None:
            raise ValueError(
                f"budget {self.budget} and schedule '{self.schedule}' both fix the length; drop the budget"
            )
        if not self.schedule.absolute and self.budget is None:
            raise ValueError(f"schedule '{self.schedule}' divides a whole; give a budget such as '400k tokens'")
        return self


class Course:
    """A run step by step: objective, learning rate and switches of every step, and the identity of every state.

    Two runs that agree in everything but the schedule have the same state after `step` steps exactly when they agree
    in `identity(step)`, so a common beginning is trained once.
    """

    def __init__(self, run: Pretrain, data: str, sizes: Sizes) -> None:
        """Resolve a run.

        Args:
            run: the run.
            data: identity of its prepared corpus.
            sizes: of that corpus, with this batch.

        Raises:
            ValueError: the schedule does not resolve into steps.
        """
        self.run = run
        self.sizes = sizes
        self.spans: list[Span] = run.schedule.spans(run.budget, sizes)
        self.steps = self.spans[-1].stop
        if run.learning_rate.at_switch is AtSwitch.RESTART:
            curves = [run.learning_rate.curve(span.stop - span.start, sizes) for span in self.spans]
            self._rates = np.concatenate(curves)
        else:
            self._rates = run.learning_rate.curve(self.steps, sizes)
        resets = {span.start for span in self.spans[1:]} if run.optimizer.at_switch is AtSwitch.RESTART else set()
        self.resets = frozenset(resets)
        chosen = run.model_dump(mode="json", include={"model", "batch", "optimizer", "seed"})
        self._base = fingerprint("pretrain", 1, data, chosen)
        self.trace = self._trace()

    def _trace(self) -> np.ndarray:
        """(steps, 3) uint64: what each step does, as numbers: objective, learning rate, reset."""
        trace = np.zeros((self.steps, 3), dtype=np.uint64)
        for span in self.spans:
            if span.at(span.start) == span.at(span.stop - 1):
                trace[span.start : span.stop, 0] = int(fingerprint(str(span.at(span.start))), 16)
            else:
                for step in range(span.start, span.stop):
                    trace[step, 0] = int(fingerprint(str(span.at(step))), 16)
        trace[:, 1] = self._rates.view(np.uint64)
        trace[sorted(self.resets), 2] = 1
        return trace

    def span(self, step: int) -> Span:
        """The span that rules a step."""
        return next(span for span in self.spans if span.start <= step < span.stop)

    def learning_rate(self, step: int) -> float:
        """The rate of a step."""
        return float(self._rates[step])

    def identity(self, step: int) -> str:
        """The identity of the state after `step` steps."""
        return fingerprint(self._base, step, fingerprint(self.trace[:step].tobytes().hex()))

    def common(self, other: Course) -> int:
        """How many steps two runs share from the beginning."""
        if self._base != other._base:
            return 0
        length = min(self.steps, other.steps)
        differ = (self.trace[:length] != other.trace[:length]).any(axis=1)
        return int(np.argmax(differ)) if differ.any() else length
