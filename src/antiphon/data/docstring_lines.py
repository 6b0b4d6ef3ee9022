"""The lines of a docstring: which open a section, and which are code and no text."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator


class Section(enum.Enum):
    """What the text under a heading is."""

    PROSE = "prose"
    NOTE = "note"
    PARAMETERS = "parameters"
    RETURNS = "returns"
    DROPPED = "dropped"


_TITLES = {
    Section.PARAMETERS: "parameters, other parameters, params, args, arguments, keyword args, keyword arguments, "
    "attributes",
    Section.RETURNS: "return, returns, yields, raises, warns",
    Section.NOTE: "note, notes, warning, warnings, shape, shapes, input, inputs, output, outputs, options, domain, "
    "algorithm",
    Section.DROPPED: "example, examples, usage, example usage, usage example, usage examples, for example, see also, "
    "reference, references, adapted from, copied from, methods, link, links, todo, functions, classes, environment, "
    "expected result",
}
SECTIONS = {title: section for section, titles in _TITLES.items() for title in titles.split(", ")}
"""The known titles of sections, in lower case."""

_PROSE_DIRECTIVES = frozenset(("note", "warning", "tip", "important", "attention", "danger", "hint", "caution"))
_COLON_HEADING = re.compile(r"([A-Z][A-Za-z ]{2,30}?)\s*::?(?:\s+(.*))?")
_DIRECTIVE = re.compile(r"\s*\.\.\s(?:([\w:-]+)::\s*(.*)|.*)")
_PLACEHOLDER = re.compile(r"\s*(?:\{\w+\}|%\(\w+\)s)\s*")
_CODE_LINE = re.compile(
    r"\s{2,}(?:\w[\w.\[\], ]* = \S|import \w|from [\w.]+ import |def \w+\(|class \w+.*:$|@\w|# |return |"
    r"for \w.* in .*:$|if .*:$|with .*:$|print\(|\$ |\.\.\. )"
)


def indent(line: str) -> int:
    """The number of blanks a line begins with."""
    return len(line) - len(line.lstrip())


def heading(line: str) -> tuple[Section, str] | None:
    """The section that a Google heading ("Args:") opens and what stands on its line, or None."""
    found = _COLON_HEADING.fullmatch(line.rstrip())
    section = SECTIONS.get(found[1].lower()) if found else None
    return (section, found[2] or "") if found and section else None


def without_code(lines: list[str]) -> Iterator[str]:
    """Leave out fenced and literal blocks, doctests and directives that hold no prose."""
    fenced = doctest = False
    deeper: int | None = None  # while set, lines indented more than this belong to a block that is left out
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("```"):
            fenced = not fenced and not (len(stripped) > 5 and stripped.endswith("```"))
            continue
        if fenced or (deeper is not None and (not stripped or indent(line) > deeper)):
            continue
        if deeper is not None:
            yield ""
        deeper = None
        doctest = bool(stripped) and (doctest or stripped.startswith((">>>", "In [")))
        if doctest or _PLACEHOLDER.fullmatch(line) or _CODE_LINE.match(line):
            continue
        directive = _DIRECTIVE.fullmatch(line)
        if directive and (directive[1] or "").lower() in _PROSE_DIRECTIVES:
            yield " " * indent(line) + directive[2]
        elif directive:
            deeper = indent(line)
        elif stripped.endswith("::") and heading(stripped) is None:
            yield line[: line.rindex("::")] + (":" if stripped != "::" else "")
            deeper = indent(line)
        else:
            yield line
