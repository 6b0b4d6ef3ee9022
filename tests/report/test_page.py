"""The page is whole, self-contained and honest for any story, however little is known."""

from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from antiphon.config import UserError
from antiphon.report import ink, page
from antiphon.report.story import Story
from tests.report.example_story import ARMS, FAMILIES, example_story, observations

STORY = example_story()
VOID = {"meta", "br", "link", "img", "hr", "input"}


class Reader(HTMLParser):
    """Checks nesting and gathers what the tests ask about."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src"):
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()


def checked(story: Story) -> str:
    text = page.render(story)
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert all(link.startswith("#") and link[1:] in reader.ids for link in reader.links)
    references = re.findall(r"url\(#([^)]*)\)", text)
    assert set(references) <= set(reader.ids)
    assert "script" not in reader.tags
    assert "://" not in text
    assert not re.search(r"\bnan\b|\binf\b|None|Undefined", text)
    return text


SMALL = dataclasses.replace(
    STORY,
    arms=ARMS[:2],
    families=FAMILIES[:2],
    curves=tuple(curve for curve in STORY.curves if curve.arm in ("clm", "mlm")),
    observations=observations(ARMS[:2], FAMILIES[:2]),
)


def without(**changes: object) -> Story:
    return dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]


def failed(story: Story) -> Story:
    scores = tuple(
        dataclasses.replace(item, score=dataclasses.replace(item.score, value=math.nan)) for item in story.observations
    )
    return dataclasses.replace(story, observations=scores)


def test_the_answer_comes_first_and_every_section_is_there() -> None:
    text = checked(STORY)
    sections = re.findall(r'<section id="(\w+)">', text)
    assert sections == [
        *("answer", "plan", "training", "families", "table", "learning"),
        *("intervals", "settings", "versions", "cost", "command"),
    ]
    assert text.count("<svg role") == 4 + 2 * 4 + 4
    assert text.index("has the highest mean") < text.index("<table")
    assert STORY.question in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_the_same_story_gives_the_same_page() -> None:
    again = dataclasses.replace(SMALL, observations=observations(ARMS[:2], FAMILIES[:2]))
    assert page.render(SMALL) == page.render(again)


@pytest.mark.parametrize(
    "story",
    [
        without(arms=ARMS[1:2], observations=observations(ARMS[1:2], FAMILIES[:2])),
        without(observations=observations(ARMS[:2], FAMILIES[:2], seeds=1)),
        without(observations=observations(ARMS[:2], FAMILIES[:2], seeds=1, runs=1)),
        without(observations=observations(ARMS[:2], FAMILIES[:2], readings=("100%",)), readings=("100%",)),
        without(observations=observations(ARMS[:2], FAMILIES[:2], readings=("20%",))),
        without(curves=()),
        without(observations=(), missing=96),
        without(observations=tuple(item for item in SMALL.observations if item.score.task != FAMILIES[0].task)),
        without(observations=tuple(item for item in SMALL.observations if item.arm != "mlm")),
        without(families=(), observations=()),
        without(
            readings=(), families=(), observations=(), arms=(), curves=(), plan="", settings="", versions={}, cost={}
        ),
        failed(SMALL),
    ],
    ids=[
        *("one arm", "one seed", "one run", "no early reading", "only the early reading", "no curves", "no scores"),
        *("a task missing", "no baseline", "no tasks", "nothing", "all failed"),
    ],
)
def test_any_story_makes_a_page(story: Story) -> None:
    checked(story)


def test_a_study_under_way_says_so_at_the_top() -> None:
    text = checked(without(missing=12))
    assert text.index("12 jobs to come") < text.index("<table")
    assert "to come" not in page.render(SMALL)


def test_chance_and_the_meaning_of_the_versions_are_told() -> None:
    text = checked(SMALL)
    assert "accuracy, chance 20.0" in text
    assert "Dotted: chance" in text
    assert "Installed when this page was written" in text
    guessless = tuple(dataclasses.replace(family, chance=None) for family in SMALL.families)
    assert "hance" not in re.sub(r"expected to exclude zero by chance", "", checked(without(families=guessless)))


def test_text_is_escaped() -> None:
    text = checked(
        without(question="<i>a</i> & b?", settings="x: <y>", arms=(dataclasses.replace(ARMS[0], schedule="<q>"),))
    )
    assert "&lt;i&gt;a&lt;/i&gt; &amp; b?" in text
    assert "<i>" not in text
    assert "<q>" not in text


def test_every_colour_of_the_figures_has_a_value_in_both_modes() -> None:
    style = page.render(SMALL).split("</style>")[0]
    light, dark = style.split("prefers-color-scheme: dark", 1)
    names = [
        *(f"arm-{index}" for index in range(ink.NUM_COLOURS)),
        *(f"shade-{index}" for index in range(ink.NUM_SHADES)),
    ]
    for name in [*names, "faint", "grid", "paper"]:
        assert re.search(rf"--{name}: #[0-9a-f]{{6}};", light), name
        assert re.search(rf"--{name}: #[0-9a-f]{{6}};", dark), name


def test_write_makes_three_files(tmp_path: Path) -> None:
    found = page.write(SMALL, tmp_path / "report")
    assert found == tmp_path / "report" / "index.html"
    assert sorted(path.name for path in found.parent.iterdir()) == ["index.html", "table.csv", "table.md"]
    assert found.read_text(encoding="utf-8") == page.render(SMALL)


def test_contradicting_rows_leave_nothing_behind(tmp_path: Path) -> None:
    half = tuple(item for index, item in enumerate(SMALL.observations) if index)
    with pytest.raises(UserError, match="test row but no validation row"):
        page.write(without(observations=half), tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_the_report_loads_no_torch_and_no_pictures_before_they_are_asked_for() -> None:
    code = (
        "import sys, antiphon.report.page\n"
        "print([name for name in ('torch', 'transformers', 'matplotlib', 'scipy', 'numpy') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
