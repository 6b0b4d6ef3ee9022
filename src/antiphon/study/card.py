"""The model card that goes with an export: where the weights come from, in facts."""

from __future__ import annotations

from antiphon import __version__
from antiphon.study.plan import Plan, Reading


def card(found: Plan, reading: Reading) -> str:
    """The README.md of an exported checkpoint.

    Args:
        found: the study's plan.
        reading: the checkpoint.
    """
    course = found.courses[reading.arm, reading.seed]
    words = round(course.words(reading.step))
    last = str(course.span(reading.step - 1).objective)
    fills = last.startswith("mlm")
    use = (
        'fill = pipeline("fill-mask", "THIS FOLDER")\nfill("a sentence with a [MASK] in it")'
        if fills
        else 'embed = pipeline("feature-extraction", "THIS FOLDER")\nembed("a sentence")'
    )
    note = "" if fills else f"\nIts last objective is {last}: logits do not answer masked positions; fine-tune it.\n"
    return f"""---
library_name: transformers
pipeline_tag: {"fill-mask" if fills else "feature-extraction"}
---

# {found.study.name}: {reading.arm}, seed {reading.seed}, {reading.label} of the schedule

A bidirectional text encoder pretrained with Antiphon {__version__}.
{note}
| | |
|---|---|
| schedule | `{course.run.schedule}` |
| step | {reading.step} of {course.steps} |
| tokens seen | {reading.tokens:,} |
| words seen | {words:,} |
| corpus | {", ".join(f"`{corpus.path}`" for corpus in course.run.corpus)}, identity `{found.corpus}` |
| state | `{reading.state}` |
| study | {found.study.question} |

```python
from transformers import pipeline

{use}
```
"""
