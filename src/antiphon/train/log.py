"""One JSON line a report, appended as training goes; a resumed run drops the lines it is about to write again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from antiphon.files import write_text


def read(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a log; a last line cut by a crash is left out."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines


class Log:
    """An append-only log of one segment of training."""

    def __init__(self, path: Path, step: int) -> None:
        """Open the log at `step`: later lines of an earlier try are dropped, since they will be written again."""
        kept = [line for line in read(path) if line["step"] <= step]
        write_text(path, "".join(json.dumps(line, sort_keys=True) + "\n" for line in kept))
        self._stream = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()

    def write(self, line: dict[str, Any]) -> None:
        """Append one report; it must hold "step"."""
        self._stream.write(json.dumps(line, sort_keys=True) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
