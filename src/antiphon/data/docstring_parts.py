"""One docstring as plain text, with its summary, prose and parameters as offsets into it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from antiphon.data.docstring_blocks import Block, Section, blocks
from antiphon.data.docstring_markup import Span, clean


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One documented parameter; spans are (start, end) characters of `Docstring.text`.

    Attributes:
        name: as the author wrote it.
        line: the whole entry, "name (type, default): description".
        description: where the description in it starts.
        type: the type; None when the author gave none.
        default: the default value, without quotes; None when there is none.
    """

    name: str
    line: Span
    description: int
    type: Span | None
    default: Span | None


@dataclasses.dataclass(frozen=True)
class Docstring:
    """A cleaned docstring.

    Attributes:
        text: one paragraph, list item or parameter a line.
        summary: its first sentence; empty when the docstring begins with a heading.
        prose: the characters of `text`, from its beginning, that stand before the first heading.
        code: (start, end) characters of what the author marked as code in `text`.
        parameters: the documented parameters, in order.
    """

    text: str
    summary: str
    prose: int
    code: tuple[Span, ...]
    parameters: tuple[Parameter, ...]


# A type or a default longer than this is a sentence, and no span to ask for.
_LONGEST_ANSWER_WORDS = 8

_TYPE = re.compile(
    r"(.*?)(?:[,;.\s]*[(\[]?(?:optional|defaults?|required|not required|keyword[- ]only|returned when|read-only)\b.*)?",
    re.IGNORECASE,
)
_DEFAULT_IN_SPEC = re.compile(r"\bdefaults?\b(?:\s+value)?(?:\s+(?:to|is|of))?\s*[=:]?\s*", re.IGNORECASE)
_DEFAULT_IN_TEXT = re.compile(r"\bdefaults?(?:\s+value)?(?:\s+(?:to|is)\s*:?|\s*[=:])\s+", re.IGNORECASE)
_QUOTED = re.compile(r"\"([^\"]+)\"|'([^']+)'")
_LITERAL = re.compile(
    r"(?:None|True|False|[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?(?:np\.)?inf)(?![\w.*/^-]*\w)"
)
_TOKEN = re.compile(r"[(\[{][^()\[\]{}]*[)\]}]|[^\s,;()\[\]{}]+(?:\([^()]*\))?")
_NO_DEFAULT = frozenset(
    ("to", "the", "a", "an", "is", "of", "for", "if", "in", "it", "based", "depends", "value", "see")
)
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z(\"'])(?<!e\.g\. )(?<!i\.e\. )(?<!etc\. )(?<!vs\. )(?<!cf\. )")


def read(raw: str) -> Docstring:
    """Clean one raw docstring and find its parts."""
    lines: list[str] = []
    code: list[Span] = []
    parameters: list[Parameter] = []
    prose = length = 0
    before_heading = True
    for block in blocks(raw):
        line, spans, parameter = _parameter(block, length) if block.name else (*clean(block.text), None)
        if not line or not (block.name or _reads_as_text(line, spans)):
            continue
        code += _moved(spans, length)
        if parameter and block.section is Section.PARAMETERS:
            parameters.append(parameter)
        lines.append(line)
        length += len(line) + 1
        before_heading = before_heading and block.section is Section.PROSE
        prose = length - 1 if before_heading else prose
    summary = lines[0][: sentences(lines[0])[0][1]] if prose else ""
    return Docstring("\n".join(lines), summary, prose, tuple(code), tuple(parameters))


def sentences(line: str) -> list[Span]:
    """The (start, end) characters of the sentences of one line, in order."""
    ends = [found.span() for found in _SENTENCE_END.finditer(line)]
    return list(zip([0, *(end for _, end in ends)], [*(start for start, _ in ends), len(line)], strict=True))


def _moved(spans: Sequence[Span], by: int) -> list[Span]:
    return [(start + by, end + by) for start, end in spans]


def _span_moved(span: Span | None, by: int) -> Span | None:
    return span and (span[0] + by, span[1] + by)


def _parameter(block: Block, start: int) -> tuple[str, list[Span], Parameter]:
    """An entry as one line "name (spec): description", its code spans in that line, and the parameter.

    Args:
        block: an entry.
        start: where the line will begin in the text.
    """
    name = " ".join((block.name or "").split())
    spec, spec_code = clean(block.spec.strip().rstrip(".,;: "))
    text, text_code = clean(block.text)
    before_spec = len(name) + 2
    before_text = len(name) + 2 + (len(spec) + 3 if spec else 0)
    line = name + (f" ({spec})" if spec else "") + (f": {text}" if text else "")
    kind = _TYPE.fullmatch(spec)
    default = _span_moved(_default(spec, spec_code, _DEFAULT_IN_SPEC, _TOKEN), before_spec)
    default = default or _span_moved(_default(text, text_code, _DEFAULT_IN_TEXT, _LITERAL), before_text)
    parameter = Parameter(
        name,
        (start, start + len(line)),
        start + min(before_text, len(line)),
        _span_moved(_trimmed(spec, 0, kind.end(1)) if kind else None, start + before_spec),
        _span_moved(default, start),
    )
    return line, [*_moved(spec_code, before_spec), *_moved(text_code, before_text)], parameter


def _trimmed(text: str, start: int, end: int) -> Span | None:
    """The span without blanks and commas at its ends; None when nothing, or too much to be an answer, is left."""
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip(" ,;:"))
    end = start + len(inner.strip(" ,;:."))
    answer = text[start:end]
    return (start, end) if re.search(r"\w", answer) and len(answer.split()) <= _LONGEST_ANSWER_WORDS else None


def _default(text: str, code: Sequence[Span], announced: re.Pattern[str], value: re.Pattern[str]) -> Span | None:
    """The span of the default that `announced` leads to: a code span, a quoted string, or what `value` matches."""
    for found in announced.finditer(text):
        start = found.end()
        for span in code:
            if span[0] == start:
                quoted = _QUOTED.fullmatch(text[span[0] : span[1]])
                return _trimmed(text, span[0] + bool(quoted), span[1] - bool(quoted))
        quoted, plain = _QUOTED.match(text, start), value.match(text, start)
        if quoted:
            return _trimmed(text, quoted.start() + 1, quoted.end() - 1)
        if plain and plain[0].strip(".,").lower() not in _NO_DEFAULT:
            return _trimmed(text, *plain.span())
    return None


def _reads_as_text(line: str, code: Sequence[Span]) -> bool:
    """Whether there are two words, at least half of all plain or marked as code; else it is a formula or a listing."""
    covered = sum(len(line[start:end].split()) for start, end in code)
    words = line.split()
    plain = sum(bool(re.fullmatch(r"[(\[\"'*]*[A-Za-z][A-Za-z'’/-]*[)\]\"',.:;!?*]*", word)) for word in words)
    return len(words) > 1 and 2 * (plain + covered) >= len(words)
