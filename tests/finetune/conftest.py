"""A tiny checkpoint, and networks made of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from antiphon.data import tokenizer as tokenizers
from antiphon.finetune.config import Finetune
from antiphon.finetune.features import open_tokenizer
from antiphon.finetune.network import Network, Place
from antiphon.model import build
from antiphon.model.presets import Model
from tests.finetune.toys import sentence


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny network and its tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint")
    draws = random.Random(0)
    texts = [sentence(draws) for _ in range(200)]
    tokenizers.train(tokenizers.Tokenizer(vocabulary=340), texts, folder)
    shape = Model(layers=2, width=32, heads=2, ffn=64, positions=96)
    build.save(build.build(shape, 340, 0), folder)
    return folder


@pytest.fixture(scope="session")
def base(checkpoint: Path) -> build.LanguageModel:
    """The network of the checkpoint."""
    return build.load(checkpoint)


@pytest.fixture
def tokenizer(checkpoint: Path) -> Tokenizer:
    """The tokenizer of the checkpoint."""
    return open_tokenizer((checkpoint / "tokenizer.json").read_text(encoding="utf-8"))


@pytest.fixture
def network(base: build.LanguageModel) -> Callable[..., Network]:
    """Makes a network that asks for no gradients: network(outputs, attention=..., pooling=..., place=...)."""

    def make(
        outputs: int = 2,
        attention: str = "bidirectional",
        pooling: str = "mean",
        place: Place | None = None,
        longest: int = 96,
    ) -> Network:
        config = Finetune.read(
            {"task": "x", "learning_rate": 1e-3, "seed": 0, "attention": attention, "pooling": pooling}
        )
        place = place or Place(torch.device("cpu"), torch.float32)
        return Network(base, outputs, 0, config, place, longest).eval().requires_grad_(False)

    return make
