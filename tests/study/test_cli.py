"""The verbs as a user types them: messages, exit codes, and what is left on disk when something goes wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from antiphon.cli import main
from antiphon.data.prepare import Prepared
from antiphon.files import lock
from antiphon.study.workspace import Workspace
from tests import tiny

STUDY: dict[str, Any] = {
    "name": "tiny",
    "question": "Does it work?",
    "baseline": "mlm",
    "pretrain": {
        "budget": "8 steps",
        "model": dict(tiny.MODEL),
        "batch": dict(tiny.BATCH),
        "tokenizer": {"vocabulary": 300},
        "learning_rate": {"warmup": "1 steps", "decay": "2 steps"},
        "validation": {"points": 2, "rows": 4},
    },
    "axes": {"schedule": {"mlm": "mlm(0.4)", "both": "25% clm > 75% mlm(0.4)"}},
    "machine": {"workers": 1, "device": "cpu", "precision": "float32"},
}


@pytest.fixture
def study(tmp_path: Path, tiny_text: Path) -> Path:
    """A study file in an empty folder."""
    values = {**STUDY, "pretrain": {**STUDY["pretrain"], "corpus": str(tiny_text)}}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path


def antiphon(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command typed in a folder, in a terminal wide enough not to break lines."""
    return subprocess.run(
        [sys.executable, "-c", CALL, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


# What the console script does, and then which heavy libraries it took to do it.
CALL = """
import sys
from antiphon.cli import main
sys.argv[0] = "antiphon"
try:
    main()
finally:
    heavy = {"torch", "transformers", "matplotlib", "scipy", "sklearn"} & set(sys.modules)
    print("heavy:", *sorted(heavy), file=sys.stderr)
"""


def heavy(done: subprocess.CompletedProcess[str]) -> set[str]:
    return set(done.stderr.splitlines()[-1].removeprefix("heavy:").split())


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that went wrong said, which is never a traceback."""
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return "\n".join(done.stderr.splitlines()[:-1])


def left(folder: Path) -> set[str]:
    """What is in a folder, but for locks and remembered checksums."""
    found = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name for name in found if Path(name).name not in ("lock", "checksums.json")}


def test_planning_and_asking_load_no_torch(study: Path, tmp_path: Path) -> None:
    said = antiphon("--help", folder=tmp_path)
    assert said.returncode == 0
    for verb in ("run", "prepare", "pretrain", "plan", "status", "report", "export"):
        assert verb in said.stdout
    assert heavy(said) == set()
    # The tokenizer needs its library, but no network.
    assert antiphon("prepare", study, folder=tmp_path).returncode == 0
    planned = antiphon("plan", study, folder=tmp_path)
    assert planned.returncode == 0
    assert "steps 0-8 mlm(0.4): mlm" in planned.stdout
    assert heavy(planned) == set()
    asked = antiphon("status", study, folder=tmp_path)
    assert asked.returncode == 0
    assert heavy(asked) == set()


def test_status_before_anything_says_so(study: Path, tmp_path: Path) -> None:
    asked = antiphon("status", study, folder=tmp_path)
    assert asked.returncode == 0
    assert "not begun" in asked.stdout


def test_plan_before_prepare_says_what_to_do(study: Path, tmp_path: Path) -> None:
    for verb in ("plan", "report"):
        assert "is not prepared: run `antiphon prepare STUDY` first" in complaint(
            antiphon(verb, study, folder=tmp_path)
        )


# Mistakes


@pytest.mark.parametrize("arguments", [["runn"], ["run"], ["run", "study.yaml", "--workspce", "x"]])
def test_a_wrong_command_is_explained(tmp_path: Path, arguments: list[str]) -> None:
    done = antiphon(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert "Usage: antiphon" in complaint(done)


def test_a_missing_study_leaves_nothing(tmp_path: Path) -> None:
    done = antiphon("run", "nothing.yaml", folder=tmp_path)
    assert done.returncode == 1
    assert "nothing.yaml: cannot be read" in complaint(done)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("pretrain.bugdet=9 steps", "unknown key 'bugdet'; did you mean 'budget'?"),
        ("axes.schedule.mlm=mlm(40)", "did you mean 0.4?"),
        ("axes.schedule.both=25% clm > 70% mlm(0.4)", "the percentages add up to 95, not to 100"),
        ("finetune.tasks=[pocket-cod]", "unknown task 'pocket-cod'; did you mean 'pocket-code'?"),
        ("finetune.tasks=[wnut17]", "finetune.data"),
        ("pretrain.corpus=nowhere/", "corpus 'nowhere/': no such file or folder"),
        ("pretrain.tokenizer=nowhere/", "tokenizer 'nowhere': no tokenizer.json there"),
    ],
)
def test_a_mistake_is_told_in_one_message_and_leaves_nothing(
    study: Path, tmp_path: Path, change: str, message: str
) -> None:
    done = antiphon("run", study, "--set", change, folder=tmp_path)
    assert done.returncode == 1
    assert message in complaint(done)
    assert heavy(done) == set()
    assert left(tmp_path) == {"study.yaml"}


BAD = {"empty.txt": b"", "blank.txt": b" \n\n \n", "latin.txt": b"caf\xe9"}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_corpus_is_told_in_one_message_and_leaves_nothing(study: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(BAD[name])
    done = antiphon("run", study, "--set", f"pretrain.corpus={name}", folder=tmp_path)
    assert name in complaint(done)
    assert left(tmp_path) == {"study.yaml", name}


def test_brackets_in_a_message_are_not_taken_for_colours(study: Path, tmp_path: Path) -> None:
    done = antiphon("run", study, "--set", "finetune.seeds=[3, 3]", folder=tmp_path)
    assert "seeds [3, 3] names one value twice" in complaint(done)


def test_two_at_work_in_one_workspace_are_one_too_many(study: Path, tmp_path: Path) -> None:
    with lock(Workspace(tmp_path / "runs").lock, wait=False, holder="a test"):
        done = antiphon("run", study, folder=tmp_path)
    assert f"(process {os.getpid()}) is at work here" in complaint(done)
    assert done.returncode == 1
    assert left(tmp_path) == {"study.yaml"}


# Stopping, for real


LONG = ["--set", "pretrain.budget=800 steps", "--set", "axes.schedule={both: 25% clm > 75% mlm(0.4)}"]
LONG += ["--set", "baseline=both", "--set", "machine.save_seconds=0.3", "--set", "pretrain.learning_rate={}"]


def _start(study: Path, folder: Path) -> subprocess.Popen[bytes]:
    """A long run in the background, in a process group of its own, as a terminal starts it."""
    with open(folder / "output.txt", "ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", CALL, "run", str(study), *LONG],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _wait_for_step(folder: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        saved = [int(path.name.split("-")[1]) for path in folder.glob("runs/partial/*/step-*")]
        if saved and max(saved) > step:
            return
        assert process.poll() is None, (folder / "output.txt").read_text()
        time.sleep(0.05)
    raise AssertionError(f"no state after step {step} within 90 seconds")


def _left_alive(leader: int) -> list[str]:
    """Command lines of the processes of a group that are still alive half a minute after their leader."""
    lines: list[str] = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
        rows = (line.split(None, 2) for line in listed.splitlines())
        lines = [args for group, state, args in rows if int(group) == leader and not state.startswith("Z")]
        if not lines:
            break
        time.sleep(0.2)
    return lines


@pytest.mark.skipif(shutil.which("ps") is None, reason="the test looks for orphans with ps")
def test_a_run_survives_ctrl_c_and_kill_and_ends_in_the_same_weights(study: Path, tmp_path: Path) -> None:
    # Ctrl-C, which a terminal sends to the whole group.
    process = _start(study, tmp_path)
    _wait_for_step(tmp_path, 50, process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 130
    output = (tmp_path / "output.txt").read_text()
    assert "the same command goes on from here" in output
    assert "Traceback" not in output
    assert _left_alive(process.pid) == []
    saved = max(int(path.name.split("-")[1]) for path in tmp_path.glob("runs/partial/*/step-*"))
    assert not list((tmp_path / "runs").glob("states/*"))

    # kill -9 of the main process alone: its workers end by themselves.
    process = _start(study, tmp_path)
    _wait_for_step(tmp_path, saved + 50, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    assert _left_alive(process.pid) == []

    # The same command goes on, and comes to what an undisturbed run comes to.
    done = antiphon("run", study, *LONG, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    again = antiphon("run", study, *LONG, folder=tmp_path)
    assert again.returncode == 0
    assert "nothing to do" in again.stdout
    assert heavy(again) == set()
    (target,) = (tmp_path / "runs" / "states").iterdir()
    (corpus,) = (path for path in (tmp_path / "runs" / "corpora").iterdir() if path.is_dir())
    prepared = Prepared.open(corpus)
    changes = {"validation": {"points": 0}, "learning_rate": {}}
    run = tiny.pretrain("25% clm > 75% mlm(0.4)", "800 steps", changes)
    alone = tiny.stretch(tiny.course(run, prepared), tmp_path / "alone", "run")
    tiny.train(alone, prepared)
    assert tiny.differing(target, alone.target) == []
    assert not list((tmp_path / "runs" / "partial").iterdir())


def test_a_run_that_fails_ends_with_an_exit_code(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # In this process, whose server of workers may be there already.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["antiphon", "run", str(study), "--set", "pretrain.learning_rate.peak=1e30"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert "pretraining diverged" in said
    assert "jobs failed or could not start" in said
    assert not list((tmp_path / "runs").glob("states/*"))
