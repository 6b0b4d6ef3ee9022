"""Classification of a text or a pair of texts: pooled vector, linear head, cross-entropy, accuracy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional

from antiphon.finetune import metrics
from antiphon.finetune.face import Face, by_rows, shuffled
from antiphon.finetune.features import Rows, encode
from antiphon.finetune.network import Network
from antiphon.finetune.task import Dataset, Split
from antiphon.model.loss import Loss


@dataclasses.dataclass(frozen=True, eq=False)
class Labelled:
    """Texts as rows with labels: (N,) int64 in 0 .. C-1."""

    rows: Rows
    labels: np.ndarray
    num_truncated: int

    @property
    def num_examples(self) -> int:
        return len(self.rows)


def features(dataset: Dataset, tokenizer: Tokenizer, length: int) -> Mapping[Split, Labelled]:
    """One row an example: the text, or both texts of a pair as the tokenizer joins them."""
    return {split: _split(dataset, split, tokenizer, length) for split in Split}


def _split(dataset: Dataset, split: Split, tokenizer: Tokenizer, length: int) -> Labelled:
    examples = dataset.examples[split]
    if any(example.pair is not None for example in examples):
        rows, cut = encode(tokenizer, [(example.text, example.pair or "") for example in examples], length)
    else:
        rows, cut = encode(tokenizer, [example.text for example in examples], length)
    return Labelled(rows, np.array([example.label for example in examples], dtype=np.int64), int(cut.sum()))


def loss(network: Network, features: Labelled, batch: np.ndarray) -> Loss:
    """Cross-entropy, summed over the examples."""
    scores = network.head(network.vectors(features.rows, batch))
    answers = torch.from_numpy(features.labels[batch]).to(scores.device)
    return Loss(functional.cross_entropy(scores, answers, reduction="sum"), len(batch))


def predict(network: Network, features: Labelled) -> np.ndarray:
    """(N,) the most probable class of each example."""
    predicted = np.zeros(len(features.rows), dtype=np.int64)
    for block in network.blocks(features.rows):
        predicted[block] = network.head(network.vectors(features.rows, block)).argmax(-1).cpu().numpy()
    return predicted


def evaluate(network: Network, splits: Sequence[Labelled]) -> list[dict[str, float]]:
    """Accuracy of each split."""
    return [{"accuracy": metrics.accuracy(predict(network, split), split.labels)} for split in splits]


FACE = Face(
    features=features,
    outputs=lambda dataset: len(dataset.labels),
    order=shuffled,
    micro=by_rows,
    count=lambda features, batch: len(batch),
    loss=loss,
    evaluate=evaluate,
    metrics=("accuracy",),
)
