"""Tiny fixtures shared by all tests of the pretraining core; made once a session, in temporary folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.data.prepare import Prepared, prepare
from antiphon.data.tokenizer import Tokenizer
from tests import tiny


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .txt file of 300 documents."""
    return tiny.write_text(tmp_path_factory.mktemp("text") / "tiny.txt", tiny.texts(0, 300))


@pytest.fixture(scope="session")
def prepared(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The tiny text as shards, with a tokenizer trained on it."""
    space = tmp_path_factory.mktemp("prepared")
    folder = space / tiny.CORPUS
    prepare((tiny.corpus(tiny_text),), Tokenizer(vocabulary=320), folder, space, 1, lambda facts: None)
    return Prepared.open(folder)


@pytest.fixture(scope="session")
def tokenizer_folder(prepared: Prepared) -> Path:
    """A folder with a tokenizer in Hugging Face form."""
    return prepared.folder / "tokenizer"
