"""Text in, documents out, in a fixed order and a bounded amount of memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from antiphon.config import Config, UserError, fingerprint
from antiphon.data import docstrings

POCKET = "pocket"

# A document of a plain text file is cut at line ends near this many characters, so that a file of one endless
# document (or one endless line) needs no more memory than any other.
MAX_CHARACTERS = 200_000


class Corpus(Config):
    """Where the text comes from. A plain string in a study file means `path`.

    Attributes:
        path: "pocket" (the documentation of the installed libraries), a file, or a folder searched for
            .txt, .jsonl, .jsonl.gz, .jsonl.zst, .parquet and .arrow files. What `datasets` saved with `save_to_disk` is
            such a folder.
        text_field: the field or column that holds the text, for all but .txt.
        validation_share: share of documents kept out of training for the validation loss, chosen by a hash of the text.
            The pocket corpus has its own split, by module.
        weight: in a mixture of corpora, its share of what is shown, in blocks, relative to the others' weights.
    """

    path: str = POCKET
    text_field: str = "text"
    validation_share: float = Field(default=0.02, ge=0, lt=0.5)
    weight: int = Field(default=1, ge=1, le=10_000)

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, data: Any) -> Any:
        return {"path": data} if isinstance(data, str) else data


def _several(data: Any) -> Any:
    return (data,) if isinstance(data, str | Mapping | Corpus) else data


def _distinct(corpora: tuple[Corpus, ...]) -> tuple[Corpus, ...]:
    places = [(corpus.path, corpus.text_field) for corpus in corpora]
    for place in places:
        if places.count(place) > 1:
            raise ValueError(f"corpus {place[0]!r} is listed {places.count(place)} times; list it once, with a weight")
    return corpora


Corpora = Annotated[tuple[Corpus, ...], BeforeValidator(_several), Field(min_length=1), AfterValidator(_distinct)]
"""One corpus or a mixture of several. A single path or mapping stands for one."""


def documents(corpus: Corpus, cache: Path) -> Iterator[tuple[str, str]]:
    """The corpus as (text, "train" or "validation") pairs, in a fixed order.

    Args:
        corpus: what to read.
        cache: a folder where the pocket corpus keeps what is slow to extract.

    Raises:
        UserError: a file is missing, not UTF-8, lacks the text field or has no text there; the message names file and
            line.
    """
    if corpus.path == POCKET:
        yield from docstrings.documents(docstrings.load(cache))
        return
    for path in files(corpus):
        for text in _reader(path)(path, corpus.text_field):
            yield text, _split(text, corpus.validation_share)


def files(corpus: Corpus) -> list[Path]:
    """The files of a corpus, sorted by their path.

    Raises:
        UserError: the path does not exist, or holds no file of a known format.
    """
    root = Path(corpus.path).expanduser()
    if root.is_file():
        found = [root]
    elif root.is_dir():
        found = sorted(path for path in root.rglob("*") if path.is_file() and _suffix(path) in _READERS)
        found = [path for path in found if path.suffix != ".arrow" or _belongs(path)]
    else:
        raise UserError(
            f"corpus {corpus.path!r}: no such file or folder. Give a path, or 'pocket' for the built-in corpus."
        )
    if not found or _suffix(found[0]) not in _READERS:
        raise UserError(f"corpus {corpus.path!r}: no file ending in {', '.join(_READERS)} here.")
    return found


def revision(corpus: Corpus, checksums: Callable[[Path], str]) -> str:
    """An identity of the corpus by content: what the files hold, not where they lie.

    Args:
        corpus: what would be read.
        checksums: gives a file's checksum (possibly remembered).
    """
    facts = corpus.model_dump(exclude={"path", "weight"})
    if corpus.path == POCKET:
        return fingerprint(POCKET, docstrings.manifest())
    root = Path(corpus.path).expanduser()
    names = [(str(path.relative_to(root)) if root.is_dir() else path.name, checksums(path)) for path in files(corpus)]
    return fingerprint("files", names, facts)


def _split(text: str, validation_share: float) -> str:
    # A hash of the content: equal documents always fall on the same side, wherever they stand.
    draw = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") / 2**64
    return "validation" if draw < validation_share else "train"


def _suffix(path: Path) -> str:
    return "".join(path.suffixes[-2:]) if path.suffix in (".gz", ".zst") else path.suffix


def _read_text(path: Path, field: str) -> Iterator[str]:
    """Documents of a plain text file: blocks of lines between blank lines."""
    del field
    lines: list[str] = []
    size = 0
    for _, line in _lines(path, open(path, "rb")):  # noqa: SIM115 - closed by _lines
        if line.strip():
            lines.append(line.rstrip("\n"))
            size += len(line)
        if lines and (not line.strip() or size >= MAX_CHARACTERS):
            yield "\n".join(lines)
            lines, size = [], 0
    if lines:
        yield "\n".join(lines)


def _read_jsonl(path: Path, field: str) -> Iterator[str]:
    for number, line in _lines(path, _open(path), whole=True):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}:{number}: not JSON ({error}). Each line must be one JSON object.") from None
        if not isinstance(row, dict) or not isinstance(row.get(field), str):
            keys = ", ".join(map(repr, row)) if isinstance(row, dict) else f"a {type(row).__name__}"
            raise UserError(
                f"{path}:{number}: no text in the field {field!r}; this line has {keys}. "
                "Name the right field with --set pretrain.corpus.text_field=NAME."
            )
        text = row[field]
        try:
            # JSON may escape one half of a surrogate pair ("\ud83d", a cut emoji), which is valid JSON but no text.
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"{path}:{number}: the field {field!r} has half of a character, {text[error.start]!a}, "
                f"after {error.start} others. Repair or remove the line."
            ) from None
        yield text


def _read_parquet(path: Path, field: str) -> Iterator[str]:
    import pyarrow.parquet as parquet
    from pyarrow.lib import ArrowException

    try:
        with parquet.ParquetFile(path) as table:
            _check_column(path, field, table.schema_arrow.names)
            for batch in table.iter_batches(batch_size=1024, columns=[field]):
                yield from _texts(path, field, batch.column(0))
    except ArrowException as error:
        raise UserError(f"{path}: not a readable parquet file ({error}).") from None


def _read_arrow(path: Path, field: str) -> Iterator[str]:
    import pyarrow
    from pyarrow import ipc

    try:
        with pyarrow.memory_map(str(path)) as source:
            try:
                batches: Any = ipc.open_stream(source)
            except pyarrow.ArrowInvalid:
                source.seek(0)
                table = ipc.open_file(source)
                batches = (table.get_batch(number) for number in range(table.num_record_batches))
                names = table.schema.names
            else:
                names = batches.schema.names
            _check_column(path, field, names)
            for batch in batches:
                yield from _texts(path, field, batch.column(field))
    except pyarrow.ArrowException as error:
        raise UserError(f"{path}: not a readable Arrow file ({error}).") from None


def _belongs(path: Path) -> bool:
    """Whether an Arrow file is data: beside a saved data set there may be leftovers of its making."""
    state = path.parent / "state.json"
    if not state.is_file():
        return True
    files = json.loads(state.read_text(encoding="utf-8")).get("_data_files", [])
    return path.name in [file["filename"] for file in files]


def _check_column(path: Path, field: str, names: list[str]) -> None:
    if field not in names:
        raise UserError(
            f"{path}: no column {field!r}; it has {', '.join(map(repr, names))}. "
            "Name the right one with --set pretrain.corpus.text_field=NAME."
        )


def _texts(path: Path, field: str, column: Any) -> Iterator[str]:
    for text in column.to_pylist():
        if not isinstance(text, str):
            raise UserError(f"{path}: column {field!r} holds {text!r}, which is not text.")
        yield text


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # pyright: ignore[reportReturnType]
    if path.suffix == ".zst":
        import pyarrow

        # Reads one frame after another, and refuses a last one that is cut, which zstandard's reader takes for the end.
        return pyarrow.input_stream(str(path), compression="zstd")
    return open(path, "rb")


def _lines(path: Path, stream: IO[bytes], whole: bool = False) -> Iterator[tuple[int, str]]:
    """Numbered lines; those longer than MAX_CHARACTERS come in pieces unless `whole`.

    Raises:
        UserError: the bytes are not UTF-8, or the compressed stream is damaged.
    """
    number = 1
    with stream, io.TextIOWrapper(stream, encoding="utf-8-sig") as text:
        try:
            while line := text.readline(-1 if whole else MAX_CHARACTERS):
                yield number, line
                number += line.endswith("\n")
        except UnicodeDecodeError as error:
            # The bytes that would not decode begin where the last line ended, some lines before the fault.
            number += error.object[: error.start].count(b"\n")
            raise UserError(
                f"{path}:{number}: not UTF-8 (byte {error.object[error.start]:#04x}). "
                f"Convert the file first, for example: iconv -f LATIN1 -t UTF-8 {path.name}"
            ) from None
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(f"{path}: near line {number}: the file is damaged ({error}).") from None


_READERS: dict[str, Callable[[Path, str], Iterator[str]]] = {
    ".txt": _read_text,
    ".jsonl": _read_jsonl,
    ".jsonl.gz": _read_jsonl,
    ".jsonl.zst": _read_jsonl,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
}


def _reader(path: Path) -> Callable[[Path, str], Iterator[str]]:
    return _READERS[_suffix(path)]
