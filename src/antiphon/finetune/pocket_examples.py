"""From one passage of the pocket corpus to at most one example of each task, with the stretch of text it rests on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from antiphon.data.docstring_parts import Parameter, Span, sentences
from antiphon.data.docstrings import Passage
from antiphon.finetune.task import Question, Words

TAGS = ("O", "CODE")

MASK = "library"
"""What stands in classification passages for a library's name."""

_PASSAGE_WORDS = (12, 28)
_SENTENCE_WORDS = (8, 28)
_QUERY_WORDS = (4, 25)
_DOCUMENT_WORDS = (12, 20)
_CONTEXT_WORDS = 42
_ENTRY_WORDS = 14
_CONTEXT_PARAMETERS = 3

# Names of the libraries and what they are called among their users; a word that contains one of the long ones counts.
_LONG = "torch|numpy|scipy|scikit|sklearn|hugging-?face|transformers"
_SHORT = "np|hf|sp"
_PATH = re.compile(rf"\b(?:\w*(?:{_LONG})\w*|{_SHORT})(?:\.\w+)*\.(?=\w)", re.IGNORECASE)
_NAME = re.compile(rf"[\w/@-]*(?:{_LONG}|hugging face)[\w/@-]*|\b(?:{_SHORT})\b", re.IGNORECASE)
# One of the libraries, and none of the others, writes so nearly everywhere.
_POINTER = re.compile(r"Read more (?:in|about) [^.]*\.\s*")

_HEAD = re.compile(r"\S+(?: \([^:]*\)|(?:, \S+)+)?: ")
_SURELY_CODE = re.compile(r"\w_\w|\w\(\)")
_OPENER = {")": "(", "]": "[", "}": "{"}


def masked_beginning(passage: Passage) -> tuple[str, str] | None:
    """The first words of a passage's prose without the libraries' names, and that prose; None when it is too short."""
    prose = passage.text[: passage.prose]
    words = masked(" ".join(prose.split())).split()[: _PASSAGE_WORDS[1]]
    return (" ".join(words), prose) if len(words) >= _PASSAGE_WORDS[0] else None


def masked(text: str) -> str:
    """A text without the names of the libraries: "torch.nn.Linear" gives "Linear", "NumPy's" gives "library's"."""
    return _NAME.sub(MASK, _PATH.sub("", _POINTER.sub("", text)))


def tagged_sentence(passage: Passage) -> tuple[Words, str] | None:
    """A sentence with code in it and the line it is from; None when there is none that is fit.

    Authors forget marks: a sentence is passed over when an unmarked word in it is marked elsewhere in the passage, or
    can be nothing but code (name_with_underscore, call()).
    """
    marked = {passage.text[start:end] for start, end in passage.code}
    found = [
        (line, (text + start, text + end))
        for line, text in _described_lines(passage)
        for start, end in sentences(passage.text[text : line[1]])
    ]
    found.sort(key=lambda item: order("sentence", passage.text[slice(*item[1])]))
    for line, span in found:
        sentence = tagged(passage, span)
        both = len(set(sentence.tags)) == len(TAGS)
        if both and _within(len(sentence.words), _SENTENCE_WORDS) and not _forgets(sentence, marked):
            return sentence, passage.text[slice(*line)]
    return None


def tagged(passage: Passage, span: Span) -> Words:
    """The words of a stretch of a passage, punctuation apart, with their tags."""
    words, tags = [], []
    for start, end in words_of(passage.text[slice(*span)]):
        start, end = start + span[0], end + span[0]
        words.append(passage.text[start:end])
        tags.append(TAGS[any(begin < end and start < stop for begin, stop in passage.code)])
    return Words(tuple(words), tuple(tags))


def words_of(text: str) -> Iterator[Span]:
    """The (start, end) characters of words, punctuation at their edges apart; "fit()" and "a[i]" stay whole."""
    for found in re.finditer(r"\S+", text):
        start, end = found.span()
        while start < end - 1 and text[start] in "([{\"'":
            yield start, start + 1
            start += 1
        tail = end
        while tail - 1 > start and text[tail - 1] in ".,;:!?\"')]}":
            if text[tail - 1] in _OPENER and text.count(_OPENER[text[tail - 1]], start, tail):
                break
            tail -= 1
        yield start, tail
        yield from ((at, at + 1) for at in range(tail, end))


def question(passage: Passage) -> tuple[Question, str] | None:
    """A question for the default or the type of a parameter, and that parameter's line; None when there is none."""
    names = [item.name for item in passage.parameters]
    asked = [
        (kind, item)
        for item in passage.parameters
        for kind, span in (("default", item.default), ("type", item.type))
        if span and names.count(item.name) == 1
    ]
    # Defaults are rarer than types: half of the passages are asked for a default if they have one.
    rare = order("kind", passage.module, passage.name, passage.text) % 2 == 1
    asked.sort(
        key=lambda item: (
            rare and item[0] != "default",
            order("parameter", passage.module, passage.name, item[0], item[1].name),
        )
    )
    for kind, item in asked:
        if made := _question(passage, kind, item):
            return made, passage.text[slice(*item.line)]
    return None


def _question(passage: Passage, kind: str, item: Parameter) -> Question | None:
    """Ask for one parameter in a context of its neighbours, taken from both sides in turn."""
    span = item.default if kind == "default" else item.type
    assert span is not None
    items = passage.parameters
    first = last = items.index(item)
    before = order("side", passage.name, item.name) % 2 == 0
    entries = {first: _entry(passage, item)}
    count = len(entries[first].split())
    if span[1] - item.line[0] > len(entries[first]):
        return None
    while count < _CONTEXT_WORDS and (first > 0 or last < len(items) - 1):
        before = (not before or last == len(items) - 1) and first > 0
        at = first - 1 if before else last + 1
        entry = _entry(passage, items[at])
        count += len(entry.split())
        if count > _CONTEXT_WORDS:
            break
        entries[at] = entry
        first, last = min(first, at), max(last, at)
    if len(entries) < _CONTEXT_PARAMETERS:
        return None
    context = "\n".join(entries[at] for at in sorted(entries))
    offset = sum(len(entries[at]) + 1 for at in sorted(entries) if items[at].line < item.line) + span[0] - item.line[0]
    name = f"{passage.module}:{passage.name}:{item.name}:{kind}"
    return Question(name, f"What is the {kind} of {item.name}?", context, ((offset, passage.text[slice(*span)]),))


def _entry(passage: Passage, item: Parameter) -> str:
    """The line of a parameter, cut after some words."""
    line = passage.text[slice(*item.line)]
    words = list(re.finditer(r"\S+", line))
    return line if len(words) <= _ENTRY_WORDS else line[: words[_ENTRY_WORDS - 1].end()]


def _described_lines(passage: Passage) -> Iterator[tuple[Span, int]]:
    """The lines of a passage, with the start of what is told in each: names and types of parameters are passed over."""
    told = {item.line[0]: item.description for item in passage.parameters}
    start = 0
    for line in passage.text.split("\n"):
        head = _HEAD.match(line)  # of what is returned or raised
        yield (start, start + len(line)), told.get(start, start + (head.end() if head else 0))
        start += len(line) + 1


def _forgets(sentence: Words, marked: set[str]) -> bool:
    unmarked = [word for word, tag in zip(sentence.words, sentence.tags, strict=True) if tag == "O"]
    return any(word in marked or _SURELY_CODE.search(word) for word in unmarked)


def summary_and_description(passage: Passage) -> tuple[tuple[str, str], str] | None:
    """A summary and the first words of its description, and the stretch of both; None when one gives the other away."""
    query, words = passage.summary, passage.description.split()[: _DOCUMENT_WORDS[1]]
    document = " ".join(words)
    told = query.lower().rstrip(".") in document.lower()
    if told or not _within(len(query.split()), _QUERY_WORDS) or len(words) < _DOCUMENT_WORDS[0]:
        return None
    return (query, document), passage.text[: len(query) + 1 + len(document)]


def order(*parts: str) -> int:
    """A number that stands for a place in an order which depends on nothing but the parts."""
    return int.from_bytes(hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest(), "big")


def _within(number: int, bounds: tuple[int, int]) -> bool:
    return bounds[0] <= number <= bounds[1]
