"""Atomic writes: a reader sees a whole file or directory, or none.

A full disk or a lost permission becomes a UserError, and the half-written temporary is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from antiphon.config import UserError

NEARLY_FULL_BYTES = 2**20


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Yield a temporary directory beside `target`; rename it to `target` when the block ends well.

    If `target` came into being meanwhile (another process did the same work), ours is dropped.

    Raises:
        UserError: the disk is full or not writable; nothing is left behind.
    """
    with _explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        os.chmod(work, 0o755)
        try:
            yield work
            for path in sorted(work.rglob("*")):
                # Directories too: a name that did not reach the disk is a file that is not there after a power cut.
                _sync(path)
            _sync(work)
            try:
                os.rename(work, target)
            except OSError:
                if not target.is_dir():
                    raise
                shutil.rmtree(work)
            _sync(target.parent)
        except Exception as error:
            # Asked before the removal frees the space again.
            full = _concerns(error, target)
            shutil.rmtree(work, ignore_errors=True)
            if full and not isinstance(error, OSError | UserError):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise


def write_text(target: Path, text: str) -> None:
    """Write a text file atomically (temporary file, fsync, rename)."""
    with _explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(name, 0o644)
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise


def write_json(target: Path, value: Any) -> None:
    """Write one JSON document atomically."""
    write_text(target, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def checksum(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal; reads in pieces, so the size does not matter."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def lock(path: Path, wait: bool, holder: str, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a file for the length of the block.

    Args:
        path: the lock file, made if missing.
        wait: wait for the holder, or fail at once.
        holder: what holds it, for the message ("another `antiphon run`").
        shared: others who share it may hold it too; otherwise this process alone.

    Raises:
        UserError: the lock is held by another process and `wait` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            stream.seek(0)
            raise UserError(
                f"{path.parent}: {holder} (process {stream.read().strip() or 'unknown'}) is at work here. "
                "Wait for it to end or stop it first."
            ) from None
        stream.seek(0)
        stream.truncate()
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not _concerns(error, target):
            raise
        raise UserError(
            f"{target}: could not be written ({error.strerror or error}). Nothing was left behind; "
            "free some space or choose another folder with --workspace, then run the same command again."
        ) from error


def _concerns(error: Exception, target: Path) -> bool:
    """Whether an error is about writing to the target's disk, and not about something read or computed on the way."""
    if isinstance(error, OSError) and error.errno != errno.ENOSPC:
        return error.filename is None or str(error.filename).startswith(str(target.parent))
    # safetensors and torch report a full disk in errors of their own.
    no_space = os.strerror(errno.ENOSPC)
    return no_space in str(error) or (
        isinstance(error, RuntimeError) and shutil.disk_usage(target.parent).free < NEARLY_FULL_BYTES
    )
