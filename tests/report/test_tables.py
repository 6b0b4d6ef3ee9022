"""One table, four renderings, the same numbers."""

from __future__ import annotations

import csv
import dataclasses
import io
import math

import pytest
from rich.console import Console

from antiphon.report import tables
from antiphon.report.findings import find
from antiphon.report.story import Arm, Family
from antiphon.results.compare import compare
from antiphon.results.select import choose
from tests.report.example_story import FAMILIES, example_story

STORY = example_story()
FINDINGS = find(STORY)


def printed(width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(tables.terminal(FINDINGS))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_comma_separated_holds_every_number_in_full() -> None:
    lines = list(csv.DictReader(io.StringIO(tables.comma_separated(FINDINGS))))
    assert len(lines) == 4 * 4 * 2
    selected = choose(STORY.observations, {family.task: family.metric for family in FAMILIES})
    oracle = {(item.task, item.arm, item.reading): item for item in compare(selected, "mlm")}
    for line in lines:
        item = oracle[line["task"], line["arm"], line["reading"]]
        assert float(line["mean"]) == item.score.mean
        assert (float(line["low"]), float(line["high"])) == (item.score.low, item.score.high)
        if item.difference is None or item.difference_narrow is None:
            assert line["arm"] == "mlm"
            assert {line[name] for name in ("difference", "difference_low", "p", "difference_method")} == {""}
        else:
            assert float(line["difference"]) == item.difference.mean
            assert float(line["difference_narrow_high"]) == item.difference_narrow.high
            assert float(line["p"]) == item.probability
        assert [float(rate) for rate in line["learning_rates"].split(";")] == list(item.learning_rates)
        assert (int(line["runs"]), int(line["pretraining_seeds"])) == (18, 2)
        assert (int(line["num_examples"]), int(line["num_truncated"])) == (500, 3)
        assert line["chance"] == ("0.2" if line["task"] == "pocket-library" else "")


def test_markdown_has_one_line_an_arm_and_task_and_equal_columns() -> None:
    lines = tables.markdown(FINDINGS).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 16
    assert {line.count("|") for line in table} == {11}
    assert "differences are to mlm" in lines[-1]


def test_the_legend_says_what_guessing_would_score() -> None:
    assert tables.legend(FINDINGS).endswith("Guessing would score 20.0 on Which library.")
    assert "Guessing" not in tables.legend(find(dataclasses.replace(STORY, families=FAMILIES[1:], observations=())))


def test_markdown_escapes_what_would_break_the_table() -> None:
    arms = (Arm("a|b", "clm", ()),)
    family = Family("t", "tag", "one|two\nthree", "f1", "")
    story = dataclasses.replace(STORY, arms=arms, families=(family,), observations=(), readings=("100%",))
    line = tables.markdown(find(story)).splitlines()[2]
    assert line.startswith(r"| one\|two three | f1 | a\|b | ")
    assert line.replace(r"\|", "").count("|") == 9


def test_terminal_fits_eighty_columns_without_cutting() -> None:
    text = printed(80)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert max(map(len, text.splitlines())) <= 80
    for row in tables.rows(FINDINGS):
        assert f"{row.final.mean} \N{PLUS-MINUS SIGN} {row.final.reach}" in text
        assert row.arm.name in text


def test_markup_in_names_is_shown_as_it_is() -> None:
    arms = tuple(dataclasses.replace(arm, name="[bold]") if arm.name == "antlm" else arm for arm in STORY.arms)
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(tables.terminal(find(dataclasses.replace(STORY, arms=arms))))
    assert "[bold]" in console.file.getvalue()  # type: ignore[attr-defined]


def test_missing_runs_are_marked() -> None:
    task = FAMILIES[0].task
    observations = tuple(
        item
        for item in STORY.observations
        if not (item.arm == "antlm" and item.score.task == task and item.score.seed == 2 and item.reading == "100%")
    )
    found = find(dataclasses.replace(STORY, observations=observations, missing=6))
    row = next(row for row in tables.rows(found) if (row.family.task, row.arm.name) == (task, "antlm"))
    assert row.final.mean.endswith(tables.PROVISIONAL)
    assert row.size == "2 \N{MULTIPLICATION SIGN} 2"
    assert tables.PROVISIONAL in tables.legend(found)
    assert tables.PROVISIONAL not in tables.legend(FINDINGS)


@pytest.mark.parametrize("value", [math.nan, None])
def test_absent_and_failed_cells_hold_dashes(value: float | None) -> None:
    observations = tuple(
        dataclasses.replace(item, score=dataclasses.replace(item.score, value=value)) if value is not None else item
        for item in STORY.observations
        if value is not None or item.arm != "clm"
    )
    cells = [row.final for row in tables.rows(find(dataclasses.replace(STORY, observations=observations)))]
    clm = cells[0]
    assert (clm.mean, clm.span, clm.difference, clm.probability) == ("\N{EN DASH}",) * 4
    assert not clm.separated
    assert not clm.leads
