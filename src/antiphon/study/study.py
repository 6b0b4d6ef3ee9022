"""A study as a value: what is compared, on which tasks, over which seeds; from YAML or Python, closed and typed."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from antiphon.config import Config, UserError, nearest
from antiphon.finetune.config import Protocol
from antiphon.machine import Machine
from antiphon.pretrain.amount import Amount, Unit
from antiphon.pretrain.config import Pretrain
from antiphon.pretrain.schedule import Schedule

# "/" and "@" part the name of a run: ARM/SEED@READING.
# Every million up to ten, every ten millions up to a hundred, every hundred millions beyond, as the challenge's call of
# 2025 asks (arXiv 2502.10645).
BABYLM_WORDS = tuple(step * count for step in (10**6, 10**7, 10**8) for count in range(1 if step == 10**6 else 2, 11))
ArmName = Annotated[str, Field(pattern=r"^[^/@\s]+$")]


class Axes(Config):
    """What varies. Every combination is one pretraining run.

    Attributes:
        schedule: the arms that are compared: a name and a schedule each.
        seed: pretraining seeds.
    """

    schedule: dict[ArmName, Schedule] = Field(min_length=1)
    seed: tuple[int, ...] = Field(default=(0,), min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Axes:
        if len(set(self.seed)) < len(self.seed):
            raise ValueError(f"seed {list(self.seed)} names one value twice")
        return self


class Finetuning(Protocol):
    """How every checkpoint is fine-tuned and scored: the protocol, and the axes of the fine-tunings.

    Attributes:
        tasks: names in the catalog.
        learning_rates: the grid; the best is chosen on validation.
        seeds: of the fine-tunings.
        data: folder that holds the data sets of tasks that need one.
    """

    tasks: tuple[str, ...] = ()
    learning_rates: tuple[float, ...] = Field(default=(1e-4,), min_length=1)
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    data: str = ""

    @model_validator(mode="after")
    def _distinct(self) -> Finetuning:
        for name in ("tasks", "learning_rates", "seeds"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} {list(values)} names one value twice")
        if any(rate <= 0 for rate in self.learning_rates):
            raise ValueError(f"learning_rates {list(self.learning_rates)} must all be more than zero")
        return self


class Study(Config):
    """A controlled study.

    Attributes:
        name: names its folder of reports.
        question: what it asks, one sentence.
        expectation: what is expected, written down before the results are seen.
        cost: what it takes, in words.
        baseline: the arm that others are compared with.
        pretrain: what all runs share.
        axes: what varies.
        readings: the moments of a run whose checkpoint is kept and fine-tuned: percentages of its steps, rising to
            100%, or amounts such as "10M words"; or "babylm", the word counts the BabyLM challenge asks for.
        finetune: how checkpoints are scored.
        machine: where it runs, unless the command line says otherwise; never part of a run's identity.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    question: str = ""
    expectation: str = ""
    cost: str = ""
    baseline: str
    pretrain: Mapping[str, Any] = Field(default_factory=dict)
    axes: Axes
    readings: tuple[Amount, ...] | Literal["babylm"] = (Amount(100, Unit.PERCENT),)
    finetune: Finetuning = Finetuning()
    machine: Machine = Machine()

    @model_validator(mode="after")
    def _sound(self) -> Study:
        arms = list(self.axes.schedule)
        if self.baseline not in arms:
            raise ValueError(f"baseline {self.baseline!r} is not an arm; {nearest(self.baseline, arms)}")
        if self.readings != "babylm":
            _check_readings(self.readings)
        for axis in Axes.model_fields:
            if axis in self.pretrain:
                raise ValueError(f"pretrain.{axis} varies in this study: give it as axes.{axis}")
        return self

    def readings_of(self, words: float) -> tuple[Amount, ...]:
        """The readings of a run that shows so many words."""
        if self.readings != "babylm":
            return self.readings
        # A run's words are an expectation, so the last named count may lie a hair beyond its end.
        named = tuple(Amount(count, Unit.WORDS) for count in BABYLM_WORDS if count < 0.999 * words)
        return (*named, Amount(100, Unit.PERCENT))

    def runs(self) -> dict[tuple[str, int], Pretrain]:
        """Every pretraining run, by (arm, seed), in the order of the axes.

        Raises:
            UserError: a combination is not a valid run.
        """
        return {
            (arm, seed): Pretrain.read({**self.pretrain, "schedule": schedule, "seed": seed}, "pretrain")
            for arm, schedule in self.axes.schedule.items()
            for seed in self.axes.seed
        }

    def named(self, name: str) -> tuple[str, int]:
        """The run that a name stands for: ARM/SEED, or ARM for its first seed.

        Raises:
            UserError: there is no such run; the nearest name is given.
        """
        names = {f"{arm}/{seed}": (arm, seed) for arm in self.axes.schedule for seed in self.axes.seed}
        wanted = name if "/" in name else f"{name}/{self.axes.seed[0]}"
        if wanted not in names:
            raise UserError(f"no run {name!r} in study {self.name}; {nearest(wanted, list(names))}")
        return names[wanted]


def _check_readings(readings: tuple[Amount, ...]) -> None:
    shown = [str(reading) for reading in readings]
    if any(reading.unit is Unit.SHARE for reading in readings):
        raise ValueError(f"readings {shown}: each needs a unit, as in '25%', '10M words' or '500 steps'")
    for unit in {reading.unit for reading in readings}:
        values = [reading.value for reading in readings if reading.unit is unit]
        if values != sorted(set(values)):
            raise ValueError(f"readings {shown} must rise")
    if not readings or readings[-1] != Amount(100, Unit.PERCENT):
        raise ValueError(f"the last reading must be 100%, got {shown}")


def read(path: Path, changes: Sequence[str] = ()) -> Study:
    """Read a study file.

    Args:
        path: a YAML file.
        changes: "key.key=value" overrides; the value is read as YAML.

    Raises:
        UserError: the file is missing or not YAML, a key is unknown (the nearest real one is named), a value is wrong.
    """
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}). Give the path of a study file.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: a study file is a mapping with keys such as name, pretrain and axes, not {data!r}.")
    data = copy.deepcopy(data)
    for change in changes:
        _set(data, change)
    study = Study.read(data, str(path))
    study.runs()
    return study


def _set(data: dict[str, Any], change: str) -> None:
    key, mark, text = change.partition("=")
    if not mark or not key:
        raise UserError(f"--set {change!r}: write KEY=VALUE, for example pretrain.corpus=mytext/")
    place = data
    *parents, last = key.split(".")
    for parent in parents:
        inner = place.get(parent)
        if isinstance(inner, str) and parent in ("corpus", "tokenizer"):
            inner = {"path": inner}
        place[parent] = inner if isinstance(inner, dict) else {}
        place = place[parent]
    try:
        place[last] = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise UserError(f"--set {change!r}: the value is not valid YAML ({error})") from None


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number (YAML 1.1, which PyYAML follows, wants 1.0e-3) and a repeated key is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                raise yaml.YAMLError(f"line {node.start_mark.line + 1}: the key {key!r} is given twice")
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    key: [item for item in resolvers if item[0] != "tag:yaml.org,2002:float"]
    for key, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?$|^[-+]?\.(?:inf|Inf)$|^\.(?:nan|NaN)$"),
    list("-+0123456789."),
)
