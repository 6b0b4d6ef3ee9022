"""A prepared corpus is whole or not there at all, and making one takes little memory."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models, pre_tokenizers

from antiphon.config import UserError
from antiphon.data import corpus as corpus_texts
from antiphon.data import prepare as preparation
from antiphon.data import shards as shard_files
from antiphon.data.corpus import Corpus
from antiphon.data.prepare import Checksums, Prepared
from antiphon.data.tokenizer import Tokenizer
from antiphon.files import checksum
from tests import tiny


def _prepare(corpus: Corpus, folder: Path, tokenizer: Tokenizer | None = None) -> None:
    preparation.prepare((corpus,), tokenizer or Tokenizer(vocabulary=300), folder, folder.parent, 1, lambda facts: None)


def _identity(corpus: Corpus, workspace: Path, tokenizer: Tokenizer | None = None) -> str:
    return preparation.identity((corpus,), tokenizer or Tokenizer(vocabulary=300), workspace)


def test_both_splits_hold_what_was_written(prepared: Prepared) -> None:
    expected: dict[str, list[str]] = {"train": [], "validation": []}
    path = prepared.folder.parent / "same.txt"
    tiny.write_text(path, tiny.texts(0, 300))
    from antiphon.data import corpus as corpora

    for text, split in corpora.documents(tiny.corpus(path), path.parent):
        expected[split].append(text)
    for split, texts in expected.items():
        stream = np.concatenate(prepared.encoder.encode(texts))
        (shards,) = prepared.shards[split]
        assert np.array_equal(shards.read(0, shards.tokens), stream)
        facts = preparation.facts(prepared.folder)[split]
        words = sum(len(text.split()) for text in texts)
        assert facts == {"documents": len(texts), "empty": 0, "tokens": len(stream), "words": words}


def test_preparing_is_reproducible_to_the_byte(tiny_text: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        _prepare(tiny.corpus(tiny_text), tmp_path / name)
    assert subprocess.run(["diff", "-r", tmp_path / "one", tmp_path / "other"], check=False).returncode == 0


def test_any_number_of_processes_makes_the_same_bytes(
    tiny_text: Path, tokenizer_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_files, "DOCUMENTS_AT_ONCE", 16)
    brought = Tokenizer(path=str(tokenizer_folder))
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        preparation.prepare((tiny.corpus(tiny_text),), brought, folder, tmp_path, workers, lambda facts: None)
    assert subprocess.run(["diff", "-r", tmp_path / "1", tmp_path / "2"], check=False).returncode == 0


def test_an_error_in_reading_ends_the_other_processes_too(
    tmp_path: Path, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_files, "DOCUMENTS_AT_ONCE", 4)
    (tmp_path / "text").mkdir()
    corpus = _not_utf_8(tmp_path / "text")
    brought = Tokenizer(path=str(tokenizer_folder))
    with pytest.raises(UserError, match=r"b\.txt:3: not UTF-8"):
        preparation.prepare((corpus,), brought, tmp_path / "s" / "c", tmp_path, 2, lambda facts: None)
    assert os.listdir(tmp_path / "s") == []


def test_what_is_there_is_not_made_again(tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _prepare(tiny.corpus(tiny_text), tmp_path / "c")
    monkeypatch.delattr(preparation, "new_directory")
    _prepare(tiny.corpus(tiny_text), tmp_path / "c")


def test_a_tokenizer_that_is_brought_is_copied(tiny_text: Path, tokenizer_folder: Path, tmp_path: Path) -> None:
    _prepare(tiny.corpus(tiny_text), tmp_path / "c", Tokenizer(path=str(tokenizer_folder)))
    found = Prepared.open(tmp_path / "c")
    for path in found.tokenizer_files:
        assert path.read_bytes() == (tokenizer_folder / path.name).read_bytes()


def test_nothing_may_be_held_out(tiny_text: Path, tmp_path: Path) -> None:
    _prepare(tiny.corpus(tiny_text, validation_share=0.0), tmp_path / "c")
    assert Prepared.open(tmp_path / "c").shards["validation"][0].tokens == 0


# Identity


def test_the_identity_changes_with_whatever_changes_the_shards(
    tiny_text: Path, tokenizer_folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "elsewhere" / tiny_text.name
    copy.parent.mkdir()
    shutil.copy(tiny_text, copy)
    same = _identity(tiny.corpus(tiny_text), tmp_path)
    assert _identity(tiny.corpus(copy), tmp_path) == same
    others = [
        _identity(tiny.corpus(tiny_text, validation_share=0.2), tmp_path),
        _identity(tiny.corpus(tiny_text), tmp_path, Tokenizer(vocabulary=301)),
        _identity(tiny.corpus(tiny_text), tmp_path, Tokenizer(path=str(tokenizer_folder))),
    ]
    copy.write_text(copy.read_text() + "\n\nOne more.")
    others.append(_identity(tiny.corpus(copy), tmp_path))
    assert len({same, *others}) == 5


def test_the_identity_of_a_brought_tokenizer_is_its_content(
    tiny_text: Path, tokenizer_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(tokenizer_folder, tmp_path / "t")
    brought = Tokenizer(path=str(tmp_path / "t"))
    same = _identity(tiny.corpus(tiny_text), tmp_path, brought)
    assert same == _identity(tiny.corpus(tiny_text), tmp_path, Tokenizer(path=str(tokenizer_folder)))
    settings = json.loads((tmp_path / "t" / "tokenizer_config.json").read_text())
    (tmp_path / "t" / "tokenizer_config.json").write_text(json.dumps(settings | {"mask_token": "[PAD]"}))
    assert _identity(tiny.corpus(tiny_text), tmp_path, brought) != same


def test_checksums_are_remembered_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    first = Checksums(tmp_path / "memory.json")
    assert first(path) == checksum(path)
    first.save()
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "checksum", lambda path: pytest.fail("hashed again"))
        assert Checksums(tmp_path / "memory.json")(path) == checksum(path)
    path.write_text("other")
    assert Checksums(tmp_path / "memory.json")(path) == checksum(path)


def test_a_corpus_that_is_all_held_out_is_refused(tmp_path: Path) -> None:
    # The one document of this text falls to the validation split; with another share it would not.
    corpus = Corpus(path=str(tiny.write_text(tmp_path / "a.txt", ["document 11"])), validation_share=0.4)
    with pytest.raises(UserError, match=r"all of its documents \(1\) fell to the validation split"):
        _prepare(corpus, tmp_path / "space" / "c")
    assert os.listdir(tmp_path / "space") == []


# Several corpora


def test_each_of_several_corpora_has_shards_of_its_own_by_one_tokenizer(tmp_path: Path) -> None:
    documents = {"a": tiny.texts(0, 60), "b": tiny.texts(1, 90)}
    paths = [tiny.write_text(tmp_path / f"{name}.txt", texts) for name, texts in documents.items()]
    corpora = [tiny.corpus(path) for path in paths]
    preparation.prepare(corpora, Tokenizer(vocabulary=300), tmp_path / "c", tmp_path, 1, lambda facts: None)
    found = Prepared.open(tmp_path / "c")
    held = preparation.facts(tmp_path / "c")
    for split in preparation.SPLITS:
        for shards, corpus in zip(found.shards[split], corpora, strict=True):
            texts = [text for text, its in corpus_texts.documents(corpus, tmp_path) if its == split]
            expected = np.concatenate(found.encoder.encode(texts))
            assert np.array_equal(shards.read(0, shards.tokens), expected)
        for key in ("documents", "tokens", "words"):
            assert held[split][key] == sum(shards.manifest[key] for shards in found.shards[split])


def test_weights_and_places_do_not_change_what_is_prepared(tmp_path: Path) -> None:
    paths = [tiny.write_text(tmp_path / f"{name}.txt", tiny.texts(number, 30)) for number, name in enumerate("ab")]

    def identity(weights: list[int], order: list[int]) -> str:
        corpora = [Corpus(path=str(paths[index]), weight=weights[index]) for index in order]
        return preparation.identity(corpora, Tokenizer(vocabulary=300), tmp_path)

    assert identity([1, 1], [0, 1]) == identity([3, 2], [0, 1])
    assert identity([1, 1], [0]) == identity([4, 1], [0])
    assert len({identity([1, 1], order) for order in ([0], [1], [0, 1], [1, 0])}) == 4


def test_a_tokenizer_reads_as_much_of_each_corpus() -> None:
    streams = [["a" * 10] * 100, ["b" * 35] * 100, ["c" * 10] * 3]
    texts = "".join(islice(preparation._even([iter(stream) for stream in streams]), 100))
    assert texts.count("c") == 30
    assert abs(texts.count("a") - texts.count("b")) <= 35


# Bad input: a clear error, and nothing half-written


def _blank(folder: Path) -> Corpus:
    (folder / "a.txt").write_text(" \n\n\t\n   \n")
    return tiny.corpus(folder)


def _empty(folder: Path) -> Corpus:
    (folder / "a.txt").write_text("")
    return tiny.corpus(folder)


def _blank_rows(folder: Path) -> Corpus:
    (folder / "a.jsonl").write_text('{"text": ""}\n{"text": "  "}\n')
    return tiny.corpus(folder)


def _not_utf_8(folder: Path) -> Corpus:
    tiny.write_text(folder / "a.txt", tiny.texts(0, 50))
    (folder / "b.txt").write_bytes(b"fine\n\ncaf\xe9\n")
    return tiny.corpus(folder)


def _damaged(folder: Path) -> Corpus:
    tiny.write_text(folder / "a.txt", tiny.texts(0, 50))
    rows = "".join(json.dumps({"text": text}) + "\n" for text in tiny.texts(1, 50))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(rows.encode())[:-200])
    return tiny.corpus(folder)


def _no_field(folder: Path) -> Corpus:
    tiny.write_text(folder / "a.txt", tiny.texts(0, 50))
    (folder / "b.jsonl").write_text('{"text": "x"}\n{"content": "x"}\n')
    return tiny.corpus(folder)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_empty, "no text in it"),
        (_blank, "no text in it"),
        (_blank_rows, "no text in it"),
        (_not_utf_8, r"b\.txt:3: not UTF-8"),
        (_damaged, r"b\.jsonl\.gz: near line \d+: the file is damaged"),
        (_no_field, r"b\.jsonl:2: no text in the field 'text'; this line has 'content'"),
    ],
)
@pytest.mark.parametrize("brought", [False, True])
def test_bad_text_leaves_nothing_behind(
    tmp_path: Path, tokenizer_folder: Path, make: Callable[[Path], Corpus], message: str, brought: bool
) -> None:
    (tmp_path / "text").mkdir()
    corpus = make(tmp_path / "text")
    space = tmp_path / "space"
    space.mkdir()
    tokenizer = Tokenizer(path=str(tokenizer_folder)) if brought else None
    with pytest.raises(UserError, match=message):
        _prepare(corpus, space / "c", tokenizer)
    assert os.listdir(space) == []


def test_a_tokenizer_without_a_mask_token_leaves_nothing_behind(
    tiny_text: Path, tokenizer_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(tokenizer_folder, tmp_path / "t")
    settings = json.loads((tmp_path / "t" / "tokenizer_config.json").read_text())
    del settings["mask_token"]
    (tmp_path / "t" / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "space").mkdir()
    with pytest.raises(UserError, match="the tokenizer has no mask token"):
        _prepare(tiny.corpus(tiny_text), tmp_path / "space" / "c", Tokenizer(path=str(tmp_path / "t")))
    assert os.listdir(tmp_path / "space") == []


def test_shards_made_with_another_tokenizer_are_refused(tiny_text: Path, tmp_path: Path) -> None:
    _prepare(tiny.corpus(tiny_text), tmp_path / "one", Tokenizer(vocabulary=300))
    _prepare(tiny.corpus(tiny_text), tmp_path / "other", Tokenizer(vocabulary=310))
    shutil.rmtree(tmp_path / "one" / "tokenizer")
    shutil.copytree(tmp_path / "other" / "tokenizer", tmp_path / "one" / "tokenizer")
    with pytest.raises(UserError, match="made with another tokenizer"):
        Prepared.open(tmp_path / "one")


@pytest.mark.parametrize("size", [100, 3_000, 20_000])
def test_a_full_disk_leaves_nothing_behind(tiny_text: Path, tmp_path: Path, size: int) -> None:
    # Files beyond the limit fail as on a full disk: first the tokenizer, then the manifest or the tokens.
    (tmp_path / "space").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(UserError, match="could not be written"):
            _prepare(tiny.corpus(tiny_text), tmp_path / "space" / "c")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path / "space") == []


def test_an_interrupt_leaves_nothing_behind(tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(preparation.Writer, "close", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _prepare(tiny.corpus(tiny_text), tmp_path / "space" / "c")
    assert os.listdir(tmp_path / "space") == []


# Memory


def _word_tokenizer(folder: Path) -> Path:
    """A tokenizer that knows hardly a word, and is fast for it."""
    folder.mkdir()
    fast = FastTokenizer(models.WordLevel({"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3}, unk_token="[MASK]"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    fast.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


def _peak(text: Path, tokenizer: Path, folder: Path) -> int:
    """Bytes of memory that a process had in use at the most while it prepared a text."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from antiphon.data.corpus import Corpus\n"
        "from antiphon.data.prepare import prepare\n"
        "from antiphon.data.tokenizer import Tokenizer\n"
        "text, tokenizer, folder = sys.argv[1:]\n"
        "folder = Path(folder)\n"
        "prepare([Corpus(path=text)], Tokenizer(path=tokenizer), folder, folder.parent, 1, lambda facts: None)\n"
        # Not getrusage: its maximum is handed down from the process that started this one.
        "lines = Path('/proc/self/status').read_text().splitlines()\n"
        "print(next(line.split()[1] for line in lines if line.startswith('VmHWM')))\n"
    )
    command = [sys.executable, "-c", code, str(text), str(tokenizer), str(folder)]
    return 1024 * int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the peak of memory is read from /proc")
def test_preparing_streams(tmp_path: Path) -> None:
    tokenizer = _word_tokenizer(tmp_path / "t")
    documents = tiny.texts(5, 3000)
    sizes, peaks = [], []
    for name, times in [("small.txt", 12), ("large.txt", 60)]:
        path = tmp_path / name
        with open(path, "w", encoding="utf-8") as stream:
            for _ in range(times):
                stream.write("\n\n".join(documents) + "\n\n")
        sizes.append(path.stat().st_size)
        peaks.append(_peak(path, tokenizer, tmp_path / f"{name}.shards"))
    assert sizes[1] - sizes[0] > 20_000_000
    # 23 MB more text: were it, or its tokens, held anywhere, the peak would be higher by as much.
    assert peaks[1] - peaks[0] < 0.2 * (sizes[1] - sizes[0])
