"""Optional writers that pass reports on to TensorBoard, trackio or Weights & Biases; the JSON lines stay the truth."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from antiphon.config import UserError
from antiphon.machine import TrackerName


class Tracker(Protocol):
    """Takes the reports of one segment of a run."""

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Pass on one report."""
        ...

    def close(self) -> None:
        """Finish; what was written is on disk or on its way."""
        ...


def open_trackers(
    names: Sequence[TrackerName], folder: Path, project: str, run: str, config: Mapping[str, Any], step: int
) -> list[Tracker]:
    """Open the trackers that were asked for.

    Args:
        names: which.
        folder: TensorBoard's files go to a folder of the run's name in here.
        project: groups the runs in trackio and Weights & Biases.
        run: name of the run; opening it again goes on with it.
        config: what the run computes, shown beside its curves.
        step: where the reports begin; what an earlier try wrote beyond it is hidden where the tracker can do that.

    Raises:
        UserError: a tracker's library is not installed.
    """
    openers = {"tensorboard": _TensorBoard, "trackio": _Trackio, "wandb": _WeightsAndBiases}
    return [openers[name](folder, project, run, config, step) for name in names]


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a report by name; those of an inner mapping as outer/inner."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, Mapping):
            found |= {f"{name}/{inner}": number for inner, number in scalars(value).items()}
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = value
    return found


class _TensorBoard:
    def __init__(self, folder: Path, project: str, run: str, config: Mapping[str, Any], step: int) -> None:
        del project
        _library("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / run), purge_step=step + 1)
        self._writer.add_text("config", "\n".join(f"    {name}: {value}" for name, value in config.items()))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Trackio:
    def __init__(self, folder: Path, project: str, run: str, config: Mapping[str, Any], step: int) -> None:
        del folder, step
        self._library = _library("trackio")
        self._library.init(project=project, name=run, config=dict(config), resume="allow")

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._library.log(dict(scalars), step=step)

    def close(self) -> None:
        self._library.finish()


class _WeightsAndBiases:
    def __init__(self, folder: Path, project: str, run: str, config: Mapping[str, Any], step: int) -> None:
        del step
        folder.mkdir(parents=True, exist_ok=True)
        self._run = _library("wandb").init(
            project=project, id=run, name=run, config=dict(config), dir=str(folder), resume="allow"
        )

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.log(dict(scalars), step=step)

    def close(self) -> None:
        self._run.finish()


def _library(name: TrackerName) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            f"machine.trackers: {name!r} is not installed. Install it with `pip install {name}`, "
            "or take it out of the list."
        ) from None
