"""The answer in words, computed from the findings; none of it is typed by hand.

"Separated" means that the default 95% interval of the difference excludes zero. What is not separated is never called
equal, only not separated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from antiphon.report import words
from antiphon.report.findings import Findings
from antiphon.results.compare import Comparison, Estimate, Method, t_quantile
from antiphon.results.select import TEST, VALIDATION


def headline(findings: Findings) -> str:
    """The outcome in two sentences: who leads at the end, and how much of that stands out from chance."""
    story = findings.story
    scored = [item for item in findings.comparisons.values() if not math.isnan(item.score.mean)]
    if not scored:
        return "No fine-tuning run has finished with a score." if story.observations else "There are no scores yet."
    if not any(item.reading == findings.final for item in scored):
        return f"No score of the final reading ({findings.final}) has come in yet."
    differences = _differences(findings, findings.final)
    if not differences:
        return f"There is nothing to compare with {story.baseline} yet." if findings.rivals() else _alone(findings)
    bounded = [item for item, _ in differences if not math.isnan(_difference(item).low)]
    if not bounded:
        rest = f"Too few runs have finished to say whether any schedule differs from {story.baseline}."
    else:
        rest = _stand_out(sum(_difference(item).excludes_zero for item in bounded), len(bounded), story.baseline)
    return f"{_lead(findings, findings.final)} {rest}".strip()


def answers(findings: Findings, reading: str) -> list[str]:
    """How each arm compares with the baseline at a reading, one sentence an arm."""
    found = [_against(findings, arm, reading) for arm in findings.rivals()]
    return [sentence for sentence in [*found, _shared(findings, reading)] if sentence]


def leaders(findings: Findings, reading: str) -> str:
    """Which arm has the highest mean on which task; empty when none leads."""
    led = _led(findings, reading)
    return f"Highest mean: {'; '.join(f'{arm} on {words.listing(titles)}' for arm, titles in led)}." if led else ""


def cautions(findings: Findings) -> list[str]:
    """What a reader must know before believing the numbers."""
    looks = (_missing, _failed, _truncated, _seeds, _chance, _edges)
    return [sentence for look in looks if (sentence := look(findings))]


def _stand_out(separated: int, total: int, baseline: str) -> str:
    if total == 1:
        return f"The difference to {baseline} is {'' if separated else 'not '}separated from zero."
    if separated == 0:
        return f"None of {total} differences to {baseline} is separated from zero."
    return f"{separated} of {total} differences to {baseline} {'is' if separated == 1 else 'are'} separated from zero."


def _alone(findings: Findings) -> str:
    (arm,) = findings.story.arms[:1] or (None,)
    parts = [
        f"{words.points(found.score.mean)} on {family.title}"
        for family in findings.story.families
        if arm and (found := findings.at(family.task, findings.final, arm.name))
    ]
    return f"{arm.name} alone: {words.listing(parts)}. There is nothing to compare it with." if arm else "No schedule."


def _differences(findings: Findings, reading: str) -> list[tuple[Comparison, str]]:
    """Comparisons that have a difference at a reading, with their tasks' titles, by arm and then task."""
    return [
        (found, family.title)
        for arm in findings.rivals()
        for family in findings.story.families
        if (found := findings.at(family.task, reading, arm)) and not math.isnan(_difference(found).mean)
    ]


def _difference(item: Comparison) -> Estimate:
    return item.difference or Estimate(math.nan, math.nan, math.nan, 0, Method.NONE)


def _sides(separated: Sequence[tuple[Comparison, str]]) -> str:
    """ "above on A (+2.0) and below on B (-3.1)"."""
    parts = []
    for side, sign in (("above", 1), ("below", -1)):
        members = [
            f"{title} ({words.signed(_difference(item).mean)})"
            for item, title in separated
            if math.copysign(1, _difference(item).mean) == sign
        ]
        if members:
            parts.append(f"{side} on {words.listing(members)}")
    return " and ".join(parts)


def _against(findings: Findings, arm: str, reading: str) -> str:
    differences = [(item, title) for item, title in _differences(findings, reading) if item.arm == arm]
    if not differences:
        return ""
    baseline = findings.story.baseline
    above = sum(_difference(item).mean > 0 for item, _ in differences)
    equal = sum(_difference(item).mean == 0 for item, _ in differences)
    start = f"{arm} is above {baseline} on {above} of {words.plural(len(differences), 'task')}"
    if equal:
        start += f" and equal on {equal}"
    if all(math.isnan(_difference(item).low) for item, _ in differences):
        return f"{start}; too few runs for intervals."
    separated = [(item, title) for item, title in differences if _difference(item).excludes_zero]
    return (
        f"{start}; separated on {len(separated)}: {_sides(separated)}." if separated else f"{start}; separated on none."
    )


def _lead(findings: Findings, reading: str) -> str:
    led = _led(findings, reading)
    if not led:
        return ""
    total = len(findings.story.families)
    first, *others = [(arm, len(titles)) for arm, titles in led]
    rest = "".join(f", {arm} on {count}" for arm, count in others)
    verb = "has" if first[0] in {arm.name for arm in findings.story.arms} else "have"
    where = f"{first[1]} of {total} tasks" if total > 1 else led[0][1][0]
    return f"{first[0]} {verb} the highest mean on {where}{rest}."


def _led(findings: Findings, reading: str) -> list[tuple[str, list[str]]]:
    """Arms (joined at a tie) with the titles of the tasks they lead, most first."""
    led: dict[str, list[str]] = {}
    for family in findings.story.families:
        best = findings.leaders(family, reading)
        if best:
            led.setdefault(words.listing(best), []).append(family.title)
    return sorted(led.items(), key=lambda item: -len(item[1]))


def _shared(findings: Findings, reading: str) -> str:
    """Names arms whose weights at a reading are one and the same, so that nobody reads their equality as a finding."""
    groups: dict[tuple[tuple[int, str], ...], set[str]] = {}
    for item in findings.comparisons.values():
        if item.reading == reading:
            groups.setdefault(tuple(sorted(item.states.items())), set()).add(item.arm)
    names = [arm.name for arm in findings.story.arms]
    same = [words.listing([name for name in names if name in group]) for group in groups.values() if len(group) > 1]
    return f"{'; '.join(same)} are the same weights here: their schedules have not parted yet." if same else ""


def _missing(findings: Findings) -> str:
    count = findings.story.missing
    if count:
        return f"The study is not finished: {words.plural(count, 'job')} to come. Every number here is provisional."
    lacking = sum(item.num_missing for item in findings.comparisons.values())
    return f"{words.plural(lacking, 'fine-tuning run')} of the grid did not come in." if lacking else ""


def _failed(findings: Findings) -> str:
    # Counted by job: arms that share a checkpoint share its fine-tuning runs.
    metrics = {family.task: family.metric for family in findings.story.families}
    scores = [item.score for item in findings.story.observations if item.score.metric == metrics[item.score.task]]
    total = len({score.job for score in scores})
    failed = len({score.job for score in scores if math.isnan(score.value)})
    if not failed:
        return ""
    return (
        f"{failed} of {words.plural(total, 'fine-tuning run')} failed ({100 * failed / total:.1f}%). A learning rate "
        "with a failed run is chosen only when every other has as many; the mean is then over the runs that finished."
    )


def _truncated(findings: Findings) -> str:
    parts, total = [], 0
    for family in findings.story.families:
        counts = [(split, *findings.truncated(family, split)) for split in (VALIDATION, TEST)]
        cut = [f"{number} of {examples} {split}" for split, number, examples in counts if number]
        total += sum(number for _, number, _ in counts)
        if cut:
            parts.append(f"{' and '.join(cut)} examples of {family.title}")
    return f"{words.listing(parts)} {'was' if total == 1 else 'were'} cut to the row length." if parts else ""


def _seeds(findings: Findings) -> str:
    ends = [item for item in findings.comparisons.values() if item.reading == findings.final]
    once = {item.arm for item in ends if item.score.method is Method.FINETUNING_SEEDS}
    if once:
        names = [arm.name for arm in findings.story.arms if arm.name in once]
        subject = "Each schedule" if len(names) == len(findings.story.arms) else words.listing(names)
        verb = "stands" if len(names) == 1 or subject == "Each schedule" else "stand"
        return (
            f"{subject} {verb} on one pretraining run: such intervals cover fine-tuning seeds only, and another "
            "pretraining seed may land outside them."
        )
    counts = [item.score.count for item in ends if item.score.method is Method.PRETRAINING_SEEDS]
    if not counts:
        return ""
    reach = t_quantile(min(counts) - 1)
    text = f"Intervals stand on {min(counts)} pretraining seeds and reach {reach:.1f} standard errors to each side"
    return f"{text}, so only large, steady differences can be separated." if reach > 3 else f"{text}."


def _chance(findings: Findings) -> str:
    count = sum(not math.isnan(_difference(item).low) for item, _ in _differences(findings, findings.final))
    if count < 2:
        return ""
    return (
        f"The {count} final differences are not corrected for their number: were there no differences at all, "
        f"{0.05 * count:.1f} of them would be expected to exclude zero by chance."
    )


def _edges(findings: Findings) -> str:
    items = [item for item in findings.comparisons.values() if len(item.grid) >= 3]
    edge = [item for item in items if {item.grid[0], item.grid[-1]} & set(item.learning_rates)]
    if not edge:
        return ""
    return (
        f"The chosen learning rate is at an end of the grid in {len(edge)} of {len(items)} comparisons; a wider grid "
        "might change them."
    )
