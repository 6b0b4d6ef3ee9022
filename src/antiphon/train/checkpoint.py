"""Checkpoints: a directory in Hugging Face form plus what training needs to go on, whole or not there at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from antiphon.config import UserError
from antiphon.files import checksum, new_directory
from antiphon.train.optimizer import Together
from antiphon.train.parallel import like, whole

FACTS = "run.json"
STATE = "state.pt"
FORMAT = 2
"""Of state.pt. 2: the optimizer's state by the names of the parameters, so that any number of processes can read it."""


def save(
    folder: Path,
    write_model: Callable[[Path], None],
    training: Mapping[str, Any],
    companions: Sequence[Path],
    facts: Mapping[str, Any],
) -> None:
    """Write a checkpoint atomically; `run.json`, with the other files' checksums, is written last.

    Args:
        folder: where; if a complete checkpoint is there already, it stays (same identity, same content).
        write_model: writes weights and config into a folder.
        training: what goes to `state.pt`: tensors, numbers and strings in dicts and lists.
        companions: files copied in (the tokenizer's).
        facts: what identifies and describes the checkpoint (JSON).

    Raises:
        UserError: the disk is full or not writable; earlier checkpoints are untouched.
    """
    with new_directory(folder) as work:
        write_model(work)
        try:
            torch.save(dict(training), work / STATE)
        except RuntimeError as error:
            # How torch says that a disk is full.
            raise OSError(f"{STATE}: {error}") from error
        for path in companions:
            (work / path.name).write_bytes(path.read_bytes())
        sums = {path.name: checksum(path) for path in sorted(work.iterdir())}
        text = json.dumps({**facts, "format": FORMAT, "checksums": sums}, indent=1, sort_keys=True)
        (work / FACTS).write_text(text, encoding="utf-8")


def read_facts(folder: Path) -> dict[str, Any]:
    """The facts of a complete checkpoint.

    Raises:
        UserError: the folder holds none, a file is missing or damaged, or another version wrote it.
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        checksums = facts["checksums"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: not a complete checkpoint ({error}). Delete the folder and run again.") from None
    if facts.get("format") != FORMAT:
        raise UserError(
            f"{folder}: its training state has format {facts.get('format', 1)}, and this version reads {FORMAT}. "
            "Delete the folder and run again; it is made anew."
        )
    for name, expected in checksums.items():
        if not (folder / name).is_file() or checksum(folder / name) != expected:
            raise UserError(f"{folder / name}: missing or damaged. Delete {folder} and run again; it is made anew.")
    return facts


def peek(folder: Path) -> dict[str, Any]:
    """The facts of a checkpoint that `read_facts` has found complete; reads no other file."""
    return json.loads((folder / FACTS).read_text(encoding="utf-8"))


def read_training(folder: Path) -> dict[str, Any]:
    """What `save` was given as `training`, on the CPU."""
    return torch.load(folder / STATE, map_location="cpu", weights_only=True)


def copied(tensor: Tensor, keep: bool) -> Tensor:
    """A whole tensor as a copy on the CPU; an empty one where it is not kept. All ranks together."""
    found = whole(tensor.detach())
    return found.to("cpu", copy=True) if keep else torch.empty(0)


def optimizer_state(optimizer: Together, model: nn.Module, keep: bool) -> dict[str, Any]:
    """The state of an optimizer, as whole tensors on the CPU by the names of the model's parameters.

    Args:
        optimizer: over the model's parameters.
        model: gives the names.
        keep: whether this rank wants it; with sharded parameters all ranks call this together.

    Returns:
        {"state": {name: {key: value}}, "groups": [{"params": names, key: value}]}.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    state: dict[str, Any] = {}
    groups = []
    for part in optimizer.parts:
        for group in part.param_groups:
            for parameter in group["params"]:
                state[names[id(parameter)]] = {
                    key: copied(value, keep) if isinstance(value, Tensor) else value
                    for key, value in part.state.get(parameter, {}).items()
                }
            groups.append({**group, "params": [names[id(parameter)] for parameter in group["params"]]})
    return {"state": {name: values for name, values in state.items() if values}, "groups": groups}


def restore_optimizer(saved: Mapping[str, Any], optimizer: Together, model: nn.Module) -> None:
    """Load what `optimizer_state` gave into an optimizer of the same settings, however its parameters are sharded.

    Raises:
        UserError: it is of another network.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    strange = sorted(saved["state"].keys() - names.values())
    if strange:
        # A parameter without a state begins anew; under another name all of them would, without a word.
        raise UserError(
            f"the saved optimizer holds moments of {strange[0]!r}, which the network does not have. "
            "Delete the checkpoint and run again; it is made anew."
        )
    groups = iter(saved["groups"])
    for part in optimizer.parts:
        packed = part.state_dict()
        parameters = [parameter for group in part.param_groups for parameter in group["params"]]
        packed["state"] = {
            number: {key: _placed(value, parameter) for key, value in saved["state"][names[id(parameter)]].items()}
            for number, parameter in enumerate(parameters)
            if names[id(parameter)] in saved["state"]
        }
        # Settings are the run's own; what a library counts in its groups comes back.
        packed["param_groups"] = [{**dict(next(groups)), **group} for group in packed["param_groups"]]
        part.load_state_dict(packed)


def _placed(value: Any, parameter: Tensor) -> Any:
    return like(value, parameter) if isinstance(value, Tensor) and value.shape == parameter.shape else value


class Saver:
    """Does one thing after the other, in one thread of its own, and brings what went wrong there back here."""

    def __init__(self, background: bool) -> None:
        """Args: background: in a thread, or at once."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="saver") if background else None
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Begin some work when what came before is done.

        Raises:
            UserError: what came before went wrong.
        """
        self.wait()
        if self._pool is None:
            work()
        else:
            self._last = self._pool.submit(work)

    def check(self) -> None:
        """Raise what went wrong, if something has; does not wait."""
        if self._last is not None and self._last.done():
            self.wait()

    def wait(self) -> None:
        """Wait until nothing is left to do, and raise what went wrong."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait for the thread; what went wrong and was not asked for is dropped: something else has ended the run."""
        if self._pool is not None:
            self._pool.shutdown()
