"""Where things lie on disk. Names are identities; every fact is inside the files, none is read out of a path."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from antiphon.data import docstrings


@dataclasses.dataclass(frozen=True)
class Workspace:
    """A folder that studies share: what one study has computed, another one finds.

    Attributes:
        root: the folder.
    """

    root: Path

    def corpus(self, identity: str) -> Path:
        """A prepared corpus."""
        return self.root / "corpora" / identity

    def state(self, identity: str) -> Path:
        """A pretrained checkpoint."""
        return self.root / "states" / identity

    def partial(self, identity: str) -> Path:
        """States on the way to a checkpoint, dropped when it is there."""
        return self.root / "partial" / identity

    def log(self, identity: str) -> Path:
        """The reports of the segment that leads to a checkpoint."""
        return self.root / "logs" / f"{identity}.jsonl"

    def scores(self, job: str) -> Path:
        """The rows of one fine-tuning."""
        return self.root / "results" / f"{job}.jsonl"

    def task(self, identity: str) -> Path:
        """The note that a task's examples have been read and found right."""
        return self.root / "tasks" / f"{identity}.json"

    def report(self, study: str) -> Path:
        """A study's page and tables."""
        return self.root / "reports" / study

    @property
    def passages(self) -> Path:
        """The docstrings of the pocket corpus and its tasks."""
        return self.root / docstrings.FOLDER

    def claim(self, identity: str) -> Path:
        """Held by who trains towards a checkpoint while others may be at work here; dropped with `partial`."""
        return self.partial(identity) / "lock"

    @property
    def lock(self) -> Path:
        """Held by the launcher at work here; shared by those who pretrain one run each."""
        return self.root / "lock"

    def sweep(self) -> None:
        """Remove temporary files that a killed process left. Only the holder of the lock may call this."""
        for folder in ("corpora", "states", "results", "logs", "passages", "reports", "tasks"):
            for path in (self.root / folder).glob(".*-*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in (self.root / "partial").glob("*/.*-*"):
            shutil.rmtree(path)
        for path in (self.root / "partial").glob("*"):
            # Killed between the checkpoint and the removal of what led to it.
            if self.state(path.name).is_dir():
                shutil.rmtree(path)
