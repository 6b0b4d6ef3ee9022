"""A log holds one line a report, and a resumed run writes none twice."""

from __future__ import annotations

from pathlib import Path

from antiphon.train.log import Log, read


def test_lines_come_back_as_written(tmp_path: Path) -> None:
    log = Log(tmp_path / "logs" / "a.jsonl", 0)
    for step in (1, 2):
        log.write({"step": step, "loss": {"clm": 0.5}})
        assert [line["step"] for line in read(tmp_path / "logs" / "a.jsonl")] == list(range(1, step + 1))
    log.close()
    assert read(tmp_path / "logs" / "a.jsonl")[1] == {"step": 2, "loss": {"clm": 0.5}}


def test_no_log_is_no_lines(tmp_path: Path) -> None:
    assert read(tmp_path / "a.jsonl") == []


def test_a_resumed_run_drops_what_it_will_write_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    log = Log(path, 0)
    for step in range(1, 6):
        log.write({"step": step, "try": 1})
    log.close()
    log = Log(path, 3)
    log.write({"step": 4, "try": 2})
    log.close()
    assert [(line["step"], line["try"]) for line in read(path)] == [(1, 1), (2, 1), (3, 1), (4, 2)]


def test_a_line_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st', encoding="utf-8")
    assert [line["step"] for line in read(path)] == [1, 2]
    log = Log(path, 2)
    log.write({"step": 3})
    log.close()
    assert [line["step"] for line in read(path)] == [1, 2, 3]
