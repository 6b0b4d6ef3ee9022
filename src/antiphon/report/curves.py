"""Figures along pretraining: losses with the phases shaded, and scores at every reading.

One small SVG an arm or a task, all of one kind on the same axes, so that they can be compared by eye.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from antiphon.report import ink, words
from antiphon.report.findings import Findings
from antiphon.report.story import Arm, Curve, Family, Story
from antiphon.results.compare import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES = ((1.2, 1.6), (4, 1.5), (6, 1.5, 1, 1.5), (2, 1), (8, 2))
LABEL_LENGTH = 11
LABEL_GAP = 9.5  # points between the centres of two labels
LOSS_HEIGHT = 119.0  # points, of the axes
SCORE_HEIGHT = 152.0


def shades(story: Story) -> dict[str, tuple[int, list[str]]]:
    """The kinds of objective in the story's phases ("clm", "mlm"), each with its shade and its objectives, sorted.

    Kinds have shades, not objectives: a study of many mask ratios would run out of tints that an eye can tell apart,
    and each figure names its objectives anyway.
    """
    kinds: dict[str, set[str]] = {}
    for arm in story.arms:
        for phase in arm.phases:
            kinds.setdefault(kind(phase.objective), set()).add(phase.objective)
    return {name: (index % ink.NUM_SHADES, sorted(kinds[name])) for index, name in enumerate(sorted(kinds))}


def kind(objective: str) -> str:
    """The kind of an objective in canonical notation: "mlm" for "mlm(0.4)"."""
    return objective.partition("(")[0]


def validated(story: Story) -> list[str]:
    """The objectives under which validation losses were measured, sorted."""
    return sorted({name for curve in story.curves for point in curve.points for name in point.validation})


def training(story: Story, arm: Arm) -> str:
    """Training loss of the ruling objective (one thin line a seed) and validation loss under every objective."""
    curves = [curve for curve in story.curves if curve.arm == arm.name]
    place = [other.name for other in story.arms].index(arm.name)
    last = _last_tokens(story)
    with ink.paper(LOSS_HEIGHT + 46, left=28, right=58, top=16, bottom=30) as (canvas, axes):
        axes.set_xlim(0, last)
        axes.set_ylim(*_losses(story))
        axes.grid(axis="y")
        _phases(axes, story, arm, last)
        for curve in curves:
            for tokens, losses in _by_objective(curve).values():
                dot = "." if len(tokens) < 3 else None
                axes.plot(tokens, losses, marker=dot, color=ink.colour(place), linewidth=1.1, markersize=3, alpha=0.75)
        _validation(axes, story, curves)
        _token_axis(axes, "tokens")
        return ink.svg(canvas, f"training-{place}", f"Losses of {arm.name} ({arm.schedule}) along pretraining")


def learning(findings: Findings, family: Family) -> str:
    """Score of every arm at every reading of one task, over the tokens seen; bars are the narrow intervals."""
    story = findings.story
    last = max((findings.tokens(reading) for reading in story.readings), default=0)
    ends: list[tuple[int, float]] = []
    with ink.paper(SCORE_HEIGHT + 38, left=28, right=74, top=8, bottom=30) as (canvas, axes):
        for place, arm in enumerate(story.arms):
            found = [item for reading in story.readings if (item := findings.at(family.task, reading, arm.name))]
            found = [item for item in found if not math.isnan(item.score.mean)]
            # A small sideways step keeps the intervals of two arms at one reading apart.
            step = (place - (len(story.arms) - 1) / 2) * 0.014 * last
            _rise(axes, place, step, found)
            if found and found[-1].reading == findings.final:
                ends.append((place, 100 * found[-1].score.mean))
        axes.grid(axis="y")
        axes.margins(y=0.08)
        axes.set_xlim(0, 1.05 * last or 1)
        _token_axis(axes, "tokens of pretraining")
        names = [words.shortened(story.arms[place].name, LABEL_LENGTH + 2) for place, _ in ends]
        colours = [ink.colour(place) for place, _ in ends]
        _labels(axes, SCORE_HEIGHT, [mean for _, mean in ends], names, colours)
        label = f"{family.title}: {family.metric} of each schedule at {words.listing(story.readings)} of pretraining"
        return ink.svg(canvas, f"learning-{family.task}", label)


def _rise(axes: Axes, place: int, step: float, found: Sequence[Comparison]) -> None:
    colour = ink.colour(place)
    for item in found:
        if not math.isnan(item.score_narrow.low):
            reach = (100 * item.score_narrow.low, 100 * item.score_narrow.high)
            axes.plot([item.tokens + step] * 2, reach, color=colour, linewidth=2.6, alpha=0.5, solid_capstyle="butt")
    tokens = [item.tokens + step for item in found]
    means = [100 * item.score.mean for item in found]
    axes.plot(tokens, means, marker=ink.marker(place), color=colour, linewidth=1.3, markersize=5)


def _token_axis(axes: Axes, title: str) -> None:
    axes.locator_params(axis="x", nbins=4)
    axes.locator_params(axis="y", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, _: words.amount(value))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))
    axes.set_xlabel(title, labelpad=2)


def _last_tokens(story: Story) -> int:
    ends = [phase.stop_tokens for arm in story.arms for phase in arm.phases]
    ends += [point.tokens for curve in story.curves for point in curve.points]
    return max(ends, default=1)


def _losses(story: Story) -> tuple[float, float]:
    """The loss axis shared by all arms.

    It ends above the highest training loss: a model may do far worse than that under an objective it never saw, and
    such a line may leave the picture rather than flatten all others.
    """
    points = [point for curve in story.curves for point in curve.points]
    train = [point.train_loss for point in points if point.train_loss is not None and math.isfinite(point.train_loss)]
    validation = [loss for point in points for loss in point.validation.values() if math.isfinite(loss)]
    both = [*train, *validation]
    if not both:
        return 0.0, 1.0
    low, high = min(both), min(max(both), 1.15 * max(train)) if train else max(both)
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin


def _phases(axes: Axes, story: Story, arm: Arm, last: int) -> None:
    tints = shades(story)
    room = 184 / last if last else 0  # points of width a token
    for phase in arm.phases:
        axes.axvspan(
            phase.start_tokens, phase.stop_tokens, color=ink.shade(tints[kind(phase.objective)][0]), lw=0, zorder=0
        )
        width = (phase.stop_tokens - phase.start_tokens) * room
        if width > 5 * len(phase.objective) + 4:
            middle = (phase.start_tokens + phase.stop_tokens) / 2
            axes.annotate(
                phase.objective,
                (middle, 1),
                (0, 3),
                ("data", "axes fraction"),
                "offset points",
                ha="center",
                size=8,
                color=ink.FAINT,
            )


def _by_objective(curve: Curve) -> Mapping[str, tuple[list[int], list[float]]]:
    """Training losses of a run, one line for each objective, so that alternating runs do not draw a zigzag."""
    lines: dict[str, tuple[list[int], list[float]]] = {}
    for point in curve.points:
        if point.train_loss is not None and math.isfinite(point.train_loss):
            tokens, losses = lines.setdefault(point.objective, ([], []))
            tokens.append(point.tokens)
            losses.append(point.train_loss)
    return lines


def _validation(axes: Axes, story: Story, curves: Sequence[Curve]) -> None:
    names, ends = [], []
    for index, name in enumerate(validated(story)):
        found: dict[int, list[float]] = {}
        for curve in curves:
            for point in curve.points:
                if math.isfinite(point.validation.get(name, math.nan)):
                    found.setdefault(point.tokens, []).append(point.validation[name])
        if not found:
            continue
        tokens = sorted(found)
        losses = [math.fsum(found[count]) / len(found[count]) for count in tokens]
        axes.plot(tokens, losses, color=ink.INK, linewidth=1.2, dashes=DASHES[index % len(DASHES)])
        names.append(words.shortened(name, LABEL_LENGTH))
        ends.append(losses[-1])
    _labels(axes, LOSS_HEIGHT, ends, names, [ink.INK] * len(ends))


def _labels(axes: Axes, height: float, values: Sequence[float], names: Sequence[str], colours: Sequence[str]) -> None:
    """Names to the right of where their lines end, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    wanted = [(min(max(value, low), high) - low) / (high - low) * height for value in values]
    for place, name, colour in zip(ink.spread(wanted, LABEL_GAP, 0, height), names, colours, strict=True):
        axes.annotate(name, (1, 0), (5, place), "axes fraction", "offset points", va="center", size=8.5, color=colour)
