"""Public data sets are read as their authors meant them."""

from __future__ import annotations

import json
import os
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from antiphon.config import UserError
from antiphon.finetune.catalog import CATALOG
from antiphon.finetune.checks import check
from antiphon.finetune.readers import polarity, scifact, squad, wnut
from antiphon.finetune.readers.source import lines, tenth
from antiphon.finetune.task import Search, Split, Text, Words

SHARED = Path(os.environ.get("ANTIPHON_SHARED", Path(__file__).parents[3] / "shared")) / "data" / "eval"
PUBLIC = [name for name, task in CATALOG.items() if task.sources]


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("name", PUBLIC)
def test_a_study_that_names_no_folder_is_told_how(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--set finetune\.data=FOLDER") as error:
        CATALOG[name].read(None, tmp_path)
    assert CATALOG[name].sources[0] in str(error.value)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--set finetune\.data=FOLDER") as error:
        CATALOG[name].read(tmp_path / "nowhere", tmp_path)
    assert str(tmp_path / "nowhere" / CATALOG[name].sources[0]) in str(error.value)


def polarity_file(folder: Path, members: Sequence[str] = polarity.MEMBERS) -> Path:
    path = folder / polarity.FILES[0]
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for label, name in enumerate(members):
            lines = [f"café number {i % 200} of {label} \n" for i in range(300)]
            archive.writestr(name, "".join(lines).encode("latin-1"))
    return path


def test_polarity_is_latin_1_and_keeps_equal_sentences_together(tmp_path: Path) -> None:
    polarity_file(tmp_path)
    data = polarity.read(tmp_path, tmp_path)
    assert sum(len(examples) for examples in data.examples.values()) == 600
    assert data.examples[Split.TRAIN][0].text.startswith("café number")
    homes = {split: {example.text for example in examples} for split, examples in data.examples.items()}
    assert not homes[Split.TRAIN] & (homes[Split.TEST] | homes[Split.VALIDATION])
    assert not homes[Split.VALIDATION] & homes[Split.TEST]
    assert all(f"of {example.label}" in example.text for examples in data.examples.values() for example in examples)


def test_an_archive_that_lacks_a_member_is_named_with_what_it_has(tmp_path: Path) -> None:
    polarity_file(tmp_path, (polarity.MEMBERS[0], "other.pos"))
    with pytest.raises(UserError, match=r"sentence_polarity\.zip: holds no .*rt-polarity\.pos, but .*other\.pos"):
        polarity.read(tmp_path, tmp_path)


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = polarity_file(tmp_path)
    whole = path.read_bytes()
    middle = len(whole) // 4
    flipped = bytes(255 - byte for byte in whole[middle : middle + 20])
    # The third asks for a compression there is not: bytes 10 and 11 of the first entry of the directory at the end.
    entry = whole.index(b"PK\x01\x02")
    method = whole[: entry + 10] + b"\x63" + whole[entry + 11 :]
    for damaged in (whole[: 3 * middle], whole[:middle] + flipped + whole[middle + 20 :], method, b""):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"sentence_polarity\.zip: not a readable zip archive"):
            polarity.read(tmp_path, tmp_path)


def test_lines_end_as_on_any_system_and_only_there(tmp_path: Path) -> None:
    assert lines(written(tmp_path / "a", "one\r\ntwo\x0b\u2028still two\n")) == ["one", "two\x0b\u2028still two", ""]


def test_a_tenth_is_about_a_tenth_and_never_changes() -> None:
    counts = Counter(tenth(str(number)) for number in range(10_000))
    assert set(counts) == set(range(10))
    assert all(850 < count < 1150 for count in counts.values())
    assert [tenth(name) for name in ("a", "b", "c")] == [tenth("a"), tenth("b"), tenth("c")]


def test_no_line_of_wnut_is_a_comment_and_a_tab_ends_a_sentence(tmp_path: Path) -> None:
    path = written(tmp_path / "a.conll", "#Paris\tB-location\nrocks\tO\n\t\n# \tO\n\nlast\tO")
    assert wnut.sentences(path) == [
        Words(("#Paris", "rocks"), ("B-location", "O")),
        Words(("#",), ("O",)),
        Words(("last",), ("O",)),
    ]


@pytest.mark.parametrize("line", ["word", "word\t", "\tO", "word O", "word\tO\tB-person", "word\tO\t"])
def test_a_line_of_wnut_without_word_or_tag_is_named(tmp_path: Path, line: str) -> None:
    path = written(tmp_path / "a.conll", f"one\tO\n{line}\n")
    with pytest.raises(UserError, match=r"a\.conll:2: expected a word, a tab and a tag"):
        wnut.sentences(path)


def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.conll", "one\tO\ncafé\tO\n", "latin-1")
    with pytest.raises(UserError, match=r"a\.conll:2: not UTF-8 \(byte 0xe9\)"):
        wnut.sentences(path)
    scifact_files(tmp_path)
    for name in scifact.FILES:
        path = tmp_path / name
        path.write_bytes(path.read_bytes().replace(b"\n", b"\n\xff", 1))
        with pytest.raises(UserError, match=rf"{name}:2: not UTF-8 \(byte 0xff\)"):
            scifact.read(tmp_path, tmp_path)
        scifact_files(tmp_path)


def test_squad_is_split_by_article(tmp_path: Path) -> None:
    def article(number: int) -> dict:
        asked = [
            {"id": f"{number}-{i}", "question": "who", "answers": [{"answer_start": 0, "text": "Ann"}]}
            for i in range(2)
        ]
        return {"title": str(number), "paragraphs": [{"context": "Ann did", "qas": asked}]}

    written(tmp_path / squad.FILES[0], json.dumps({"data": [article(number) for number in range(13)]}))
    data = squad.read(tmp_path, tmp_path)
    articles = {split: {one.id.split("-")[0] for one in examples} for split, examples in data.examples.items()}
    assert articles[Split.TRAIN] == {str(number) for number in range(9)}
    assert articles[Split.VALIDATION] == {"9", "10"}
    assert articles[Split.TEST] == {"11", "12"}
    assert data.examples[Split.TRAIN][0].answers == ((0, "Ann"),)


@pytest.mark.parametrize("text", ["{", "[]", '{"data": [{"title": "x"}]}', '{"data": []}'])
def test_a_file_that_is_not_squad_is_refused(tmp_path: Path, text: str) -> None:
    written(tmp_path / squad.FILES[0], text)
    with pytest.raises(UserError, match=r"train-v1\.1\.json: (not in the form|holds 0 articles)"):
        squad.read(tmp_path, tmp_path)


def scifact_files(folder: Path, train: str = "q0\td0\t1\n") -> None:
    corpus = [{"_id": "d0", "title": "Cells.", "text": "They divide."}, {"_id": "d1", "title": "", "text": "Alone"}]
    written(folder / scifact.FILES[0], "".join(json.dumps(row) + "\n" for row in corpus))
    queries = [{"_id": f"q{i}", "text": f"claim {i}"} for i in range(60)]
    written(folder / scifact.FILES[1], "".join(json.dumps(row) + "\n" for row in queries))
    header = "query-id\tcorpus-id\tscore\n"
    written(folder / scifact.FILES[2], header + train)
    written(folder / scifact.FILES[3], header + "q59\td1\t1\nq59\td0\t0\nq58\td0\t2\nq58\td1\t1\n")


def test_scifact_joins_titles_and_splits_queries(tmp_path: Path) -> None:
    scifact_files(tmp_path, "".join(f"q{i}\td0\t1\n" for i in range(58)))
    data = scifact.read(tmp_path, tmp_path)
    assert data.documents[Split.TEST] == {"d0": "Cells. They divide.", "d1": "Alone"}
    assert data.documents[Split.TRAIN] is data.documents[Split.TEST]
    assert data.examples[Split.TEST] == [
        Search("q59", "claim 59", {"d1": 1}),
        Search("q58", "claim 58", {"d0": 2, "d1": 1}),
    ]
    held = {search.id for search in data.examples[Split.VALIDATION]}
    kept = {search.id for search in data.examples[Split.TRAIN]}
    assert held
    assert held | kept == {f"q{i}" for i in range(58)}
    assert not held & kept


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("q0 d0 1\n", "expected query-id"),
        ("q0\td0\tx\n", "expected"),
        ("q0\td0\t1\t1\n", "expected"),
        ("z\td0\t1\n", "'z'"),
    ],
)
def test_a_wrong_line_of_scifact_is_named(tmp_path: Path, line: str, said: str) -> None:
    scifact_files(tmp_path, "q0\td0\t1\n" + line)
    with pytest.raises(UserError, match=rf"train\.tsv:3: .*{said}"):
        scifact.read(tmp_path, tmp_path)


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"_id": "x"}', '{"_id": 1, "title": "", "text": "x"}'])
@pytest.mark.parametrize("name", scifact.FILES[:2])
def test_a_line_of_scifact_that_is_no_record_is_named(tmp_path: Path, name: str, line: str) -> None:
    scifact_files(tmp_path)
    path = tmp_path / name
    number = path.read_text(encoding="utf-8").count("\n") + 2
    path.write_text(path.read_text(encoding="utf-8") + "\n" + line, encoding="utf-8")
    with pytest.raises(UserError, match=rf"{path.name}:{number}: (not JSON|no text in the field '(_id|text|title)')"):
        scifact.read(tmp_path, tmp_path)


SIZES = {
    "sentence-polarity": (8529, 1048, 1085),
    "wnut17": (3394, 1009, 1287),
    "squad": (2798, 488, 1084),
    "scifact": (724, 85, 300),
}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public data sets are not at hand; set ANTIPHON_SHARED")
@pytest.mark.parametrize("name", PUBLIC)
def test_the_real_files_are_read_and_sound(name: str, tmp_path: Path) -> None:
    data = CATALOG[name].read(SHARED, tmp_path)
    check(CATALOG[name], data)
    assert tuple(len(data.examples[split]) for split in Split) == SIZES[name]
    assert all(len(data.documents[split]) == 5183 for split in Split if data.documents)
    assert all(isinstance(example.label, int) for example in data.examples[Split.TEST] if isinstance(example, Text))
