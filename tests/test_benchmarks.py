"""The benchmarks run; what they print is not looked at here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


def run(name: str, *arguments: str) -> str:
    made = subprocess.run([sys.executable, FOLDER / name, *arguments], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-2000:]
    return made.stdout


def test_the_trainer_is_compared_with_ours() -> None:
    pytest.importorskip("accelerate", reason="the Trainer needs it: pip install -e '.[benchmark]'")
    table = run("trainer.py", "--tiny", "--objective", "mlm(0.3)", "--only", "trainer fp32", "ours fp32")
    assert "| ours, float32, eager |" in table


def test_memory_is_measured_in_processes_of_their_own() -> None:
    assert "| 64 |" in run("memory.py", "--tiny")


def test_the_figure_of_scaling_is_drawn(tmp_path: Path) -> None:
    run("scaling.py", "--tiny", "--figure", str(tmp_path / "scaling.svg"))
    assert "</svg>" in (tmp_path / "scaling.svg").read_text(encoding="utf-8")
