"""The result table: for readers (cells that the page, Markdown and the terminal share) and for machines (CSV)."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from antiphon.report import words
from antiphon.report.findings import Findings
from antiphon.report.story import Arm, Family
from antiphon.results.compare import Comparison, Estimate
from antiphon.results.select import TEST

if TYPE_CHECKING:
    from rich.table import Table

PROVISIONAL = "*"


@dataclasses.dataclass(frozen=True)
class Row:
    """One arm on one task, as text.

    Attributes:
        family, arm: the place.
        final, early: the score at the last and at the first reading.
        rates: chosen learning rates of the final reading.
        size: "2 x 3": pretraining seeds x fine-tuning seeds of the final reading.
        failed: "1 of 9", or empty when no run failed.
    """

    family: Family
    arm: Arm
    final: Cell
    early: Cell
    rates: str
    size: str
    failed: str


@dataclasses.dataclass(frozen=True)
class Cell:
    """One score and its difference to the baseline, as text; a dash where there is nothing.

    Attributes:
        mean, span, reach: the score, the ends of its 95% interval, and how far it reaches to each side; the mean is
            marked while runs are missing.
        difference, difference_span, difference_reach, probability: the paired difference, its interval and its p value.
        separated: whether the interval of the difference excludes zero.
        leads: whether this is the highest mean of its task at this reading.
    """

    mean: str
    span: str
    reach: str
    difference: str
    difference_span: str
    difference_reach: str
    probability: str
    separated: bool
    leads: bool


def rows(findings: Findings) -> list[Row]:
    """The table, by family and then arm, in the story's order."""
    return [_row(findings, family, arm) for family in findings.story.families for arm in findings.story.arms]


def markdown(findings: Findings) -> str:
    """The table in Markdown, with a line that explains it."""
    head = ["task", "metric", "schedule", f"{findings.final or 'final'} [95%]", "difference [95%]", "p", "rate", "n"]
    if findings.early is not None:
        head += [f"{findings.early} [95%]", "difference [95%]"]
    lines = [head, ["---" if index < 3 else "--:" for index in range(len(head))]]
    for row in rows(findings):
        score, difference = _bracketed(row.final)
        line = [row.family.title, row.family.metric, row.arm.name, score, difference]
        early = _bracketed(row.early) if findings.early is not None else ()
        lines.append([*line, row.final.probability, row.rates, row.size, *early])
    table = "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)
    return f"{table}\n\nBrackets hold 95% intervals. {legend(findings)}\n"


def terminal(findings: Findings) -> Table:
    """The table for a terminal of 80 columns or more; separated differences are bold."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    caption = f"\N{PLUS-MINUS SIGN}: 95% interval. {legend(findings)}"
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    head = ["", findings.final or "final", "difference", "p", "rate", "n"]
    head += [f"{findings.early}, diff."] if findings.early is not None else []
    for index, title in enumerate(head):
        wraps = title in ("", "rate") or index == len(head) - 1
        table.add_column(title, justify="right" if index else "left", no_wrap=not wraps)
    for family in findings.story.families:
        table.add_section()
        table.add_row(f"[bold]{escape(family.title)}[/bold]", f"[dim]{escape(family.metric)}[/dim]")
        for row in rows(findings):
            if row.family == family:
                table.add_row(f"  {escape(row.arm.name)}", *_short(findings, row))
    return table


def _short(findings: Findings, row: Row) -> list[str]:
    final = row.final
    difference = _plus_minus(final.difference, final.difference_reach)
    difference = f"[bold]{difference}[/bold]" if final.separated else difference
    texts = [_plus_minus(final.mean, final.reach), difference, final.probability, row.rates, row.size]
    if findings.early is None:
        return texts
    change = "" if row.early.difference == words.NOTHING else row.early.difference
    return [*texts, f"{row.early.mean} {change:>5}"]


def comma_separated(findings: Findings) -> str:
    """One line for each task, arm and reading, fractions in full precision; an empty field where there is nothing."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for family in findings.story.families:
        truncated, examples = findings.truncated(family, TEST)
        ends = (examples, truncated, "" if family.chance is None else _number(family.chance))
        for arm in findings.story.arms:
            for reading in findings.story.readings:
                found = findings.at(family.task, reading, arm.name)
                if found is not None:
                    writer.writerow([*_record(family, arm, found), *ends])
    return stream.getvalue()


def legend(findings: Findings) -> str:
    """A few sentences that explain the table's numbers."""
    baseline = findings.story.baseline
    text = f"Scores are times 100; differences are to {baseline}, paired by seed."
    if any(item.num_missing for item in findings.comparisons.values()):
        text += f" {PROVISIONAL} runs are missing: provisional."
    guesses = [f"{words.points(item.chance)} on {item.title}" for item in findings.story.families if item.chance]
    return f"{text} Guessing would score {words.listing(guesses)}." if guesses else text


def _row(findings: Findings, family: Family, arm: Arm) -> Row:
    found = findings.at(family.task, findings.final, arm.name)
    runs = [len(values) for values in found.values.values()] if found else []
    return Row(
        family=family,
        arm=arm,
        final=_cell(findings, family, arm, findings.final),
        early=_cell(findings, family, arm, findings.early),
        rates=words.rates(found.learning_rates) if found else words.NOTHING,
        size=_size(runs),
        failed=f"{found.num_failed} of {found.num_runs}" if found and found.num_failed else "",
    )


def _size(runs: Sequence[int]) -> str:
    if not runs:
        return words.NOTHING
    times = "\N{MULTIPLICATION SIGN}"
    return f"{len(runs)} {times} {runs[0]}" if len(set(runs)) == 1 else " + ".join(map(str, runs))


def _cell(findings: Findings, family: Family, arm: Arm, reading: str | None) -> Cell:
    found = findings.at(family.task, reading, arm.name)
    if found is None or reading is None:
        return Cell(*[words.NOTHING] * 7, separated=False, leads=False)
    difference = found.difference
    return Cell(
        mean=words.points(found.score.mean) + (PROVISIONAL if found.num_missing else ""),
        span=words.span(found.score),
        reach=words.reach(found.score),
        difference=words.signed(difference.mean) if difference else words.NOTHING,
        difference_span=words.signed_span(difference),
        difference_reach=words.reach(difference),
        probability=words.probability(found.probability),
        separated=difference is not None and difference.excludes_zero,
        leads=arm.name in findings.leaders(family, reading),
    )


def _bracketed(cell: Cell) -> tuple[str, str]:
    pairs = ((cell.mean, cell.span), (cell.difference, cell.difference_span))
    score, difference = (value if ends == words.NOTHING else f"{value} [{ends}]" for value, ends in pairs)
    return score, difference


def _plus_minus(value: str, reach: str) -> str:
    return value if reach == words.NOTHING else f"{value} \N{PLUS-MINUS SIGN} {reach}"


def _escaped(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")


_COLUMNS = (
    *("task", "kind", "metric", "arm", "schedule", "reading", "tokens"),
    *("mean", "low", "high", "method", "narrow_low", "narrow_high"),
    *("difference", "difference_low", "difference_high", "difference_method", "difference_narrow_low"),
    *("difference_narrow_high", "p", "learning_rates", "pretraining_seeds", "selected_runs"),
    *("runs", "failed", "missing", "num_examples", "num_truncated", "chance"),
)
"""`num_examples` and `num_truncated` are of the test split; `chance` is what guessing scores."""


def _record(family: Family, arm: Arm, found: Comparison) -> list[str | int]:
    """The fields of `_COLUMNS` that differ between places, in their order."""
    difference = [found.difference, found.difference_narrow]
    return [
        *(family.task, family.kind, family.metric, arm.name, arm.schedule, found.reading, found.tokens),
        *(_number(found.score.mean), *_ends(found.score), found.score.method.value, *_ends(found.score_narrow)),
        *(_number(difference[0].mean if difference[0] else math.nan), *_ends(difference[0])),
        *(difference[0].method.value if difference[0] else "", *_ends(difference[1])),
        *(_number(found.probability), ";".join(map(repr, found.learning_rates)), len(found.values)),
        *(sum(map(len, found.values.values())), found.num_runs, found.num_failed, found.num_missing),
    ]


def _ends(estimate: Estimate | None) -> tuple[str, str]:
    return (_number(estimate.low), _number(estimate.high)) if estimate else ("", "")


def _number(value: float) -> str:
    return "" if math.isnan(value) else repr(value)
