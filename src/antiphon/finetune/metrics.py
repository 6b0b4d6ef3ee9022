"""Metrics, as fractions in [0, 1]. Each equals the field's reference implementation; the tests compare them."""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Mapping, Sequence

import numpy as np


def accuracy(predicted: np.ndarray, gold: np.ndarray) -> float:
    """The share of equal labels; both are (N,)."""
    return float((predicted == gold).mean())


def span_f1(predicted: np.ndarray, gold: np.ndarray, sentences: np.ndarray, names: Sequence[str]) -> float:
    """Micro-averaged F1 over spans that agree in border and type; 0 when there is nothing right.

    Args:
        predicted, gold: (W,) tags as indices into `names`.
        sentences: (N + 1,), where each sentence's words begin; no span crosses a sentence.
        names: "O", "B-x" and "I-x" in BIO; a name without such a prefix makes each of its words a span of its own, so
            that for the two tags "O" and "CODE" this is the binary F1 of the words.

    Source: conlleval's reading of BIO, as seqeval's default mode has it: an I- that continues nothing begins a span.
    """
    found, wanted = spans(predicted, sentences, names), spans(gold, sentences, names)
    right = len(found & wanted)
    return 2 * right / (len(found) + len(wanted)) if right else 0.0


def spans(tags: np.ndarray, sentences: np.ndarray, names: Sequence[str]) -> set[tuple[int, int, str]]:
    """The spans of a tag sequence, as (first word, word behind the last, type)."""
    split = [_prefix(name) for name in names]
    border = np.zeros(len(tags) + 1, dtype=bool)
    border[sentences] = True
    found = set()
    start, kind = -1, ""
    for place, tag in enumerate([*tags.tolist(), names.index("O")]):
        prefix, this = split[tag]
        begins = bool(this) and (prefix != "I" or this != kind or bool(border[place]))
        if kind and (begins or this != kind or border[place]):
            found.add((start, place, kind))
            kind = ""
        if begins:
            start, kind = place, this
    return found


def _prefix(name: str) -> tuple[str, str]:
    """(B, I or nothing, type); the type of "O" is empty."""
    if name == "O":
        return "", ""
    return (name[0], name[2:]) if name[:2] in ("B-", "I-") else ("", name)


def squad(predicted: Sequence[str], gold: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Exact match and F1 over words, each the best over a question's gold answers, averaged over questions.

    Args:
        predicted: the answers; "" for no answer.
        gold: for each question its answers; none for a question that has no answer.

    Source: the rules of the official SQuAD 2.0 evaluation script (Rajpurkar et al. 2018, arXiv 1806.03822).
    """
    exact, f1 = 0.0, 0.0
    for answer, answers in zip(predicted, gold, strict=True):
        words = normalise(answer)
        # An answer that is nothing but articles and punctuation cannot be matched and does not count.
        candidates = [those for those in map(normalise, answers) if those] or [[]]
        exact += max(float(words == those) for those in candidates)
        f1 += max(_overlap(words, those) for those in candidates)
    return exact / len(gold), f1 / len(gold)


def normalise(text: str) -> list[str]:
    """Words in lower case, without ASCII punctuation and English articles."""
    lowered = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", lowered).split()


def _overlap(one: Sequence[str], other: Sequence[str]) -> float:
    if not one or not other:
        return float(one == other)
    shared = sum((collections.Counter(one) & collections.Counter(other)).values())
    return 2 * shared / (len(one) + len(other))


def ndcg(scores: np.ndarray, relevant: Sequence[Mapping[int, int]], depth: int = 10) -> np.ndarray:
    """Normalised discounted cumulative gain of each query, with linear gains.

    Args:
        scores: (N, M), of each document for each query; among equal scores the earlier document comes first.
        relevant: for each query the relevant documents' places and grades.
        depth: how far down the ranking to look.

    Returns:
        (N,); 0 for a query without relevant documents.

    Source: trec_eval's ndcg_cut (Järvelin and Kekäläinen 2002, with the grade itself as gain).
    """
    top = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    discount = 1 / np.log2(np.arange(2, depth + 2))
    gains = np.zeros((len(relevant), min(depth, scores.shape[1])))
    ideal = np.zeros(len(relevant))
    for query, grades in enumerate(relevant):
        gains[query] = [grades.get(place, 0) for place in top[query].tolist()]
        best = sorted(grades.values(), reverse=True)[:depth]
        ideal[query] = (discount[: len(best)] * best).sum()
    found = (gains * discount[: scores.shape[1]]).sum(axis=1)
    return np.divide(found, ideal, out=np.zeros_like(found), where=ideal > 0)
