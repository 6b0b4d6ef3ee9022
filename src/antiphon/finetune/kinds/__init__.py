"""The four kinds of tasks, each with its face; a new kind is a new module and a new line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.finetune.face import Face
from antiphon.finetune.kinds import classify, extract, retrieve, tag
from antiphon.finetune.task import Kind

FACES: Mapping[Kind, Face[Any]] = {
    Kind.CLASSIFY: classify.FACE,
    Kind.TAG: tag.FACE,
    Kind.EXTRACT: extract.FACE,
    Kind.RETRIEVE: retrieve.FACE,
}
