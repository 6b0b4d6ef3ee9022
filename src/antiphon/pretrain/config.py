"""What a pretraining run computes, as a value. No torch: studies are planned with it."""

from __future__ import annotations

import enum
import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from antiphon.config import Config, fingerprint
from antiphon.data.corpus import Corpora, Corpus
from antiphon.data.layout import Packing
from antiphon.data.supply import Supply
from antiphon.data.tokenizer import Tokenizer
from antiphon.model.presets import Model
from antiphon.pretrain.amount import Amount, Unit
from antiphon.pretrain.pace import Pace, Pacing
from antiphon.pretrain.programme import Programme
from antiphon.pretrain.schedule import Schedule, Span


class Batch(Config):
    """The shape of a batch: B rows of T tokens, over all micro-batches and ranks.

    Attributes:
        rows: B: a number, or a programme of numbers such as "20% 8 -> 32 > 32".
        length: T: a number, or a programme such as "70% 128 > 20% 256 > 10% 512".
        packing: how documents come into rows: the text cut wherever a row ends, whole documents packed, or pieces of
            random length packed; see `data.layout`.
    """

    rows: Programme = Programme.parse(32)
    length: Programme = Programme.parse(128)
    packing: Packing = Packing.CONTIGUOUS

    @field_validator("length")
    @classmethod
    def _jumps(cls, value: Programme) -> Programme:
        if not value.jumps:
            raise ValueError(f"'{value}': the row length changes in jumps, as in '50% 128 > 50% 256', not on a slope")
        if min(value.values) < 8:
            raise ValueError(f"'{value}': rows are at least 8 tokens long")
        return value

    @property
    def block(self) -> int:
        """The longest row: the corpus is cut into blocks of this size, which shorter rows are parts of."""
        return max(self.length.values)


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

    def curve(self, pace: Pace, start: int, stop: int) -> np.ndarray:
        """(stop - start,) float64: the rate of every step of one curve, which reaches from step `start` to `stop`.

        Args:
            pace: of the run that the curve is part of.
            start, stop: steps.
        """
        steps = stop - start
        percent = {"warmup": steps * self.warmup.value / 100, "decay": steps * self.decay.value / 100}
        share = self.warmup.unit is Unit.PERCENT
        warmup = round(percent["warmup"] if share else pace.after(start, self.warmup) - start)
        share = self.decay.unit is Unit.PERCENT
        decay = round(percent["decay"] if share else stop - pace.before(stop, self.decay))
        decay = decay if self.shape == "wsd" else steps - warmup
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
    """How gradients become an update.

    Attributes:
        name: the rule; see train.optimizer.make. "lamb" and "stableadamw" need the extra `optimizers`.
        betas, epsilon, weight_decay, clip: the defaults are the MLM-vs-CLM study's (arXiv 2507.00994, Table 1).
        decay_all: decay norms and embeddings too, as the study's code does.
        at_switch: keep the moments at the border of two phases, or start them anew; averaged weights go on either way.
        z_loss: weight of the squared log of the softmax's normaliser in the training loss, which the reported training
            loss then contains and validation losses do not.
        ema: decay of an exponential moving average of the weights (train.average), which a checkpoint then holds in
            place of the last weights; 0 is off. Training and validation use the weights themselves.
        bad_steps: a step whose loss or gradient is not finite is left out; so many in a row end the run.
    """

    name: Literal["adamw", "lamb", "stableadamw", "muon"] = "adamw"
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    epsilon: float = Field(default=1e-5, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    clip: float = Field(default=1.0, gt=0)
    decay_all: bool = False
    at_switch: AtSwitch = AtSwitch.CONTINUE
    z_loss: float = Field(default=0.0, ge=0)
    ema: float = Field(default=0.0, ge=0, lt=1)
    bad_steps: int = Field(default=5, ge=1)


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
        corpus, tokenizer: the data: one corpus, or a list of them that is mixed by their weights.
        model: the network.
        schedule: which objective rules when.
        budget: the whole that a schedule of shares divides; absent when the schedule fixes its own total.
        batch: shape of a step.
        learning_rate, optimizer: how to learn.
        seed: of initialisation, order of rows and masks.
        validation: losses on held-out text.
    """

    corpus: Corpora = (Corpus(),)
    tokenizer: Tokenizer = Tokenizer()
    model: Model = Model()
    schedule: Schedule
    budget: Amount | None = None
    batch: Batch = Batch()
    learning_rate: LearningRate = LearningRate()
    optimizer: Optimizer = Optimizer()
    seed: int = Field(default=0, ge=0)
    validation: Validation = Validation()

    @property
    def weights(self) -> list[int]:
        """Of the corpora, in their order."""
        return [corpus.weight for corpus in self.corpus]

    @model_validator(mode="after")
    def _fits(self) -> Pretrain:
        if self.batch.block > self.model.positions:
            raise ValueError(f"batch.length '{self.batch.length}' is more than model.positions {self.model.positions}")
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

    def __init__(self, run: Pretrain, data: str, supply: Supply) -> None:
        """Resolve a run.

        Args:
            run: the run.
            data: identity of its prepared corpus.
            supply: what an epoch of that corpus holds, in blocks of `run.batch.block`.

        Raises:
            ValueError: the schedule does not resolve into steps.
        """
        self.run = run
        self.supply = supply
        pacing = Pacing(run.batch.rows, run.batch.length, supply)
        self.spans: list[Span] = run.schedule.spans(run.budget, pacing)
        self.steps = self.spans[-1].stop
        self.pace = pacing.over(self.steps)
        borders = [(0, self.steps)]
        if run.learning_rate.at_switch is AtSwitch.RESTART:
            borders = [(span.start, span.stop) for span in self.spans]
        self._rates = np.concatenate([run.learning_rate.curve(self.pace, start, stop) for start, stop in borders])
        resets = {span.start for span in self.spans[1:]} if run.optimizer.at_switch is AtSwitch.RESTART else set()
        self.resets = frozenset(resets)
        self._base = fingerprint("pretrain", 2, data, self._chosen())
        self.trace = self._trace()

    def _chosen(self) -> dict[str, Any]:
        """What holds for every step; values left at their defaults are left out, so a new field changes nothing."""
        run = self.run
        kept = run.model_dump(mode="json", include={"model", "optimizer", "seed"}, exclude_defaults=True)
        if len(run.corpus) > 1:
            kept["weights"] = run.weights
        if run.batch.packing is not Packing.CONTIGUOUS:
            kept["packing"] = run.batch.packing.value
        return {**kept, "block": run.batch.block}

    def _trace(self) -> np.ndarray:
        """(steps, 5) uint64: what each step does, as numbers: objective, learning rate, reset, rows, row length."""
        trace = np.zeros((self.steps, 5), dtype=np.uint64)
        for span in self.spans:
            if span.at(span.start) == span.at(span.stop - 1):
                trace[span.start : span.stop, 0] = int(fingerprint(str(span.at(span.start))), 16)
            else:
                for step in range(span.start, span.stop):
                    trace[step, 0] = int(fingerprint(str(span.at(step))), 16)
        trace[:, 1] = self._rates.view(np.uint64)
        trace[sorted(self.resets), 2] = 1
        trace[:, 3] = self.pace.rows
        trace[:, 4] = self.pace.lengths
        return trace

    def rows(self, step: int) -> int:
        """B, of the batch of a step."""
        return int(self.pace.rows[step])

    def length(self, step: int) -> int:
        """T, of the batch of a step."""
        return int(self.pace.lengths[step])

    def first(self, step: int) -> int:
        """Slots of the run's data that are shown before a step."""
        return int(self.pace.slots[step])

    def first_row(self, step: int) -> int:
        """Rows of the run that are shown before a step."""
        return int(self.pace.first_rows[step])

    def tokens(self, step: int) -> float:
        """Tokens expected to be seen after `step` steps; the ledger of a checkpoint has the exact number."""
        return self.pace.tokens(step)

    def words(self, step: int) -> float:
        """Words expected to be seen after `step` steps."""
        return self.pace.words(step)

    def step_of(self, amount: Amount) -> int:
        """The step that is nearest to an amount of training from the beginning, a percentage being of all steps.

        Raises:
            ValueError: the run is shorter.
        """
        percent = amount.unit is Unit.PERCENT
        exact = self.steps * amount.value / 100 if percent else self.pace.after(0, amount)
        if round(exact) > self.steps:
            raise ValueError(f"the run is over after {self.steps} steps, before {amount} ({exact:.0f} steps)")
        return max(1, round(exact))

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
