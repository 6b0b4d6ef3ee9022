"""What a story's observations come to: computed once, read by every table, figure and sentence."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from antiphon.report.story import Family, Story
from antiphon.results.compare import Comparison, compare
from antiphon.results.select import choose


@dataclasses.dataclass(frozen=True)
class Findings:
    """A story with its comparisons, by (task, reading, arm)."""

    story: Story
    comparisons: Mapping[tuple[str, str, str], Comparison]

    @property
    def final(self) -> str:
        """Label of the last reading; empty when there is none."""
        return self.story.readings[-1] if self.story.readings else ""

    @property
    def early(self) -> str | None:
        """Label of the first reading, when it is not the last one too."""
        return self.story.readings[0] if len(self.story.readings) > 1 else None

    def at(self, task: str, reading: str | None, arm: str) -> Comparison | None:
        """The comparison at a place, or None when no score has come in from there."""
        return self.comparisons.get((task, reading, arm)) if reading is not None else None

    def rivals(self) -> list[str]:
        """Names of the arms that are compared with the baseline."""
        return [arm.name for arm in self.story.arms if arm.name != self.story.baseline]

    def leaders(self, family: Family, reading: str | None) -> tuple[str, ...]:
        """The arms with the highest mean on a task, more than one at a tie; empty when there is no contest."""
        found = {arm.name: self.at(family.task, reading, arm.name) for arm in self.story.arms}
        means = {name: item.score.mean for name, item in found.items() if item and not math.isnan(item.score.mean)}
        best = tuple(name for name, mean in means.items() if mean == max(means.values()))
        return best if len(best) < len(means) else ()

    def tokens(self, reading: str) -> int:
        """The most tokens any arm had seen at a reading; 0 when nothing has come in."""
        return max((found.tokens for (_, label, _), found in self.comparisons.items() if label == reading), default=0)

    def truncated(self, family: Family, split: str) -> tuple[int, int]:
        """How many examples of a task's split were cut to the row length, and of how many."""
        # All runs of a study read the same examples with the same tokenizer.
        scores = [item.score for item in self.story.observations if item.score.task == family.task]
        counts = ((score.num_truncated, score.num_examples) for score in scores if score.split == split)
        return max(counts, default=(0, 0))


def find(story: Story) -> Findings:
    """Select on validation, read the test scores, and compare every arm with the baseline.

    Raises:
        UserError: the observations contradict each other; see `results.select.choose`.
    """
    selected = choose(story.observations, {family.task: family.metric for family in story.families}, story.rule)
    return Findings(story, {(item.task, item.reading, item.arm): item for item in compare(selected, story.baseline)})
