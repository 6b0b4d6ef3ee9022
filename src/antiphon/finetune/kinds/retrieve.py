"""Retrieval: pooled vectors of queries and documents, in-batch negatives, NDCG over all documents of the split."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from antiphon.finetune import metrics
from antiphon.finetune.face import Face, whole
from antiphon.finetune.features import Rows, encode, unite
from antiphon.finetune.network import Network
from antiphon.finetune.task import Dataset, Split
from antiphon.model.loss import Loss, infonce

QUERIES_AT_ONCE = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Searched:
    """Queries and the documents they search.

    Attributes:
        rows: the queries, (N,).
        documents: (M,), the same object for splits that search the same documents.
        relevant: for each query the places of its relevant documents and how relevant they are.
        pairs: (P, 2) int64, (query, document) for each relevant document: what training sees.
        num_truncated: queries that were cut, or one of whose relevant documents was.
    """

    rows: Rows
    documents: Rows
    relevant: Sequence[Mapping[int, int]]
    pairs: np.ndarray
    num_truncated: int

    @property
    def num_examples(self) -> int:
        return len(self.rows)


def features(dataset: Dataset, tokenizer: Tokenizer, length: int) -> Mapping[Split, Searched]:
    """Queries and documents as rows of their own; documents shared by splits are encoded once."""
    known: dict[int, tuple[Rows, np.ndarray]] = {}
    found = {}
    for split in Split:
        texts = dataset.documents[split]
        if id(texts) not in known:
            known[id(texts)] = encode(tokenizer, list(texts.values()), length)
        documents, cut_documents = known[id(texts)]
        examples = dataset.examples[split]
        rows, cut = encode(tokenizer, [example.query for example in examples], length)
        place = {name: index for index, name in enumerate(texts)}
        relevant = [
            {place[name]: grade for name, grade in example.relevant.items() if grade > 0} for example in examples
        ]
        pairs = np.array([(query, document) for query, those in enumerate(relevant) for document in those])
        truncated = sum(
            bool(was_cut) or any(cut_documents[document] for document in those)
            for was_cut, those in zip(cut, relevant, strict=True)
        )
        found[split] = Searched(rows, documents, relevant, pairs, truncated)
    return found


def order(features: Searched, size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Every pair once, in random order, such that no document of a batch is relevant to another pair's query.

    In-batch negatives must be wrong answers. A pair that would break this waits for a later batch.
    """
    waiting = generator.permutation(len(features.pairs)).tolist()
    batches = []
    while waiting:
        batch: list[int] = []
        later: list[int] = []
        shown: set[int] = set()
        answers: set[int] = set()
        for place, pair in enumerate(waiting):
            query, document = features.pairs[pair].tolist()
            theirs = features.relevant[query]
            if document in answers or not shown.isdisjoint(theirs):
                later.append(pair)
                continue
            batch.append(pair)
            shown.add(document)
            answers.update(theirs)
            if len(batch) == size:
                later += waiting[place + 1 :]
                break
        batches.append(np.array(batch))
        waiting = later
    return batches


def loss(network: Network, features: Searched, batch: np.ndarray) -> Loss:
    """InfoNCE, summed over the queries."""
    # One pass for both sides: half the calls, and short queries fill the lines of long documents.
    queries, documents = features.pairs[batch].T
    both = unite([features.rows.take(queries), features.documents.take(documents)])
    vectors = network.vectors(both, np.arange(len(both)))
    return infonce(vectors[: len(batch)], vectors[len(batch) :], network.temperature)


def embed(network: Network, rows: Rows) -> Tensor:
    """(N, D) float32 vectors of length 1."""
    found: Tensor | None = None
    for block in network.blocks(rows):
        vectors = functional.normalize(network.vectors(rows, block), dim=-1)
        if found is None:
            found = vectors.new_empty(len(rows), vectors.shape[1])
        found[torch.from_numpy(block).to(vectors.device)] = vectors
    assert found is not None, "a split without examples is refused when the task is read"
    return found


def evaluate(network: Network, splits: Sequence[Searched]) -> list[dict[str, float]]:
    """NDCG@10 of each split, over all of its documents; documents shared by splits are encoded once."""
    known: dict[int, Tensor] = {}
    found = []
    for split in splits:
        if id(split.documents) not in known:
            known[id(split.documents)] = embed(network, split.documents)
        documents = known[id(split.documents)]
        queries = embed(network, split.rows)
        gains = [
            metrics.ndcg(
                (queries[start : start + QUERIES_AT_ONCE] @ documents.T).cpu().numpy(),
                split.relevant[start : start + QUERIES_AT_ONCE],
            )
            for start in range(0, len(queries), QUERIES_AT_ONCE)
        ]
        found.append({"ndcg@10": float(np.concatenate(gains).mean())})
    return found


FACE = Face(
    features=features,
    outputs=lambda dataset: 0,
    order=order,
    micro=whole,
    count=lambda features, batch: len(batch),
    loss=loss,
    evaluate=evaluate,
    metrics=("ndcg@10",),
)
