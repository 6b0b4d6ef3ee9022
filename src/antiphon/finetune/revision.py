"""The identity of the data sets that tasks read, so that a score never outlives its data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from antiphon.config import UserError, fingerprint
from antiphon.data import docstrings
from antiphon.data.prepare import Checksums
from antiphon.finetune.catalog import task


def revision(names: Sequence[str], data: str, workspace: Path) -> dict[str, str]:
    """An identity for each task, by the content of its files; the pocket tasks' by the library versions they read.

    Args:
        names: tasks in the catalog.
        data: the folder that holds the data sets; empty when no task needs one.
        workspace: where checksums are remembered.

    Raises:
        UserError: a task is unknown, or a file is missing.
    """
    remembered = Checksums(workspace / "corpora" / "checksums.json")
    found = {}
    for name in names:
        sources = task(name).sources
        if sources and not data:
            raise UserError(f"task {name!r} needs a folder of data sets; name it with --set finetune.data=FOLDER")
        paths = [Path(data).expanduser() / source for source in sources]
        for path in paths:
            if not path.is_file():
                raise UserError(
                    f"task {name!r}: {path} is missing. Name the folder that holds it: --set finetune.data=FOLDER"
                )
        content = list(map(remembered, paths)) if paths else docstrings.manifest()
        found[name] = fingerprint(task(name).kind.value, task(name).metric, task(name).length, content)
    remembered.save()
    return found
