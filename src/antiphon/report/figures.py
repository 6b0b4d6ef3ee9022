"""Point plots of the final reading: scores with their intervals, and differences to the baseline.

Each function returns one SVG element about 360 pixels wide; the page lays them out in a grid. An arm has one colour
and one marker in all figures. The thick line is the interval over fine-tuning seeds only, the thin one the default.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from antiphon.report import ink, words
from antiphon.report.findings import Findings
from antiphon.report.story import Family
from antiphon.results.compare import Estimate, Method, Values, paired

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME_LENGTH = 16
ROW_HEIGHT = 24.0


@dataclasses.dataclass(frozen=True)
class Mark:
    """One row of a point plot.

    Attributes:
        row: its place from the top; also the arm's place, hence its colour.
        wide, narrow: the default interval and the one over fine-tuning seeds.
        seeds: the mean of each pretraining seed.
        filled: whether the point is solid.
    """

    row: int
    wide: Estimate
    narrow: Estimate
    seeds: Sequence[float]
    filled: bool


def scores(findings: Findings, family: Family) -> str:
    """Final score of every arm on one task; the baseline's mean is a dashed line, chance a dotted one if in view."""
    marks = []
    for row, arm in enumerate(findings.story.arms):
        found = findings.at(family.task, findings.final, arm.name)
        if found:
            marks.append(Mark(row, found.score, found.score_narrow, _seed_means(found.values), filled=True))
    base = findings.at(family.task, findings.final, findings.story.baseline)
    label = f"{family.title}: final {family.metric} of each schedule with 95% intervals"
    chance = math.nan if family.chance is None else family.chance
    figure = _Figure(f"scores-{family.task}", label, words.points, chance)
    return _draw(findings, figure, marks, base.score.mean if base else math.nan)


def differences(findings: Findings, family: Family) -> str:
    """Final difference of every arm to the baseline on one task; a solid point is separated from zero."""
    baseline = findings.story.baseline
    base = findings.at(family.task, findings.final, baseline)
    zero = Estimate(0.0, math.nan, math.nan, 0, Method.NONE)
    marks = []
    for row, arm in enumerate(findings.story.arms):
        found = findings.at(family.task, findings.final, arm.name)
        if found and arm.name == baseline:
            marks.append(Mark(row, zero, zero, (), filled=True))
        elif found and base and found.difference and found.difference_narrow:
            seeds = _seed_means(paired(found.values, base.values))
            narrow = found.difference_narrow
            marks.append(Mark(row, found.difference, narrow, seeds, found.difference.excludes_zero))
    label = f"{family.title}: difference of each schedule to {baseline} with 95% intervals"
    figure = _Figure(f"differences-{family.task}", label, words.signed)
    return _draw(findings, figure, marks, 0.0)


@dataclasses.dataclass(frozen=True)
class _Figure:
    name: str
    label: str
    wording: Callable[[float], str]
    chance: float = math.nan


def _draw(findings: Findings, figure: _Figure, marks: Sequence[Mark], line: float) -> str:
    arms = findings.story.arms
    names = [words.shortened(arm.name, NAME_LENGTH) for arm in arms]
    left = 8 + 5.6 * max(map(len, names), default=0)
    low, high = _view(marks, line)
    with ink.paper(24 + ROW_HEIGHT * len(arms), left=left, right=40, top=6, bottom=18) as (canvas, axes):
        axes.set_xlim(low, high)
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        if not math.isnan(line):
            axes.axvline(100 * line, color=ink.FAINT, linewidth=0.9, dashes=(3, 2), zorder=1)
        if low <= 100 * figure.chance <= high:
            axes.axvline(100 * figure.chance, color=ink.FAINT, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1)
        for mark in marks:
            _interval(axes, mark, low, high)
            text = figure.wording(mark.wide.mean)
            place = (1, mark.row)
            axes.annotate(text, place, (34, 0), ("axes fraction", "data"), "offset points", ha="right", va="center")
        axes.set_yticks(range(len(arms)), names, color=ink.INK)
        axes.tick_params(axis="y", length=0, pad=6)
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))
        return ink.svg(canvas, figure.name, figure.label)


def _interval(axes: Axes, mark: Mark, low: float, high: float) -> None:
    colour = ink.colour(mark.row)
    if not math.isnan(mark.wide.low):
        ends = (max(100 * mark.wide.low, low), min(100 * mark.wide.high, high))
        axes.plot(ends, (mark.row, mark.row), color=colour, linewidth=1.1, solid_capstyle="butt", zorder=2)
        for end, limit, arrow in ((100 * mark.wide.low, low, "<"), (100 * mark.wide.high, high, ">")):
            # An arrow, so that an interval which leaves the picture is not read as ending there.
            inside = low <= end <= high
            axes.plot(
                end if inside else limit,
                mark.row,
                marker="|" if inside else arrow,
                color=colour,
                markersize=7 if inside else 4.5,
                clip_on=False,
                zorder=2,
            )
    if not math.isnan(mark.narrow.low):
        ends = (100 * mark.narrow.low, 100 * mark.narrow.high)
        axes.plot(ends, (mark.row, mark.row), color=colour, linewidth=4, solid_capstyle="butt", alpha=0.55, zorder=3)
    if len(mark.seeds) > 1:
        places = [100 * mean for mean in mark.seeds]
        axes.plot(places, [mark.row + 0.34] * len(places), "|", color=colour, markersize=4, zorder=3)
    axes.plot(
        100 * mark.wide.mean,
        mark.row,
        marker=ink.marker(mark.row),
        markersize=6.5,
        markeredgewidth=1.4,
        color=colour,
        markerfacecolor=colour if mark.filled else ink.PAPER,
        zorder=4,
    )


def _view(marks: Sequence[Mark], line: float) -> tuple[float, float]:
    """The ends of the picture: all points and thick intervals, and the thin ones as far as they leave room."""
    core = [line]
    for mark in marks:
        core += [mark.wide.mean, mark.narrow.low, mark.narrow.high, *mark.seeds]
    core = [100 * value for value in core if not math.isnan(value)]
    if not core:
        return 0.0, 100.0
    low, high = min(core), max(core)
    room = max(high - low, 1.0)
    ends = [100 * value for mark in marks for value in (mark.wide.low, mark.wide.high) if not math.isnan(value)]
    low, high = max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)
    margin = 0.06 * max(high - low, 1.0)
    return low - margin, high + margin


def _seed_means(values: Values) -> list[float]:
    finished = [[value for value in runs.values() if not math.isnan(value)] for runs in values.values()]
    return [math.fsum(runs) / len(runs) for runs in finished if runs]
