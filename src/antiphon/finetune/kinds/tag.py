"""Tagging of words: a linear layer on the first token of each word, cross-entropy, F1 over spans."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch.nn import functional

from antiphon.finetune import metrics
from antiphon.finetune.face import Face, by_rows, shuffled
from antiphon.finetune.features import Rows, rows_of
from antiphon.finetune.network import Network
from antiphon.finetune.task import Dataset, Split, Words
from antiphon.model.loss import IGNORE, Loss


@dataclasses.dataclass(frozen=True, eq=False)
class Tagged:
    """Sentences as rows, with their words.

    Attributes:
        rows: the sentences.
        labels: (S,) int64, the tag of the word whose first token it is, or IGNORE.
        first: (W,) int64, where in `rows.tokens` each word begins; -1 if it was cut off.
        words: (N + 1,) int64, where each sentence's words begin.
        tags: (W,) int64.
        names: the tag set.
        num_truncated: sentences with a word that was cut off; such words are scored as "O".
    """

    rows: Rows
    labels: np.ndarray
    first: np.ndarray
    words: np.ndarray
    tags: np.ndarray
    names: tuple[str, ...]
    num_truncated: int

    @property
    def num_examples(self) -> int:
        return len(self.rows)


def features(dataset: Dataset, tokenizer: Tokenizer, length: int) -> Mapping[Split, Tagged]:
    """One row a sentence: its words with a space between them, so that tokens look as they did in pretraining."""
    return {split: _split(dataset.examples[split], dataset.labels, tokenizer, length) for split in Split}


def _split(examples: Sequence[Words], names: tuple[str, ...], tokenizer: Tokenizer, length: int) -> Tagged:
    tokenizer.enable_truncation(length)
    encodings = tokenizer.encode_batch([" ".join(example.words) for example in examples])
    tokenizer.no_truncation()
    rows = rows_of(encodings)
    counts = np.array([len(example.words) for example in examples], dtype=np.int64)
    found = [_first(example.words, encoding) for example, encoding in zip(examples, encodings, strict=True)]
    first = np.concatenate(found)
    first = np.where(first < 0, -1, first + np.repeat(rows.starts[:-1], counts))
    number = {name: index for index, name in enumerate(names)}
    tags = np.array([number[tag] for example in examples for tag in example.tags], dtype=np.int64)
    labels = np.full(len(rows.tokens), IGNORE, dtype=np.int64)
    shown = np.flatnonzero(first >= 0)[::-1]
    # Backwards, so that of words that share a token the first one names it.
    labels[first[shown]] = tags[shown]
    truncated = sum(int((word < 0).any()) for word in found)
    return Tagged(rows, labels, first, np.concatenate([[0], np.cumsum(counts)]), tags, names, truncated)


def _first(words: Sequence[str], encoding: Encoding) -> np.ndarray:
    """(words,) index of the token that holds each word's first character, or -1."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    starts = ends - [len(word) for word in words]
    text = np.flatnonzero(np.array(encoding.special_tokens_mask, dtype=np.int64) == 0)
    if not len(text):
        return np.full(len(words), -1)
    spans = np.array(encoding.offsets, dtype=np.int64)[text]
    place = np.searchsorted(spans[:, 1], starts, side="right")
    inside = np.minimum(place, len(text) - 1)
    # A word that the tokenizer drops altogether must not take the token of the next one.
    return np.where((place < len(text)) & (spans[inside, 0] < ends), text[inside], -1)


def count(features: Tagged, batch: np.ndarray) -> int:
    """Labelled tokens of some sentences."""
    return int((features.labels[features.rows.places(batch)] != IGNORE).sum())


def loss(network: Network, features: Tagged, batch: np.ndarray) -> Loss:
    """Cross-entropy, summed over the words that have a token."""
    hidden, _ = network.hidden(features.rows, batch)
    labels = features.labels[features.rows.places(batch)]
    asked = np.flatnonzero(labels != IGNORE)
    scores = network.head(hidden.index_select(0, torch.from_numpy(asked).to(hidden.device)))
    answers = torch.from_numpy(labels[asked]).to(hidden.device)
    return Loss(functional.cross_entropy(scores, answers, reduction="sum"), len(asked))


def predict(network: Network, features: Tagged) -> np.ndarray:
    """(W,) the tag of each word; "O" where the word was cut off."""
    by_token = np.zeros(len(features.rows.tokens), dtype=np.int64)
    for block in network.blocks(features.rows):
        hidden, _ = network.hidden(features.rows, block)
        by_token[features.rows.places(block)] = network.head(hidden).argmax(-1).cpu().numpy()
    return np.where(features.first < 0, features.names.index("O"), by_token[features.first])


def evaluate(network: Network, splits: Sequence[Tagged]) -> list[dict[str, float]]:
    """F1 over spans of each split; without B- and I-, each tagged word is a span of its own."""
    return [{"f1": metrics.span_f1(predict(network, one), one.tags, one.words, one.names)} for one in splits]


FACE = Face(
    features=features,
    outputs=lambda dataset: len(dataset.labels),
    order=shuffled,
    micro=by_rows,
    count=count,
    loss=loss,
    evaluate=evaluate,
    metrics=("f1",),
)
