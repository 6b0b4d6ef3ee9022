"""A reader sees a whole file or directory, or none."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from antiphon import files
from antiphon.config import UserError
from antiphon.results import table


def _full(*arguments: object) -> NoReturn:
    raise OSError(28, "No space left on device")


@pytest.fixture
def small_disk() -> Iterator[Callable[[int], None]]:
    """Limits the size of any file this process writes: a write beyond it fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_text_is_written_whole_and_readable_by_others(tmp_path: Path) -> None:
    files.write_text(tmp_path / "deep" / "a.txt", "ä\n")
    assert (tmp_path / "deep" / "a.txt").read_bytes() == "ä\n".encode()
    assert stat.S_IMODE((tmp_path / "deep" / "a.txt").stat().st_mode) == 0o644
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.txt"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_text_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    target = tmp_path / "a.txt"
    files.write_text(target, "old")
    monkeypatch.setattr(os, failing, _full)
    with pytest.raises(UserError, match=r"a\.txt: could not be written \(No space left on device\)"):
        files.write_text(target, "new")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_write_that_fails_half_way_leaves_the_old_text(tmp_path: Path, small_disk: Callable[[int], None]) -> None:
    target = tmp_path / "a.txt"
    files.write_text(target, "old")
    small_disk(10_000)
    with pytest.raises(UserError, match="could not be written"):
        files.write_text(target, "new" * 10_000)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_score_rows_that_do_not_fit_the_disk_leave_those_before(
    tmp_path: Path, small_disk: Callable[[int], None]
) -> None:
    row = table.Score("j", "s", "t", "classify", 1e-3, 0, "test", "accuracy", 0.5, 10, 0, 1.0)
    table.write(tmp_path / "j.jsonl", [row])
    small_disk(10_000)
    many = [dataclasses.replace(row, metric=f"metric {number}") for number in range(200)]
    for name in ("j.jsonl", "k.jsonl"):
        with pytest.raises(UserError, match="could not be written"):
            table.write(tmp_path / name, many)
    assert os.listdir(tmp_path) == ["j.jsonl"]
    assert table.read([tmp_path / "j.jsonl"]) == [row]


def test_a_directory_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "state"
    with files.new_directory(target) as work:
        (work / "inner").mkdir()
        (work / "inner" / "a").write_text("a")
        assert not target.exists()
    assert (target / "inner" / "a").read_text() == "a"
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_directory_does_not_appear_when_the_block_fails(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with files.new_directory(tmp_path / "state") as work:
            (work / "a").write_text("a")
            raise error

    with pytest.raises(error):
        fail()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_a_full_disk_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    monkeypatch.setattr(os, failing, _full)
    with (
        pytest.raises(UserError, match="state: could not be written"),
        files.new_directory(tmp_path / "state") as work,
    ):
        (work / "a").write_text("a")
    assert os.listdir(tmp_path) == []


def test_two_who_make_the_same_directory_end_with_one(tmp_path: Path) -> None:
    target = tmp_path / "state"
    with files.new_directory(target) as ours:
        (ours / "a").write_text("the same")
        with files.new_directory(target) as theirs:
            (theirs / "a").write_text("the same")
    assert (target / "a").read_text() == "the same"
    assert os.listdir(tmp_path) == ["state"]


def test_a_file_in_the_way_of_a_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(UserError, match="state: could not be written"), files.new_directory(tmp_path / "state"):
        pass
    assert (tmp_path / "state").read_text() == "a file"


def test_the_checksum_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc" * 1000)
    assert files.checksum(tmp_path / "a") == hashlib.sha256(b"abc" * 1000).hexdigest()


def test_a_lock_is_held_against_other_processes_and_let_go(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from antiphon import files\n"
        "from antiphon.config import UserError\n"
        "try:\n"
        "    with files.lock(Path(sys.argv[1]), False, 'another run', shared='shared' in sys.argv): print('free')\n"
        "except UserError as error: print(error)\n"
    )

    def other(*how: str) -> str:
        command = [sys.executable, "-c", code, str(tmp_path / "lock"), *how]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with files.lock(tmp_path / "lock", wait=False, holder="another run"):
        assert f"another run (process {os.getpid()}) is at work here" in other()
        assert "is at work here" in other("shared")
    assert other() == "free\n"
    with files.lock(tmp_path / "lock", wait=False, holder="another run", shared=True):
        assert "is at work here" in other()
        assert other("shared") == "free\n"
