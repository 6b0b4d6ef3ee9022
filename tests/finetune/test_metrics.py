"""Metrics equal the field's reference implementations."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
import seqeval.metrics
import sklearn.metrics

from antiphon.finetune import metrics

NAMES = ("O", "B-a", "I-a", "B-b", "I-b")


def test_accuracy_is_sklearns() -> None:
    draws = np.random.default_rng(0)
    one, other = draws.integers(0, 4, 100), draws.integers(0, 4, 100)
    assert metrics.accuracy(one, other) == pytest.approx(sklearn.metrics.accuracy_score(one, other))


@pytest.mark.parametrize("seed", range(8))
def test_span_f1_is_seqevals(seed: int) -> None:
    draws = np.random.default_rng(seed)
    lengths = draws.integers(1, 9, 40)
    sentences = np.concatenate([[0], np.cumsum(lengths)])
    gold = draws.integers(0, len(NAMES), sentences[-1])
    predicted = np.where(draws.random(len(gold)) < 0.7, gold, draws.integers(0, len(NAMES), len(gold)))

    def named(tags: np.ndarray) -> list[list[str]]:
        return [[NAMES[tag] for tag in part] for part in np.split(tags, sentences[1:-1])]

    found = metrics.span_f1(predicted, gold, sentences, NAMES)
    assert found == pytest.approx(seqeval.metrics.f1_score(named(gold), named(predicted)))
    assert 0.1 < found < 0.95


def test_span_f1_without_prefixes_is_sklearns_binary_f1() -> None:
    draws = np.random.default_rng(0)
    gold, predicted = draws.integers(0, 2, 200), draws.integers(0, 2, 200)
    found = metrics.span_f1(predicted, gold, np.array([0, 120, 200]), ("O", "CODE"))
    assert found == pytest.approx(sklearn.metrics.f1_score(gold, predicted))


@pytest.mark.parametrize(
    ("predicted", "expected"), [("OOO", 0.0), ("BIO", 1.0), ("BOO", 0.0), ("BIB", 2 / 3), ("IIO", 1.0)]
)
def test_span_f1_by_hand(predicted: str, expected: float) -> None:
    number = {"O": 0, "B": 1, "I": 2}
    tags = np.array([number[letter] for letter in predicted])
    assert metrics.span_f1(tags, np.array([1, 2, 0]), np.array([0, 3]), NAMES) == pytest.approx(expected)


def test_no_span_crosses_a_sentence() -> None:
    tags = np.array([1, 2, 2, 2])
    assert metrics.spans(tags, np.array([0, 2, 4]), NAMES) == {(0, 2, "a"), (2, 4, "a")}


def test_nothing_found_where_nothing_is_scores_zero() -> None:
    # As seqeval and sklearn have it (they also warn).
    assert metrics.span_f1(np.zeros(3, int), np.zeros(3, int), np.array([0, 3]), NAMES) == 0.0


@pytest.mark.parametrize(
    ("predicted", "gold", "exact", "f1"),
    [
        ("Paris", ["Paris"], 1, 1),
        ("The Paris.", ["paris"], 1, 1),
        ("a  cat", ["the cat"], 1, 1),
        ("Paris France", ["Paris"], 0, 2 / 3),
        ("in Paris", ["London", "Paris", "in Paris, France"], 0, 0.8),
        ("London", ["Paris"], 0, 0),
        ("", [], 1, 1),
        ("Paris", [], 0, 0),
        ("", ["Paris"], 0, 0),
        ("the", ["the"], 1, 1),
        ("cat cat", ["cat"], 0, 2 / 3),
        ("Müller", ["müller"], 1, 1),
        ("don't", ["dont"], 1, 1),
        # Only ASCII punctuation goes: a typographic dash or quote stays, as in the official script.
        ("1939–1945", ["19391945"], 0, 0),
        ("theatre", ["atre"], 0, 0),
        ("另一 个", ["另一"], 0, 2 / 3),
    ],
)
def test_squad_by_hand(predicted: str, gold: list[str], exact: float, f1: float) -> None:
    assert metrics.squad([predicted], [gold]) == pytest.approx((exact, f1))


def test_squad_averages_over_questions() -> None:
    assert metrics.squad(["a b", "c"], [["b"], ["d"]]) == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("documents", [5, 40])
def test_ndcg_is_trec_evals(seed: int, documents: int) -> None:
    draws = np.random.default_rng(seed)
    scores = draws.normal(size=(20, documents)).astype(np.float32)
    relevant = [
        {
            int(place): int(draws.integers(1, 4))
            for place in draws.choice(documents, draws.integers(1, 5), replace=False)
        }
        for _ in range(20)
    ]
    run = {f"q{i}": {f"d{j}": float(value) for j, value in enumerate(row)} for i, row in enumerate(scores)}
    wanted = {f"q{i}": {f"d{j}": grade for j, grade in those.items()} for i, those in enumerate(relevant)}
    expected = pytrec_eval.RelevanceEvaluator(wanted, {"ndcg_cut.10"}).evaluate(run)
    found = metrics.ndcg(scores, relevant)
    assert found == pytest.approx([expected[f"q{i}"]["ndcg_cut_10"] for i in range(20)])


def test_ndcg_by_hand() -> None:
    scores = np.array([[0.1, 0.9, 0.5], [0.1, 0.9, 0.5], [0.1, 0.9, 0.5]])
    assert metrics.ndcg(scores, [{1: 1}, {2: 1}, {}]) == pytest.approx([1, 1 / np.log2(3), 0])


def test_among_equal_scores_the_earlier_document_comes_first() -> None:
    assert metrics.ndcg(np.zeros((1, 30)), [{0: 1}]) == pytest.approx([1])
    assert metrics.ndcg(np.zeros((1, 30)), [{10: 1}]) == pytest.approx([0])
