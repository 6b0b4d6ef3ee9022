"""The identity of the data sets that tasks read, so that a score never outlives its data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from antiphon.config import fingerprint
from antiphon.data import docstrings
from antiphon.data.prepare import Checksums
from antiphon.finetune.catalog import task
from antiphon.finetune.readers.source import source


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
        paths = [source(Path(data) if data else None, relative) for relative in task(name).sources]
        content = list(map(remembered, paths)) if paths else docstrings.manifest()
        found[name] = fingerprint(task(name).kind.value, task(name).metric, task(name).length, content)
    remembered.save()
    return found
