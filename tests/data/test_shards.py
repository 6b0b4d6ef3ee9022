"""Shards give back the tokens that were written, wherever a file ends."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from antiphon.config import UserError
from antiphon.data import shards
from antiphon.data.prepare import Prepared
from antiphon.data.shards import MANIFEST, Shards, Writer, batched
from antiphon.data.tokenizer import Encoder
from antiphon.files import checksum
from tests import tiny


def _stream(encoder: Encoder, documents: list[str]) -> np.ndarray:
    return np.concatenate([encoder.encode([text])[0] for text in documents if text.strip()])


@pytest.mark.parametrize("size", [1, 7, 1000, 2**27])
def test_the_stream_is_the_same_however_it_is_cut_into_files(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(shards, "TOKENS_A_SHARD", size)
    documents = tiny.texts(3, 4)
    expected = _stream(prepared.encoder, documents)
    found = tiny.shards(tmp_path / "s", prepared.encoder, documents)
    assert found.tokens == len(expected)
    assert len(found.manifest["shards"]) == -(-len(expected) // size)
    assert np.array_equal(found.read(0, found.tokens), expected)
    for start, stop in [(0, 1), (3, 3), (5, 19), (len(expected) - 1, len(expected))]:
        assert np.array_equal(found.read(start, stop), expected[start:stop])


def test_the_manifest_counts_what_was_written(tmp_path: Path, prepared: Prepared) -> None:
    documents = ["one two", "", "  \n\t ", "three", " four five  six "]
    found = tiny.shards(tmp_path / "s", prepared.encoder, documents)
    stream = _stream(prepared.encoder, documents)
    counts = {name: found.manifest[name] for name in ("documents", "empty_documents", "words", "tokens")}
    assert counts == {"documents": 3, "empty_documents": 2, "words": 6, "tokens": len(stream)}
    assert [int(end) for end in found.ends] == (np.flatnonzero(stream == prepared.encoder.eos) + 1).tolist()
    assert np.fromfile(tmp_path / "s" / "words.bin", np.uint32).tolist() == [2, 1, 3]
    assert found.manifest["checksums"] == {
        path.name: checksum(path) for path in (tmp_path / "s").iterdir() if path.name != MANIFEST
    }


def test_documents_may_be_added_in_any_groups(tmp_path: Path, prepared: Prepared) -> None:
    documents = tiny.texts(4, 20)
    whole = tiny.shards(tmp_path / "whole", prepared.encoder, documents)
    with Writer(tmp_path / "groups", prepared.encoder) as writer:
        for first, stop in [(0, 1), (1, 8), (8, 20)]:
            writer.add(documents[first:stop])
        writer.close({"tokenizer_hash": "tiny"})
    assert whole.manifest == Shards.open(tmp_path / "groups", "tiny").manifest


def test_a_large_vocabulary_takes_wider_numbers(tmp_path: Path, prepared: Prepared) -> None:
    encoder = Encoder(prepared.folder / "tokenizer")
    encoder.size = 2**16 + 1
    found = tiny.shards(tmp_path / "s", encoder, ["some text"])
    assert found.manifest["dtype"] == "uint32"
    assert prepared.shards["train"][0].manifest["dtype"] == "uint16"
    assert np.array_equal(found.read(0, found.tokens), _stream(encoder, ["some text"]))


def test_groups_are_bounded_in_number_and_in_characters() -> None:
    short = [("x", "train")] * 2500
    assert [len(group) for group in batched(iter(short))] == [1024, 1024, 452]
    long = [("x" * 3_000_000, "train")] * 3
    assert [len(group) for group in batched(iter(long))] == [2, 1]


def test_shards_made_with_another_tokenizer_are_refused(tmp_path: Path, prepared: Prepared) -> None:
    tiny.shards(tmp_path / "s", prepared.encoder, ["text"])
    with pytest.raises(UserError, match=r"made with another tokenizer \(hash tiny, this one has other\)"):
        Shards.open(tmp_path / "s", "other")


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path, prepared: Prepared) -> None:
    tiny.shards(tmp_path / "s", prepared.encoder, ["text"])
    (tmp_path / "s" / MANIFEST).unlink()
    with pytest.raises(UserError, match="not a complete folder of shards"):
        Shards.open(tmp_path / "s", "tiny")


@pytest.mark.parametrize("name", ["tokens-00000.bin", "ends.bin", "words.bin"])
def test_a_file_that_is_cut_is_refused(tmp_path: Path, prepared: Prepared, name: str) -> None:
    tiny.shards(tmp_path / "s", prepared.encoder, tiny.texts(0, 3))
    path = tmp_path / "s" / name
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(UserError, match=name):
        Shards.open(tmp_path / "s", "tiny")


def test_the_manifest_is_json_that_a_reader_can_read(prepared: Prepared) -> None:
    text = (prepared.folder / "train" / MANIFEST).read_text(encoding="utf-8")
    assert json.loads(text)["documents"] > 200
