"""One self-contained HTML page: no network, no scripts, readable on a phone and in dark mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from antiphon.files import write_text
from antiphon.report import curves, figures, ink, statements, tables, words
from antiphon.report.findings import Findings, find
from antiphon.report.story import Story


def render(story: Story) -> str:
    """The page as text, the same for the same story.

    Raises:
        UserError: the observations contradict each other; see `results.select.choose`.
    """
    return _render(find(story))


def write(story: Story, folder: Path) -> Path:
    """Write index.html, table.csv and table.md into a folder, each atomically, and return the page's path.

    The page is written last: where it is, the tables beside it are its own.

    Raises:
        UserError: the observations contradict each other, or the folder cannot be written.
    """
    findings = find(story)
    page = _render(findings)
    write_text(folder / "table.csv", tables.comma_separated(findings))
    write_text(folder / "table.md", tables.markdown(findings))
    write_text(folder / "index.html", page)
    return folder / "index.html"


def _render(findings: Findings) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(loader=PackageLoader("antiphon", "report"), autoescape=True, undefined=StrictUndefined)
    values = {**_words(findings), **_tables(findings), **_figures(findings)}
    sections = {
        "plan": "Plan",
        "training": "Training curves" if values["training"] else "",
        "families": "Results by task" if values["families"] else "",
        "table": "Table" if values["rows"] else "",
        "learning": "Who learns faster" if values["learning"] else "",
        "intervals": "How to read the intervals",
        "settings": "Settings" if findings.story.settings else "",
        "cost": "Cost" if findings.story.cost else "",
    }
    contents = [(anchor, title) for anchor, title in sections.items() if title]
    return environment.get_template("page.html.jinja").render({**values, "contents": contents}) + "\n"


def _words(findings: Findings) -> dict[str, Any]:
    story = findings.story
    shades = curves.shades(story)
    return {
        "story": story,
        "headline": statements.headline(findings),
        "answers": _answers(findings),
        "cautions": statements.cautions(findings),
        "legend": tables.legend(findings),
        "rule": story.rule.value,
        "final": findings.final,
        "early": findings.early,
        "amount": words.amount,
        "points": words.points,
        "shades": [(shade, words.listing(objectives)) for shade, objectives in shades.values()],
        "shade_of": {name: shade for shade, objectives in shades.values() for name in objectives},
        "looks": {
            arm.name: {"colour": index % ink.NUM_COLOURS, "shape": ink.SHAPES[index % len(ink.SHAPES)]}
            for index, arm in enumerate(story.arms)
        },
        "validated": [
            (name, " ".join(f"{1.6 * part:g}" for part in curves.DASHES[index % len(curves.DASHES)]))
            for index, name in enumerate(curves.validated(story))
        ],
    }


def _answers(findings: Findings) -> list[tuple[str, list[str]]]:
    """Headings with their sentences: the final reading first, then the early one."""
    found = []
    for reading, name in ((findings.final, "At the end"), (findings.early, "Early")):
        if reading is None:
            continue
        sentences = [*filter(None, [statements.leaders(findings, reading)]), *statements.answers(findings, reading)]
        if sentences:
            found.append((f"{name} ({reading}, {words.amount(findings.tokens(reading))} tokens)", sentences))
    return found


def _tables(findings: Findings) -> dict[str, Any]:
    rows = tables.rows(findings) if findings.comparisons else []
    return {
        "rows": [(family, [row for row in rows if row.family == family]) for family in findings.story.families if rows],
        "cells": {(row.family.task, row.arm.name): row.final for row in rows},
        "failures": any(row.failed for row in rows),
        "compared": any(item.difference is not None for item in findings.comparisons.values()),
    }


def _figures(findings: Findings) -> dict[str, Any]:
    """The SVG pictures, marked as safe: they come from our own drawing, whose texts matplotlib has escaped."""
    from markupsafe import Markup

    story = findings.story
    arms = [arm.name for arm in story.arms]
    found = []
    for family in story.families:
        here = [item for arm in arms if (item := findings.at(family.task, findings.final, arm))]
        score = Markup(figures.scores(findings, family)) if here else ""
        compared = any(item.difference is not None for item in here)
        found.append((family, score, Markup(figures.differences(findings, family)) if compared else ""))
    drawn = {curve.arm for curve in story.curves if curve.points}
    early = {task for task, reading, _ in findings.comparisons if reading == findings.early}
    return {
        "families": found,
        "training": [(arm, Markup(curves.training(story, arm))) for arm in story.arms if arm.name in drawn],
        "learning": [
            (family, Markup(curves.learning(findings, family))) for family in story.families if family.task in early
        ],
    }
