"""Where a reader finds its files and their lines, and the rule that cuts a split where the authors left none."""

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
    if not path.is_file():
        raise UserError(
            f"{path}: not found. The task reads {relative} from the folder {str(data)!r}; "
            "put the file there, or name another folder with --set finetune.data=FOLDER."
        )
    return path


def lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file without their ends; the last is empty where the file ends with its last line.

    Raises:
        UserError: the file is not UTF-8; the message names the line.
    """
    content = path.read_bytes()
    try:
        return content.decode().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        number = 1 + content.count(b"\n", 0, error.start)
        raise UserError(
            f"{path}:{number}: not UTF-8 (byte {content[error.start]:#04x}). Bring the file as it was published."
        ) from None


def tenth(name: str) -> int:
    """A number from 0 to 9 that depends on the name alone: equal texts never come into different splits."""
    return seed_of(0, f"split|{name}") % 10
