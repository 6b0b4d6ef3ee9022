"""What each kind makes of its examples, and of a network's answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from antiphon.draws import generator
from antiphon.finetune.features import Rows
from antiphon.finetune.kinds import FACES, classify, extract, retrieve, tag
from antiphon.finetune.network import Network, Place
from antiphon.finetune.task import Dataset, Kind, Question, Search, Split, Text, Words
from antiphon.model.loss import IGNORE
from tests.finetune.toys import dataset

CPU = torch.device("cpu")


def tagged(tokenizer: Tokenizer, sentences: list[Words], length: int = 64) -> tag.Tagged:
    data = Dataset(dict.fromkeys(Split, sentences), ("O", "X"))
    return tag.features(data, tokenizer, length)[Split.TRAIN]


def asked(tokenizer: Tokenizer, questions: list[Question], length: int = 64) -> extract.Windows:
    return extract.features(Dataset(dict.fromkeys(Split, questions)), tokenizer, length)[Split.TRAIN]


def test_pairs_are_encoded_as_pairs(tokenizer: Tokenizer) -> None:
    data = Dataset(dict.fromkeys(Split, (Text("the model", 0, "a file"), Text("one list", 1, "an array"))), ("a", "b"))
    made = classify.features(data, tokenizer, 64)[Split.TRAIN]
    assert made.rows.tokens[: made.rows.starts[1]].tolist() == tokenizer.encode("the model", "a file").ids
    assert made.labels.tolist() == [0, 1]


def test_a_word_is_labelled_on_its_first_token(tokenizer: Tokenizer) -> None:
    words = ("the", "#zzqx", "model", "é")
    made = tagged(tokenizer, [Words(words, ("O", "X", "O", "X"))])
    encoding = tokenizer.encode(" ".join(words))
    starts = [
        next(token for token, (start, end) in enumerate(encoding.offsets) if start <= character < end)
        for character in (0, 4, 10, 16)
    ]
    assert starts[2] - starts[1] > 2, "the second word should be of several tokens"
    assert made.first.tolist() == starts
    expected = np.full(len(made.rows.tokens), IGNORE)
    expected[starts] = [0, 1, 0, 1]
    assert made.labels.tolist() == expected.tolist()
    assert tag.count(made, np.array([0])) == 4


def test_words_that_are_cut_off_are_counted_and_scored_as_outside(
    tokenizer: Tokenizer, network: Callable[..., Network]
) -> None:
    long = Words(("the",) * 10, ("X",) * 10)
    made = tagged(tokenizer, [long, Words(("the",), ("X",))], length=8)
    assert made.num_truncated == 1
    assert (made.first < 0).tolist() == [False] * 6 + [True] * 4 + [False]
    net = network(2)
    net.head.load_state_dict({"weight": torch.zeros(2, 32), "bias": torch.tensor([-100.0, 100.0])})
    assert tag.predict(net, made).tolist() == [1] * 6 + [0] * 4 + [1]
    (scores,) = tag.evaluate(net, [made])
    assert scores["f1"] == pytest.approx(2 * 7 / (7 + 11))


def test_every_answer_can_be_read_back_from_its_tokens(tokenizer: Tokenizer) -> None:
    made = asked(tokenizer, list(dataset(Kind.EXTRACT, 40).examples[Split.TRAIN]), length=24)
    assert len(made.rows) > 40, "the contexts should not all fit into one window"
    whole = set()
    for window, (first, last) in enumerate(made.spans.tolist()):
        question = made.questions[made.example[window]]
        start = made.rows.starts[window]
        if (first, last) != (0, 0):
            whole.add(question.id)
            span = slice(made.offsets[start + first, 0], made.offsets[start + last, 1])
            assert question.context[span].strip() == question.answers[0][1]
            assert made.context[start + first : start + last + 1].all()
    assert len(whole) == 40


def test_windows_cover_the_whole_context_and_share_the_question(tokenizer: Tokenizer) -> None:
    context = " ".join(["model", "array", "numbers", "list"] * 20)
    made = asked(tokenizer, [Question("1", "which one", context, ((0, "model"),))], length=40)
    assert made.num_truncated == 0
    covered = np.zeros(len(context), bool)
    for window in range(len(made.rows)):
        part = slice(made.rows.starts[window], made.rows.starts[window + 1])
        assert made.rows.lengths[window] <= 40
        for start, end in made.offsets[part][made.context[part]]:
            covered[start:end] = True
    assert covered.all()
    assert sorted(map(tuple, made.spans.tolist()))[:-1] == [(0, 0)] * (len(made.rows) - 1)


def test_a_question_too_long_for_the_row_is_cut_and_counted(tokenizer: Tokenizer) -> None:
    questions = [Question("1", "which " * 60, "the model", ((4, "model"),)), Question("2", "which", "the model", ())]
    made = asked(tokenizer, questions, length=32)
    assert made.num_truncated == 1
    assert made.rows.lengths.max() <= 32
    assert made.spans[0].tolist() != [0, 0]


def test_the_best_span_is_the_best_of_all() -> None:
    draws = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 50, 2, generator=draws)
    allowed = torch.zeros(6, 50, dtype=torch.bool)
    for row in range(6):
        allowed[row, 5 + row : 50 - 3 * row] = True
    value, start, end = extract.best_spans(scores, allowed)
    for row in range(6):
        every = [
            (float(scores[row, s, 0] + scores[row, e, 1]), s, e)
            for s in range(50) for e in range(s, min(50, s + extract.LONGEST_ANSWER))
            if allowed[row, s] and allowed[row, e]
        ]  # fmt: skip
        best = max(every)
        assert (start[row].item(), end[row].item()) == best[1:]
        assert value[row].item() == pytest.approx(best[0])


def test_no_answer_is_given_only_where_training_shows_such_questions(
    tokenizer: Tokenizer, network: Callable[..., Network]
) -> None:
    answered = Question("1", "which", "the model returns", ((4, "model"),))
    net = network(2)

    def first_token_wins(rows: Rows, batch: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.zeros(int(rows.lengths[batch].sum()), 32)
        hidden[np.cumsum(rows.lengths[batch]) - rows.lengths[batch]] = 1
        return hidden, torch.from_numpy(rows.lengths[batch])

    net.hidden = first_token_wins  # pyright: ignore[reportAttributeAccessIssue]
    net.head.load_state_dict({"weight": torch.ones(2, 32), "bias": torch.zeros(2)})
    assert extract.predict(net, asked(tokenizer, [answered]))[0] != ""
    both = asked(tokenizer, [answered, Question("2", "why", "a list", ())])
    assert extract.predict(net, both) == ["", ""]
    assert extract.evaluate(net, [both]) == [{"f1": 0.5, "exact_match": 0.5}]


def test_no_document_of_a_batch_answers_another_query_of_it(tokenizer: Tokenizer) -> None:
    documents = {f"d{i}": f"document {i}" for i in range(6)}
    searches = [Search(f"q{i}", f"query {i}", {f"d{i % 6}": 1, f"d{i % 4}": 2, "d5": 0}) for i in range(20)]
    data = Dataset(dict.fromkeys(Split, searches), documents=dict.fromkeys(Split, documents))
    made = retrieve.features(data, tokenizer, 64)[Split.TRAIN]
    assert len(made.pairs) == sum(len({i % 6, i % 4} - ({5} if i % 6 == 5 else set())) for i in range(20))
    for epoch in range(3):
        batches = retrieve.order(made, 4, generator(0, "examples", epoch))
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(made.pairs)))
        for batch in batches:
            assert 0 < len(batch) <= 4
            for one in batch:
                for other in batch:
                    if one != other:
                        assert made.pairs[other][1] not in made.relevant[made.pairs[one][0]]


def test_documents_shared_by_splits_are_encoded_once(tokenizer: Tokenizer, network: Callable[..., Network]) -> None:
    made = retrieve.features(dataset(Kind.RETRIEVE), tokenizer, 64)
    assert made[Split.VALIDATION].documents is made[Split.TEST].documents
    net = network(0)
    seen = []
    plain = net.vectors
    net.vectors = lambda rows, batch: seen.append(len(batch)) or plain(rows, batch)  # pyright: ignore[reportAttributeAccessIssue]
    retrieve.evaluate(net, [made[Split.VALIDATION], made[Split.TEST]])
    assert sum(seen) == 8 + 8 + 8


def test_queries_and_documents_that_are_cut_are_counted_once_a_query(tokenizer: Tokenizer) -> None:
    documents = {"long": "the " * 20, "short": "the"}
    searches = [
        Search("1", "one", {"long": 1}),
        Search("2", "one", {"short": 1}),
        Search("3", "the " * 20, {"long": 1}),
    ]
    data = Dataset(dict.fromkeys(Split, searches), documents=dict.fromkeys(Split, documents))
    assert retrieve.features(data, tokenizer, 16)[Split.TEST].num_truncated == 2


@pytest.mark.parametrize("kind", Kind)
def test_scores_do_not_depend_on_how_much_is_evaluated_at_once(
    kind: Kind, tokenizer: Tokenizer, network: Callable[..., Network]
) -> None:
    face, data = FACES[kind], dataset(kind, 12)
    made = face.features(data, tokenizer, 40)[Split.TEST]
    found = [
        face.evaluate(network(face.outputs(data), place=Place(CPU, torch.float32, tokens, most)), [made])
        for tokens, most in ((4096, 0), (64, 0), (4096, 1))
    ]
    assert found[0][0] == pytest.approx(found[1][0])
    assert found[0][0] == pytest.approx(found[2][0])
    assert tuple(found[0][0]) == face.metrics


@pytest.mark.parametrize("kind", Kind)
def test_one_loss_is_the_sum_over_its_examples(
    kind: Kind, tokenizer: Tokenizer, network: Callable[..., Network]
) -> None:
    face, data = FACES[kind], dataset(kind, 6)
    made = face.features(data, tokenizer, 64)[Split.TRAIN]
    net = network(face.outputs(data))
    batch = np.arange(6)
    whole = face.loss(net, made, batch)
    assert whole.count == face.count(made, batch)
    parts = [face.loss(net, made, part) for part in face.micro(batch, 2)]
    assert sum(part.count for part in parts) == whole.count
    assert sum(float(part.total) for part in parts) == pytest.approx(float(whole.total), rel=1e-5)


@pytest.mark.parametrize("kind", Kind)
def test_the_order_of_examples_depends_on_seed_and_epoch_alone(kind: Kind, tokenizer: Tokenizer) -> None:
    face = FACES[kind]
    made = face.features(dataset(kind, 10), tokenizer, 64)[Split.TRAIN]
    orders = [
        np.concatenate(face.order(made, 4, generator(seed, "examples", epoch))).tolist()
        for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))
    ]
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(10))
    assert len({tuple(order) for order in orders}) == 3
