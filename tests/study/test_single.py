"""One run by itself, in one process or under torchrun, leaves what the whole study would have left of it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from antiphon.cli import main
from antiphon.config import UserError
from antiphon.files import lock
from antiphon.study import drive, single
from antiphon.study.console import LiveConsole
from antiphon.study.jobs import Job, jobs, missing
from antiphon.study.study import Study, read
from antiphon.study.work import execute
from antiphon.study.workspace import Workspace
from antiphon.train import checkpoint, ranks
from antiphon.train.ranks import Meeting
from tests import tiny

STUDY: dict[str, Any] = {
    "name": "tiny",
    "baseline": "clm",
    "pretrain": {
        "budget": "8 steps",
        "model": dict(tiny.MODEL),
        "batch": dict(tiny.BATCH),
        "tokenizer": {"vocabulary": 300},
        "learning_rate": {"peak": 3e-3, "warmup": "2 steps", "decay": "2 steps"},
        "validation": {"points": 2, "rows": 4},
    },
    "axes": {"schedule": {"clm": "clm", "both": "25% clm > 75% mlm(0.4)"}},
    "finetune": {"tasks": ["wnut17"], "data": "not here"},
    "machine": {"workers": 1, "device": "cpu", "precision": "float32", "save_seconds": 1e6},
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        monkeypatch.setenv(name, "32")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> Path:
    """A study file."""
    path = tmp_path_factory.mktemp("single") / "study.yaml"
    values = {**STUDY, "pretrain": {**STUDY["pretrain"], "corpus": str(tiny_text)}}
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def whole(file: Path) -> Workspace:
    """A workspace in which a study has been trained, job by job."""
    study, space = read(file), Workspace(file.parent / "whole")
    drive.prepare_corpus(study, space, Console(quiet=True))
    for job in _jobs(study, space):
        execute(job.work, study.machine, lambda facts: None, lambda: False)
    return space


@pytest.fixture
def space(whole: Workspace, tmp_path: Path) -> Workspace:
    """A workspace with a prepared corpus."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "corpora").symlink_to(whole.root.absolute() / "corpora")
    return Workspace(tmp_path / "runs")


def _jobs(study: Study, space: Workspace) -> list[Job]:
    """All pretraining jobs: the common beginning, then the two ends."""
    found = jobs(
        drive.planned(study.model_copy(update={"finetune": Study.model_fields["finetune"].default}), space), space
    )
    assert [job.title for job in found] == [
        "pretrain clm+both seed 0",
        "pretrain clm seed 0",
        "pretrain both seed 0",
    ]
    return found


def _states(space: Workspace) -> set[str]:
    return {path.name for path in (space.root / "states").glob("*")}


def _as_a_rank(file: Path, space: Workspace) -> int:
    """As the only rank, in this process."""
    return single.pretrain_as_a_rank(file, [], "both/0", space, Console(quiet=True))


def test_a_run_alone_is_prepared_and_leaves_the_states_that_its_study_would(
    file: Path, whole: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = Workspace(tmp_path)
    assert single.pretrain(file, [], "both/0", space, Console()) == 0
    trunk, other, own = _jobs(read(file), space)
    assert _states(space) == {trunk.id, own.id}
    for job in (trunk, own):
        assert tiny.differing(space.state(job.id), whole.state(job.id)) == []
    assert missing([trunk, other, own]) == [other]
    assert not list((tmp_path / "partial").glob("*"))
    assert "preparing corpus" in capsys.readouterr().out
    assert single.pretrain(file, [], "both/0", space, Console()) == 0
    assert "nothing to do: run both/0 is trained" in capsys.readouterr().out


def test_a_beginning_that_is_there_is_not_trained_again(file: Path, whole: Workspace, space: Workspace) -> None:
    trunk, _, own = _jobs(read(file), space)
    shutil.copytree(whole.state(trunk.id), space.state(trunk.id))
    assert _as_a_rank(file, space) == 0
    assert not space.log(trunk.id).exists()
    assert tiny.differing(space.state(own.id), whole.state(own.id)) == []


def test_what_is_lacking_is_what_nothing_later_stands_for(file: Path, space: Workspace) -> None:
    trunk, _, own = _jobs(read(file), space)

    def lacking(*changes: str) -> list[str]:
        study = read(file, [*changes, "finetune={}"])
        return [job.id for job in single._lacking(drive.planned(study, space), ("both", 0), space)]

    assert lacking() == [trunk.id, own.id]
    space.state(own.id).mkdir(parents=True)
    # The beginning was deleted to save space; who reads it needs it.
    assert lacking() == []
    assert lacking("readings=[25%, 100%]") == [trunk.id]
    space.state(own.id).rmdir()
    space.state(trunk.id).mkdir()
    assert lacking() == [own.id]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops_and_a_second_start_goes_on(
    file: Path, whole: Workspace, space: Workspace, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    trunk, _, own = _jobs(read(file), space)
    real = LiveConsole.progress
    told: list[int] = []

    def progress(self: LiveConsole, worker: int, job: Job, facts: dict[str, Any]) -> None:
        real(self, worker, job, facts)
        told.append(facts["step"])
        if told == [1, 2, 3, 4, 5]:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(LiveConsole, "progress", progress)
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        _as_a_rank(file, space)
    assert signal.getsignal(number) is before
    assert _states(space) == {trunk.id}
    (state,) = space.partial(own.id).glob("step-*")
    assert checkpoint.read_facts(state)["step"] == 5
    assert _as_a_rank(file, space) == 0
    assert told == list(range(1, 9))
    assert tiny.differing(space.state(own.id), whole.state(own.id)) == []


# Mistakes


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("bth/0", "did you mean 'both/0'?"),
        ("bth", "did you mean 'both/0'?"),
        ("both/7", "did you mean 'both/0'?"),
        ("both/0@100%", "did you mean 'both/0'?"),
        ("xyz", "allowed: both/0, clm/0"),
    ],
)
def test_an_unknown_run_is_told_the_nearest_and_nothing_is_begun(
    file: Path, tmp_path: Path, name: str, hint: str
) -> None:
    for verb in (single.pretrain, single.pretrain_as_a_rank):
        with pytest.raises(UserError) as caught:
            verb(file, [], name, Workspace(tmp_path), Console(quiet=True))
        assert str(caught.value) == f"no run '{name}' in study tiny; {hint}"
    assert list(tmp_path.iterdir()) == []


def test_an_arm_stands_for_its_first_seed(file: Path) -> None:
    study = read(file, ["axes.seed=[3, 1]"])
    assert study.named("both") == ("both", 3)
    assert study.named("both/1") == ("both", 1)


def test_several_ranks_do_not_prepare(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def met() -> Iterator[Meeting]:
        yield Meeting(0, 2)

    monkeypatch.setattr(ranks, "met", met)
    with pytest.raises(UserError, match="is not prepared: run `antiphon prepare STUDY` first, with the same"):
        _as_a_rank(file, Workspace(tmp_path))


def test_runs_of_a_workspace_may_be_trained_at_once_but_each_segment_by_one(file: Path, space: Workspace) -> None:
    trunk, _, own = _jobs(read(file), space)
    with lock(space.lock, wait=False, holder="a study"), pytest.raises(UserError, match="is at work here"):
        _as_a_rank(file, space)
    with lock(space.lock, wait=False, holder="another run", shared=True):
        with lock(space.claim(own.id), wait=False, holder="it"), pytest.raises(UserError, match="is at work here"):
            _as_a_rank(file, space)
        assert _states(space) == set()
        assert _as_a_rank(file, space) == 0
    assert _states(space) == {trunk.id, own.id}
    assert not list((space.root / "partial").iterdir())


# Under torchrun

# What `-m antiphon` does, but after five steps the launcher gets a signal; it is waited for until it is passed on.
STOPPED = """
import os, select, signal
from antiphon.cli import main
from antiphon.study.console import LiveConsole

real = LiveConsole.progress
ear, mouth = os.pipe()
os.set_blocking(mouth, False)
signal.set_wakeup_fd(mouth)

def progress(self, worker, job, facts):
    real(self, worker, job, facts)
    if facts["step"] == 5:
        os.kill(os.getppid(), signal.SIGTERM)
        select.select([ear], [], [], 60)

LiveConsole.progress = progress
main()
"""


def _torchrun(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Two processes."""
    start = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
    return subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_two_processes_of_a_launcher_stop_go_on_and_end_with_the_weights_of_one(
    file: Path, whole: Workspace, space: Workspace, tmp_path: Path
) -> None:
    trunk, _, own = _jobs(read(file), space)
    script = tmp_path / "stopped.py"
    script.write_text(STOPPED, encoding="utf-8")
    command = ["pretrain", file, "both/0", "--set", "machine.parallel=fsdp"]
    stopped = _torchrun(script, *command, folder=tmp_path)
    assert stopped.returncode != 0
    assert stopped.stdout.count("stopping: saving what is being trained") == 1, stopped.stdout + stopped.stderr
    assert stopped.stderr.count("the same command goes on from here") == 1
    assert _states(space) == {trunk.id}
    assert [path.name for path in space.partial(own.id).glob("step-*")] == ["step-000000005"]

    done = _torchrun("-m", "antiphon", *command, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("goes on from step 5") == 1
    assert done.stdout.count("run both/0: trained in") == 1
    for job in (trunk, own):
        assert tiny.far(space.state(job.id), whole.state(job.id), 1e-6) == []
    assert "Warning" not in done.stderr


def _typed(rank: int, port: int, arguments: list[str], output: Path) -> None:
    """A command as one of two ranks, all of whose output goes to the end of a file."""
    known = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(known)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["antiphon", *arguments]
    main()


def test_what_is_wrong_for_every_process_of_a_launcher_is_told_once(file: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["antiphon.study.work"])
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    output = tmp_path / "output"
    started = [
        context.Process(target=_typed, args=(rank, port, ["pretrain", str(file), "bth/0"], output), daemon=True)
        for rank in range(2)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
    assert [process.exitcode for process in started] == [1, 1]
    # The store's own words about a rank that has left are torch's.
    said = [line for line in output.read_text(encoding="utf-8").splitlines() if not line.startswith(("[", "W", "E"))]
    assert said == ["error: no run 'bth/0' in study tiny; did you mean 'both/0'?"]
