"""The whole path as a newcomer walks it: a study of own text, from the command line to a report and an encoder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from antiphon.results import table
from tests import tiny

STUDY: dict[str, Any] = {
    "name": "story",
    "question": "Does a beginning with CLM help?",
    "expectation": "It does not matter for so small a network.",
    "baseline": "mlm",
    "pretrain": {
        "corpus": "mytext/",
        "tokenizer": {"vocabulary": 320},
        "model": dict(tiny.MODEL),
        "batch": dict(tiny.BATCH),
        "budget": "24 steps",
        "learning_rate": {"peak": 3e-3, "warmup": "2 steps", "decay": "4 steps"},
        "validation": {"points": 3, "rows": 8},
    },
    "axes": {"schedule": {"clm": "clm", "mlm": "mlm(0.4)", "both": "25% clm > 75% mlm(0.4)"}, "seed": [0, 1]},
    "readings": ["25%", "100%"],
    "finetune": {
        "tasks": ["sentence-polarity", "wnut17"],
        "data": "sets/",
        "learning_rates": [1e-3, 3e-3],
        "seeds": [0],
        "steps": 6,
        "batch": 8,
    },
    "machine": {"device": "cpu", "precision": "float32", "workers": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user would have it: a study file, texts of two formats, and data sets."""
    home = tmp_path_factory.mktemp("story")
    (home / "study.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False), encoding="utf-8")
    (home / "mytext").mkdir()
    documents = tiny.texts(0, 200)
    tiny.write_text(home / "mytext" / "a.txt", documents[:100])
    rows = "".join(json.dumps({"text": text}) + "\n" for text in documents[100:])
    (home / "mytext" / "b.jsonl").write_text(rows, encoding="utf-8")
    tiny.write_tasks(home / "sets")
    return home


def antiphon(folder: Path, *arguments: str) -> str:
    """What a command that went well printed."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "antiphon"), *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def test_from_own_text_to_a_report_and_an_encoder(folder: Path) -> None:
    prepared = antiphon(folder, "prepare", "study.yaml")
    assert re.search(r"train: [\d,]+ words, [\d,]+ tokens, [\d,]+ documents", prepared)

    planned = antiphon(folder, "plan", "study.yaml")
    assert "steps 0-6 clm: clm, both  [scored at 25%]" in planned
    assert "10 checkpoints scored in 40 fine-tunings" in planned

    ran = antiphon(folder, "run", "study.yaml")
    assert "preparing" not in ran
    for arm in ("clm", "mlm", "both"):
        assert arm in ran
    _look_at_results(folder)
    _look_at_report(folder)

    began = time.monotonic()
    again = antiphon(folder, "run", "study.yaml")
    assert "nothing to do" in again
    assert time.monotonic() - began < 5

    assert "all" in antiphon(folder, "status", "study.yaml")
    page = folder / "runs" / "reports" / "story" / "index.html"
    page.unlink()
    antiphon(folder, "report", "study.yaml")
    assert page.is_file()

    antiphon(folder, "export", "both/1@25%", "encoder", "--study", "study.yaml")
    _look_at_encoder(folder / "encoder")

    # Edited, only what is new is done.
    more = antiphon(folder, "run", "study.yaml", "--set", "axes.schedule.late=50% clm > 50% mlm(0.4)")
    assert "late" in more
    assert len(list((folder / "runs" / "results").glob("*.jsonl"))) == _scorings(4)


def _scorings(arms: int) -> int:
    # Two tasks and two rates on each state. clm and those that begin with it share the state at 25% for each of two
    # seeds; mlm has its own; every arm has its own end.
    states = 2 * (arms + 2)
    return states * 2 * 2


def _look_at_results(folder: Path) -> None:
    paths = sorted((folder / "runs" / "results").glob("*.jsonl"))
    assert len(paths) == _scorings(3)
    scores = table.read(paths)
    assert {(score.task, score.split) for score in scores} == {
        (task, split) for task in ("sentence-polarity", "wnut17") for split in ("validation", "test")
    }
    assert all(0 <= score.value <= 1 for score in scores)
    assert not list((folder / "runs").rglob(".*-*"))
    assert not list((folder / "runs" / "partial").glob("*"))


def _look_at_report(folder: Path) -> None:
    report = folder / "runs" / "reports" / "story"
    page = (report / "index.html").read_text(encoding="utf-8")
    for text in (STUDY["question"], STUDY["expectation"], "25% clm &gt; 75% mlm(0.4)", "Sentence polarity", "WNUT-17"):
        assert text in page
    # Self-contained: nothing is fetched.
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)
    assert {path.suffix for path in report.iterdir()} >= {".html", ".csv", ".md"}


def _look_at_encoder(folder: Path) -> None:
    import torch
    from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(["bara [MASK] deko", "fi"], return_tensors="pt", padding=True)
    assert int((inputs["input_ids"] == tokenizer.mask_token_id).sum()) == 1
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder)(**inputs).last_hidden_state
        logits = AutoModelForMaskedLM.from_pretrained(folder)(**inputs).logits
    assert hidden.shape == (2, inputs["input_ids"].shape[1], 32)
    assert logits.shape == (2, inputs["input_ids"].shape[1], 320)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "25% clm > 75% mlm(0.4)" in card
