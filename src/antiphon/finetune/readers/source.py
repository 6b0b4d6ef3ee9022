"""Where a reader finds its files, and the rule that cuts a split where the authors of the data left none."""

from __future__ import annotations

from pathlib import Path

from antiphon.config import UserError
from antiphon.draws import seed_of


def source(data: Path | None, relative: str) -> Path:
    """A file in the folder the study names.

    Raises:
        UserError: the study names no folder, or the file is not there.
    """
    if data is None:
        raise UserError(
            f"this task reads {relative} from a folder of yours, but the study names none. "
            "Name it with --set finetune.data=FOLDER."
        )
    path = data.expanduser() / relative
    if not path.exists():
        raise UserError(
            f"{path}: not found. The task reads {relative} from the folder {str(data)!r}; "
            "put the file there, or name another folder with --set finetune.data=FOLDER."
        )
    return path


def tenth(name: str) -> int:
    """A number from 0 to 9 that depends on the name alone: equal texts never come into different splits."""
    return seed_of(0, f"split|{name}") % 10
