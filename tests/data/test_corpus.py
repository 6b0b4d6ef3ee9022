"""Text in, documents out; and bad text in, a clear error out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
import zstandard

from antiphon.config import Config, UserError
from antiphon.data import corpus as corpora
from antiphon.data.corpus import Corpora, Corpus
from antiphon.files import checksum
from tests import tiny

TEXTS = ["One line.", "Two\nlines, ä and 漢字.", 'With "quotes", \\ and 🙂.', "The end"]


def _jsonl(texts: list[str], field: str = "text") -> bytes:
    rows = [{"id": number, field: text} for number, text in enumerate(texts)]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _write_parquet(path: Path, texts: list[str]) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"id": list(range(len(texts))), "text": texts}), path)


def _write_arrow(path: Path, texts: list[str]) -> None:
    table = pyarrow.table({"id": list(range(len(texts))), "text": texts})
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=3)


def _write_feather(path: Path, texts: list[str]) -> None:
    table = pyarrow.table({"id": list(range(len(texts))), "text": texts})
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=3)


WRITERS: dict[str, Callable[[Path, list[str]], object]] = {
    "a.txt": lambda path, texts: tiny.write_text(path, texts),
    "a.jsonl": lambda path, texts: path.write_bytes(_jsonl(texts)),
    "a.jsonl.gz": lambda path, texts: path.write_bytes(gzip.compress(_jsonl(texts))),
    "a.jsonl.zst": lambda path, texts: path.write_bytes(zstandard.compress(_jsonl(texts))),
    "a.parquet": _write_parquet,
    "a.arrow": _write_arrow,
    "b.arrow": _write_feather,
}


def read(path: Path, text_field: str = "text", validation_share: float = 0.0) -> list[str]:
    corpus = Corpus(path=str(path), text_field=text_field, validation_share=validation_share)
    return [text for text, _ in corpora.documents(corpus, path.parent / "cache")]


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_documents(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, TEXTS)
    assert read(tmp_path / name) == TEXTS


def test_a_folder_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    for number, (name, write) in enumerate(WRITERS.items()):
        folder = tmp_path / f"{9 - number}"
        folder.mkdir()
        write(folder / name, [f"document of {name}"])
    (tmp_path / "notes.md").write_text("not a known format")
    assert read(tmp_path) == [f"document of {name}" for name in reversed(WRITERS)]


def test_blank_lines_separate_the_documents_of_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeff\n\none\r\ntwo\r\n  \t\r\n\r\nthree\n\n\n".encode())
    assert read(path) == ["one\ntwo", "three"]


def test_an_endless_line_is_cut_and_nothing_is_lost(tmp_path: Path) -> None:
    line = "".join(f"{number} " for number in range(100_000))
    path = tmp_path / "a.txt"
    path.write_text(f"before\n{line}\nafter", encoding="utf-8")
    documents = read(path)
    assert max(map(len, documents)) <= 2 * corpora.MAX_CHARACTERS
    assert "\n".join(documents).replace("\n", "") == f"before{line}after"


def test_a_jsonl_row_is_never_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(_jsonl(["x" * (3 * corpora.MAX_CHARACTERS), "y"]))
    assert [len(text) for text in read(path)] == [3 * corpora.MAX_CHARACTERS, 1]


def test_another_field_may_hold_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(_jsonl(TEXTS, "content"))
    assert read(path, text_field="content") == TEXTS


def test_several_compressed_streams_in_one_file_are_all_read(tmp_path: Path) -> None:
    halves = [_jsonl(TEXTS[:2]), _jsonl(TEXTS[2:])]
    (tmp_path / "a.jsonl.gz").write_bytes(b"".join(map(gzip.compress, halves)))
    (tmp_path / "a.jsonl.zst").write_bytes(b"".join(map(zstandard.compress, halves)))
    assert read(tmp_path / "a.jsonl.gz") == TEXTS
    assert read(tmp_path / "a.jsonl.zst") == TEXTS


# the split


def test_the_split_goes_by_the_content_of_a_document(tmp_path: Path) -> None:
    texts = tiny.texts(0, 400)
    forward = Corpus(path=str(tiny.write_text(tmp_path / "a.txt", texts)), validation_share=0.25)
    backward = Corpus(path=str(tiny.write_text(tmp_path / "b.txt", texts[::-1])), validation_share=0.25)
    splits = dict(corpora.documents(forward, tmp_path))
    assert dict(corpora.documents(backward, tmp_path)) == splits
    held_out = sum(split == "validation" for split in splits.values())
    assert 60 < held_out < 140  # 100 expected, standard deviation 8.7


def test_a_larger_share_holds_out_more_and_never_other_documents(tmp_path: Path) -> None:
    path = str(tiny.write_text(tmp_path / "a.txt", tiny.texts(0, 200)))

    def held_out(share: float) -> set[str]:
        pairs = corpora.documents(Corpus(path=path, validation_share=share), tmp_path)
        return {text for text, split in pairs if split == "validation"}

    assert held_out(0.0) == set()
    assert held_out(0.1) < held_out(0.3)


# identity


def _revision(path: Path, text_field: str = "text") -> str:
    return corpora.revision(Corpus(path=str(path), text_field=text_field), checksum)


def test_the_identity_is_of_the_content_not_of_the_place(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        tiny.write_text(tmp_path / name / "a.txt", TEXTS)
    assert _revision(tmp_path / "one") == _revision(tmp_path / "other")
    before = _revision(tmp_path / "one")
    assert _revision(tmp_path / "one", "content") != before
    tiny.write_text(tmp_path / "one" / "b.txt", ["more"])
    assert _revision(tmp_path / "one") != before


# bad input


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere'?: no such file or folder"):
        read(tmp_path / "nowhere")


def test_a_folder_without_a_known_format(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_text("text")
    with pytest.raises(UserError, match=r"no file ending in \.txt, \.jsonl, \.jsonl\.gz, \.jsonl\.zst, \.parquet"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["a.docx", "a.gz"])
def test_a_file_of_another_format(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text")
    with pytest.raises(UserError, match="no file ending in"):
        read(tmp_path / name)


@pytest.mark.parametrize("line", [1, 2, 5000])
def test_a_file_that_is_not_utf_8_is_named_with_its_line(tmp_path: Path, line: int) -> None:
    lines = [b"a line of text\n"] * 6000
    lines[line - 1] = "caf\u00e9 au lait\n".encode("latin-1")
    (tmp_path / "a.txt").write_bytes(b"".join(lines))
    with pytest.raises(UserError, match=rf"a\.txt:{line}: not UTF-8 \(byte 0xe9\)"):
        read(tmp_path / "a.txt")


@pytest.mark.parametrize("line", [1, 1500])
def test_a_jsonl_file_that_is_not_utf_8_is_named_with_its_line(tmp_path: Path, line: int) -> None:
    lines = _jsonl(["text"] * 2000).splitlines(keepends=True)
    lines[line - 1] = b'{"text": "caf\xe9"}\n'
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(UserError, match=rf"a\.jsonl:{line}: not UTF-8"):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "not compressed"])
def test_a_damaged_compressed_file_is_named(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    WRITERS[name](path, tiny.texts(0, 200))
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = bytes(255 - byte for byte in whole[middle : middle + 40])
    damaged = {
        "cut": whole[:middle],
        "flipped": whole[:middle] + flipped + whole[middle + 40 :],
        "not compressed": _jsonl(TEXTS),
    }
    path.write_bytes(damaged[damage])
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        read(path)


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(_jsonl(TEXTS) + b"{broken\n")
    with pytest.raises(UserError, match=r"a\.jsonl:5: not JSON"):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("row", "there"),
    [
        ('{"id": 1, "content": "x"}', "'id', 'content'"),
        ('{"text": null}', "'text'"),
        ('{"text": 3}', "'text'"),
        ('["text"]', "a list"),
        ("3", "a int"),
    ],
)
def test_a_line_without_the_text_field_is_named_with_what_it_has(tmp_path: Path, row: str, there: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(_jsonl(TEXTS) + row.encode() + b"\n")
    with pytest.raises(UserError) as caught:
        read(tmp_path / "a.jsonl")
    message = str(caught.value)
    assert "a.jsonl:5: no text in the field 'text'" in message
    assert there in message
    assert "pretrain.corpus.text_field" in message


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude42"])
def test_half_of_a_cut_emoji_is_named_with_its_line(tmp_path: Path, half: str) -> None:
    whole = b'{"text": "hi \\ud83d\\ude42", "note": "%s"}\n' % half.encode()
    (tmp_path / "a.jsonl").write_bytes(whole)
    assert read(tmp_path / "a.jsonl") == ["hi \N{SLIGHTLY SMILING FACE}"]
    (tmp_path / "a.jsonl").write_bytes(whole + b'{"text": "hi %s"}\n' % half.encode())
    with pytest.raises(UserError) as caught:
        read(tmp_path / "a.jsonl")
    assert f"a.jsonl:2: the field 'text' has half of a character, '{half}', after 3 others" in str(caught.value)


def test_a_parquet_file_without_the_column_is_named_with_those_it_has(tmp_path: Path) -> None:
    _write_parquet(tmp_path / "a.parquet", TEXTS)
    with pytest.raises(UserError, match=r"a\.parquet: no column 'content'; it has 'id', 'text'"):
        read(tmp_path / "a.parquet", text_field="content")
    with pytest.raises(UserError, match=r"column 'id' holds 0, which is not text"):
        read(tmp_path / "a.parquet", text_field="id")


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 but not really PAR1")
    with pytest.raises(UserError, match=r"a\.parquet: not a readable parquet file"):
        read(tmp_path / "a.parquet")


def test_an_arrow_file_without_the_column_is_named_with_those_it_has(tmp_path: Path) -> None:
    _write_arrow(tmp_path / "a.arrow", TEXTS)
    with pytest.raises(UserError, match=r"a\.arrow: no column 'content'; it has 'id', 'text'"):
        read(tmp_path / "a.arrow", text_field="content")
    with pytest.raises(UserError, match=r"a\.arrow: column 'id' holds 0, which is not text"):
        read(tmp_path / "a.arrow", text_field="id")


def test_a_file_that_is_not_arrow_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(b"ARROW1 but not really ARROW1")
    with pytest.raises(UserError, match=r"a\.arrow: not a readable Arrow file"):
        read(tmp_path / "a.arrow")


def test_a_saved_data_set_is_read_without_the_leftovers_beside_it(tmp_path: Path) -> None:
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, texts in zip(names, (TEXTS[:2], TEXTS[2:]), strict=True):
        _write_arrow(tmp_path / name, texts)
    _write_arrow(tmp_path / "cache-f00.arrow", ["of another making"])
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    assert read(tmp_path) == TEXTS


def test_what_datasets_saves_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="only the benchmark needs it")
    whole = datasets.Dataset.from_dict({"text": TEXTS * 5})
    whole.select(range(4, 12)).save_to_disk(str(tmp_path / "d"), num_shards=2)
    assert read(tmp_path / "d") == TEXTS * 2


# Mixtures


class _Holder(Config):
    corpus: Corpora = (Corpus(),)


def test_one_corpus_or_several_may_be_given() -> None:
    assert _Holder.read({"corpus": "a/"}).corpus == (Corpus(path="a/"),)
    assert _Holder.read({"corpus": {"path": "a/", "weight": 3}}).corpus == (Corpus(path="a/", weight=3),)
    mixed = _Holder.read({"corpus": ["a/", {"path": "b/", "weight": 2}]}).corpus
    assert mixed == (Corpus(path="a/"), Corpus(path="b/", weight=2))


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ([], "at least 1 item"),
        (["a/", "a/"], "corpus 'a/' is listed 2 times; list it once, with a weight"),
        ([{"path": "a/", "weight": 0}], "greater than or equal to 1"),
        ([{"pth": "a/"}], "did you mean 'path'"),
    ],
)
def test_a_mixture_that_makes_no_sense_is_refused(corpus: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _Holder.read({"corpus": corpus})
