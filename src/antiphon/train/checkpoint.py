"""Checkpoints: a directory in Hugging Face form plus what training needs to go on, whole or not there at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from antiphon.config import UserError
from antiphon.files import checksum, new_directory

FACTS = "run.json"
STATE = "state.pt"


def save(
    folder: Path,
    write_model: Callable[[Path], None],
    optimizer: torch.optim.Optimizer,
    companions: Sequence[Path],
    facts: Mapping[str, Any],
) -> None:
    """Write a checkpoint atomically; `run.json`, with the other files' checksums, is written last.

    Args:
        folder: where; if a complete checkpoint is there already, it stays (same identity, same content).
        write_model: writes weights and config into a folder.
        optimizer: its state goes to `state.pt`.
        companions: files copied in (the tokenizer's).
        facts: what identifies and describes the checkpoint (JSON).

    Raises:
        UserError: the disk is full or not writable; earlier checkpoints are untouched.
    """
    with new_directory(folder) as work:
        write_model(work)
        try:
            torch.save(optimizer.state_dict(), work / STATE)
        except RuntimeError as error:
            # How torch says that a disk is full.
            raise OSError(f"{STATE}: {error}") from error
        for path in companions:
            (work / path.name).write_bytes(path.read_bytes())
        sums = {path.name: checksum(path) for path in sorted(work.iterdir())}
        (work / FACTS).write_text(json.dumps({**facts, "checksums": sums}, indent=1, sort_keys=True), encoding="utf-8")


def read_facts(folder: Path) -> dict[str, Any]:
    """The facts of a complete checkpoint.

    Raises:
        UserError: the folder holds none, or a file is missing or damaged.
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        checksums = facts["checksums"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: not a complete checkpoint ({error}). Delete the folder and run again.") from None
    for name, expected in checksums.items():
        if not (folder / name).is_file() or checksum(folder / name) != expected:
            raise UserError(f"{folder / name}: missing or damaged. Delete {folder} and run again; it is made anew.")
    return facts


def restore_optimizer(folder: Path, optimizer: torch.optim.Optimizer) -> None:
    """Load the optimizer's state from a checkpoint into `optimizer`."""
    optimizer.load_state_dict(torch.load(folder / STATE, weights_only=True))
