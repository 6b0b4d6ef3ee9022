"""The lines of a raw docstring as a sequence of paragraphs and parameter entries, still with their inline markup.

Understands numpydoc ("Parameters" over a line of dashes), Google ("Args:") and transformers' form
("name (`int`, *optional*, defaults to 12):", with or without a heading). Code blocks, doctests, displayed formulas,
tables, examples, references and lists of related functions are left out.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator

from antiphon.data.docstring_lines import SECTIONS, Section, heading, indent, without_code


class Style(enum.Enum):
    """How a heading and its entries are written."""

    NUMPY = "numpy"
    GOOGLE = "google"


@dataclasses.dataclass(frozen=True)
class Block:
    """A paragraph or list item, or (with a name) one entry of a list of parameters.

    Attributes:
        section: where it stands.
        text: the paragraph, or the entry's description.
        name: the entry's name, or None.
        spec: what the author says of the entry's type and default, "" when nothing.
    """

    section: Section
    text: str
    name: str | None = None
    spec: str = ""


_UNDERLINE = re.compile(r"\s*([-=~^#])\1{2,}\s*")
_SIGNATURE = re.compile(r"\w[\w.]*\(.*\)\s*(?:->.*)?")
_BULLET = re.compile(r"\s*(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+(?=\S)")
_TABLE_LINE = re.compile(r"\s*(?:[=+|\-~^*#.:\s]{3,}|[|+].*)")
_NUMPY_ENTRY = re.compile(r"([*`]*\w[\w.*`]*(?:\s*,\s*[*`]*\w[\w.*`]*)*)\s*(?::\s*(.*))?")
_GOOGLE_ENTRY = re.compile(r"(?:[-*] )?(\\?[*`]*[A-Za-z_][\w.*`]*(?:(?:, | / )[*`]*\w+[*`]*)*)\s*(?=[(:])")
_HEADLESS_ENTRY = re.compile(r"[*`]*\w+[*`]* \(`.*\)\s*:\s*")


def blocks(raw: str) -> Iterator[Block]:
    """The paragraphs and entries of one raw docstring, in order."""
    lines = list(without_code(inspect.cleandoc(raw).split("\n")))
    while lines and (_SIGNATURE.fullmatch(lines[0]) or not lines[0]):
        del lines[0]
    for section, style, body in _sections(lines):
        # Google's "Returns:" holds sentences, numpydoc's holds entries.
        if section is Section.PARAMETERS or (section is Section.RETURNS and style is Style.NUMPY):
            yield from _entries(section, style, body)
        elif section is not Section.DROPPED:
            yield from (Block(section, paragraph) for paragraph in _paragraphs(body))


def _sections(lines: list[str]) -> Iterator[tuple[Section, Style, list[str]]]:
    """Cut the lines at the headings."""
    section, style, body = Section.PROSE, Style.GOOGLE, []
    position = 0
    while position < len(lines):
        line = lines[position]
        following = lines[position + 1] if position + 1 < len(lines) else ""
        if line.strip() and not line.startswith(" ") and _UNDERLINE.fullmatch(following):
            yield section, style, body
            title = line.strip().rstrip(":").lower()
            section, style, body = SECTIONS.get(title, Section.NOTE), Style.NUMPY, []
            position += 2
            continue
        opened = None if section is Section.PARAMETERS else heading(line)
        headless = section is Section.PROSE and _is_headless_entry(line, following)
        if opened is None and not headless:
            body.append(line)
            position += 1
            continue
        yield section, style, body
        body = []
        kind, rest = opened or (Section.PARAMETERS, "")
        end = _headless_end(lines, position) if headless else _google_end(lines, position + 1)
        inner = lines[position if headless else position + 1 : end]
        yield kind, Style.GOOGLE, [rest, *inner] if rest else inner
        position = end
    yield section, style, body


def _is_headless_entry(line: str, following: str) -> bool:
    return bool(_HEADLESS_ENTRY.fullmatch(line)) and indent(following) > 0


def _headless_end(lines: list[str], start: int) -> int:
    end = start
    while end < len(lines) and (
        not lines[end].strip() or lines[end].startswith(" ") or _HEADLESS_ENTRY.match(lines[end])
    ):
        end += 1
    return end


def _google_end(lines: list[str], start: int) -> int:
    """One past the last line under a Google heading: its indented lines, or else the lines up to the next blank one."""
    end = start
    while end < len(lines) and not lines[end].strip():
        end += 1
    if end < len(lines) and not lines[end].startswith(" "):
        while start < len(lines) and lines[start].strip() and heading(lines[start]) is None:
            start += 1
        return start
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith(" ")):
        end += 1
    return end


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Join lines into paragraphs; every list item is a paragraph of its own, tables are left out."""
    words: list[str] = []
    for line in [*lines, ""]:
        bullet = _BULLET.match(line)
        if not line.strip() or bullet or _TABLE_LINE.fullmatch(line):
            if words:
                yield " ".join(words)
            words = []
        if line.strip() and (bullet or not _TABLE_LINE.fullmatch(line)):
            words.append(line[bullet.end() :].strip() if bullet else line.strip())


def _entries(section: Section, style: Style, lines: list[str]) -> Iterator[Block]:
    """Cut the body of a list of parameters into its entries; what is no entry comes as paragraphs."""
    base = min((indent(line) for line in lines if line.strip()), default=0)
    groups: list[list[str]] = []
    for line in lines:
        if groups and (not line.strip() or indent(line) > base):
            groups[-1].append(line)
        elif line.strip():
            groups.append([line])
    for group in groups:
        entry = _numpy_entry(section, group) if style is Style.NUMPY else _google_entry(section, group)
        if entry is None:
            yield from (Block(section, paragraph) for paragraph in _paragraphs(group))
        else:
            yield entry


def _numpy_entry(section: Section, group: list[str]) -> Block | None:
    """Read "name : type, default" over an indented description."""
    head, rest = group[0].strip(), group[1:]
    while rest and _open_brackets(head) > 0:
        head, rest = f"{head} {rest[0].strip()}", rest[1:]
    found = _NUMPY_ENTRY.fullmatch(head)
    if not found or (found[2] is None and not any(line.strip() for line in rest)):
        return None
    return Block(section, " ".join(_paragraphs(rest)), _name(found[1]), found[2] or "")


def _google_entry(section: Section, group: list[str]) -> Block | None:
    """Read "name (type, default): description", whose type may go over several lines."""
    text = " ".join(_paragraphs([group[0].strip().removeprefix("- "), *group[1:]]))
    found = _GOOGLE_ENTRY.match(text)
    if not found:
        return None
    spec, rest = "", text[found.end() :]
    if rest.startswith("("):
        spec, rest = _bracketed(rest)
    if rest and not rest.startswith(":"):
        return None
    return Block(section, rest.removeprefix(":").removeprefix(":").strip(), _name(found[1]), spec)


def _open_brackets(text: str) -> int:
    return sum(text.count(mark) for mark in "([{") - sum(text.count(mark) for mark in ")]}")


def _bracketed(text: str) -> tuple[str, str]:
    """What stands in the bracket that `text` begins with, and what follows it; an unclosed one takes everything."""
    depth = 0
    for found in re.finditer(r"[()\[\]{}]", text):
        depth += 1 if found[0] in "([{" else -1
        if depth == 0:
            return text[1 : found.start()], text[found.end() :].lstrip()
    return text[1:], ""


def _name(text: str) -> str:
    return re.sub(r"[*`\\]", "", text).strip()
