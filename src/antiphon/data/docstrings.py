"""The pocket corpus: the docstrings of installed libraries, cleaned, de-duplicated and split by module.

The libraries are found and read as files; none of them is imported. What a machine with the same versions reads is the
same, whatever the number of workers.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from antiphon import files
from antiphon.config import UserError, fingerprint
from antiphon.data import docstring_parts
from antiphon.data.copies import Copies
from antiphon.data.docstring_markup import Span
from antiphon.data.docstring_parts import Parameter
from antiphon.data.docstring_source import raw_docstrings
from antiphon.processes import pool

LIBRARIES: Mapping[str, str] = {
    "torch": "torch",
    "transformers": "transformers",
    "numpy": "numpy",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
}
"""The libraries read by default: name of the distribution -> name it is imported by."""

FOLDER = "passages"
"""Folder of a workspace that keeps the passages."""

# Part of the manifest, and so of the identity of what is made from it: raise it when the cleaning, the splits or the
# tasks made from the passages change.
VERSION = 2

# A shorter docstring says nothing that an encoder could learn from.
MIN_WORDS = 8

# Tests, and other projects' code that a library carries along: not the library's own documentation.
_SKIPPED = (
    *("/tests/", "/test/", "/testing/_internal/"),
    *("/externals/", "/_external/", "/_externals/", "/_vendor/", "/vendored/", "/third_party/"),
    *("/array_api_compat/", "/array_api_extra/"),
)

# Files a worker takes at once: small enough to share well, large enough that the messages cost nothing.
_FILES_AT_ONCE = 64

SplitName = Literal["train", "validation", "test"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Passage:
    """One docstring; spans are (start, end) characters of `text`.

    Attributes:
        library: name of the distribution.
        module: dotted name of the module.
        name: qualified name inside the module; "" for the module itself.
        text: cleaned text, one paragraph, list item or parameter a line.
        summary: the first sentence of `text`; "" when the docstring begins with a heading.
        prose: number of characters of `text`, from its beginning, that stand before the first heading.
        code: spans of what the author marked as code; the marks themselves are gone.
        parameters: the documented parameters with the spans of their types and defaults.
    """

    library: str
    module: str
    name: str
    text: str
    summary: str
    prose: int
    code: tuple[Span, ...]
    parameters: tuple[Parameter, ...]

    @property
    def description(self) -> str:
        """What follows the summary."""
        return self.text[len(self.summary) :].strip()

    @property
    def split(self) -> SplitName:
        """The split of the passage's module."""
        return split_of(self.module)


def split_of(module: str) -> SplitName:
    """The split of a module: about 80% train, 10% validation, 10% test, fixed by a hash.

    The hash looks at the first three parts of the dotted name only, so that modules that copy text from each other stay
    together: all of transformers.models.bert, all of torch.nn.modules. A module is in exactly one split.
    """
    key = ".".join(module.split(".")[:3])
    # The word before the key is one of a few tried: with it every library has about its tenth in each held-out split.
    share = hashlib.blake2b(f"split {key}".encode(), digest_size=8).digest()
    percent = int.from_bytes(share, "big") % 100
    return "train" if percent < 80 else "validation" if percent < 90 else "test"


def extract(libraries: Mapping[str, str] = LIBRARIES, workers: int = 1) -> list[Passage]:
    """Read the docstrings of installed libraries.

    Args:
        libraries: name of the distribution -> name it is imported by.
        workers: processes that share the files; the result does not depend on it.

    Returns:
        The distinct passages of at least `MIN_WORDS` words, ordered by library (as given), module and line. A text is
        kept once, in the split that sees it first of train, validation and test; so is one that repeats more than half
        of another's runs of 8 words.

    Raises:
        UserError: a library is not installed.
    """
    found = [(library, module, str(path)) for library, name in libraries.items() for module, path in modules(name)]
    pieces = [found[start : start + _FILES_AT_ONCE] for start in range(0, len(found), _FILES_AT_ONCE)]
    if workers > 1:
        with pool(workers) as executor:
            parts = list(executor.map(read_files, pieces))
    else:
        parts = [read_files(piece) for piece in pieces]
    return _distinct([passage for part in parts for passage in part])


def load(cache: Path, workers: int = 1, libraries: Mapping[str, str] = LIBRARIES) -> list[Passage]:
    """The passages of `extract`, kept in a folder of the cache named after the library versions.

    Args:
        cache: folder for the cache; made when missing.
        workers: processes that share the work when there is nothing in the cache yet.
        libraries: as in `extract`.

    Raises:
        UserError: a library is not installed, or the cache cannot be written.
    """
    versions = manifest(libraries)
    folder = cache / f"docstrings-{fingerprint(versions)}"
    if not folder.is_dir():
        passages = extract(libraries, workers)
        with files.new_directory(folder) as work:
            with open(work / "passages.jsonl", "w", encoding="utf-8") as stream:
                stream.writelines(json.dumps(_plain(passage), ensure_ascii=False) + "\n" for passage in passages)
            files.write_json(work / "manifest.json", versions)
    with open(folder / "passages.jsonl", encoding="utf-8") as stream:
        return [_passage(json.loads(line)) for line in stream]


def manifest(libraries: Mapping[str, str] = LIBRARIES) -> dict[str, str]:
    """What the corpus is made from: name of each distribution -> installed version, and what reads them.

    That is the version of this module, and of Python: a file that this Python cannot parse is left out.

    Raises:
        UserError: a library is not installed.
    """
    versions = {"pocket corpus": str(VERSION), "python": ".".join(map(str, sys.version_info[:2]))}
    for library in libraries:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            raise _missing(library) from None
    return versions


def documents(passages: Sequence[Passage]) -> Iterator[tuple[str, Literal["train", "validation"]]]:
    """The texts for pretraining, with their splits, in order; the modules of the test split are left out."""
    for passage in passages:
        split = passage.split
        if split != "test":
            yield passage.text, split


def modules(name: str) -> list[tuple[str, Path]]:
    """The modules of an installed package and their files, ordered by module; the package is not imported.

    Args:
        name: the name the package is imported by.

    Raises:
        UserError: there is no such package.
    """
    spec = importlib.machinery.PathFinder.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(name)
    found = []
    for folder in map(Path, spec.submodule_search_locations):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if not any(skipped in f"/{'/'.join(parts[:-1])}/" for skipped in _SKIPPED):
                found.append((".".join((name, *parts)).removesuffix(".__init__"), path))
    return sorted(found)


def read_files(found: Sequence[tuple[str, str, str]]) -> list[Passage]:
    """The passages of some files, in order, duplicates included.

    Args:
        found: (library, module, path) of each file.
    """
    passages = []
    for library, module, path in found:
        source = Path(path).read_bytes()
        try:
            raw = list(raw_docstrings(source))
        except SyntaxError as error:
            _log.warning("%s: left out of the pocket corpus, this Python cannot read it (%s)", path, error.msg)
            continue
        for name, text in raw:
            parts = docstring_parts.read(text)
            if len(parts.text.split()) >= MIN_WORDS:
                passages.append(
                    Passage(library, module, name, parts.text, parts.summary, parts.prose, parts.code, parts.parameters)
                )
    return passages


def _distinct(passages: list[Passage]) -> list[Passage]:
    """Keep one of each group of copies, training's first, so that no held-out text is a copy of a training text."""
    copies = Copies()
    rank = {"train": 0, "validation": 1, "test": 2}
    order = sorted(range(len(passages)), key=lambda number: (rank[passages[number].split], number))
    return [passages[number] for number in sorted(number for number in order if copies.accept(passages[number].text))]


def _missing(library: str) -> UserError:
    return UserError(
        f"{library}: not installed, but the pocket corpus is made of its documentation. "
        "Install it (`pip install -c constraints.txt .` does) or name another corpus."
    )


def _plain(passage: Passage) -> list[object]:
    parameters = [[item.name, item.line, item.description, item.type, item.default] for item in passage.parameters]
    place = [passage.library, passage.module, passage.name]
    return [*place, passage.text, len(passage.summary), passage.prose, passage.code, parameters]


def _passage(fields: list) -> Passage:
    library, module, name, text, summary, prose, code, parameters = fields
    return Passage(
        *(library, module, name, text, text[:summary], prose),
        code=tuple((start, end) for start, end in code),
        parameters=tuple(
            Parameter(title, tuple(line), description, kind and tuple(kind), default and tuple(default))
            for title, line, description, kind, default in parameters
        ),
    )
