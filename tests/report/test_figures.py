"""Pictures are well-formed, take the page's colours, and print the same bytes every time."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from xml.etree import ElementTree

import pytest

from antiphon.draws import generator
from antiphon.report import curves, figures, ink
from antiphon.report.findings import find
from antiphon.report.story import Curve
from tests.report.example_story import ARMS, FAMILIES, example_story

STORY = example_story()
FINDINGS = find(STORY)


@functools.cache
def pictures(_time: int = 1) -> list[str]:
    return [
        figures.scores(FINDINGS, FAMILIES[0]),
        figures.differences(FINDINGS, FAMILIES[0]),
        curves.training(STORY, ARMS[2]),
        curves.learning(FINDINGS, FAMILIES[0]),
    ]


def test_pictures_are_well_formed_and_the_same_twice() -> None:
    first = pictures()
    for picture in first:
        ElementTree.fromstring(picture)
        assert "http" not in picture
    assert pictures(2) == first


def test_colours_are_variables_of_the_page() -> None:
    for picture in pictures():
        assert not re.findall(r"#[0-9a-fA-F]{6}", picture)
        assert "var(--faint)" in picture
    assert "currentColor" in pictures()[0]
    assert "var(--arm-2)" in pictures()[2]
    assert "var(--shade-0)" in pictures()[2]


def test_text_takes_the_font_of_the_page() -> None:
    for picture in pictures():
        assert "font-family" not in picture
        assert "DejaVu" not in picture
        assert "<text" in picture


def test_a_picture_names_its_arms_and_numbers() -> None:
    picture = figures.scores(FINDINGS, FAMILIES[0])
    texts = ["".join(element.itertext()).strip() for element in ElementTree.fromstring(picture).iter("text")]
    for arm in ARMS:
        found = FINDINGS.at(FAMILIES[0].task, "100%", arm.name)
        assert arm.name in texts
        assert found is not None
        assert f"{100 * found.score.mean:.1f}" in texts


def test_chance_is_a_line_only_where_it_is_in_view() -> None:
    without, far, near = (
        figures.scores(FINDINGS, dataclasses.replace(FAMILIES[0], chance=chance)) for chance in (None, 0.2, 0.72)
    )
    assert far == without
    drawn = [line for line in near.split("<g") if line not in without.split("<g")]
    assert len(drawn) == 1
    assert "stroke-dasharray" in drawn[0]
    assert "var(--faint)" in drawn[0]


@pytest.mark.parametrize("name", ["$x_1$", "<b>&", "\u4e2d\u6587", "a very long name of an arm indeed"])
def test_odd_names_are_drawn_as_they_are(name: str) -> None:
    arms = (dataclasses.replace(ARMS[0], name=name), *ARMS[1:])
    observations = tuple(
        dataclasses.replace(item, arm=name) if item.arm == "clm" else item for item in STORY.observations
    )
    found = find(dataclasses.replace(STORY, arms=arms, observations=observations))
    picture = figures.scores(found, FAMILIES[0])
    texts = ["".join(element.itertext()).strip() for element in ElementTree.fromstring(picture).iter("text")]
    assert any(text and name.startswith(text.rstrip("\N{HORIZONTAL ELLIPSIS}")) for text in texts)


def test_a_run_that_diverged_is_drawn_as_far_as_it_went() -> None:
    curve = STORY.curves[0]
    points = (*curve.points[:50], dataclasses.replace(curve.points[50], train_loss=float("nan")))
    ElementTree.fromstring(curves.training(dataclasses.replace(STORY, curves=(Curve("clm", 0, points),)), ARMS[0]))
    ElementTree.fromstring(curves.training(dataclasses.replace(STORY, curves=(Curve("clm", 0, ()),)), ARMS[0]))


def test_spread_keeps_distance_order_and_bounds() -> None:
    draws = generator(0, "spread")
    for count in range(1, 9):
        wanted = (draws.random(count) * 100).tolist()
        places = ink.spread(wanted, 10, 0, 100)
        order = sorted(range(count), key=lambda index: wanted[index])
        ranked = [places[index] for index in order]
        assert all(later - earlier >= 10 - 1e-9 for earlier, later in itertools.pairwise(ranked))
        assert min(ranked) >= 0
        assert max(ranked) <= 100
    assert ink.spread([50.0, 50.0], 10, 0, 100) == [45.0, 55.0]
    assert ink.spread([10.0, 90.0], 10, 0, 100) == [10.0, 90.0]
    assert ink.spread([], 10, 0, 100) == []


def test_each_arm_has_its_own_look() -> None:
    looks = {(ink.colour(index), ink.marker(index)) for index in range(ink.NUM_COLOURS)}
    assert len(looks) == ink.NUM_COLOURS == len(ink.SHAPES) == len(ink.MARKERS)


def test_kinds_of_objective_have_a_shade_each() -> None:
    assert curves.shades(STORY) == {"clm": (0, ["clm"]), "mlm": (1, ["mlm(0.15)", "mlm(0.4)"])}
