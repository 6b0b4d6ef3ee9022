"""Extractive question answering: windows over the context, a start and an end score for each token, best span."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from torch.nn import functional

from antiphon.finetune import metrics
from antiphon.finetune.face import Face, by_rows, shuffled
from antiphon.finetune.features import Rows, rows_of
from antiphon.finetune.network import Network
from antiphon.finetune.task import Dataset, Question, Split
from antiphon.model.loss import Loss

LONGEST_ANSWER = 30  # tokens; as in BERT's SQuAD script (arXiv 1810.04805) and transformers' examples


@dataclasses.dataclass(frozen=True, eq=False)
class Windows:
    """Questions as rows: question and a window of the context.

    Attributes:
        rows: the windows.
        example: (N of windows,) which question each belongs to.
        spans: (N of windows, 2) int64, first and last token of the answer; (0, 0) if the window does not hold it.
        context: (S,) bool, which tokens are of the context.
        offsets: (S, 2) int64, characters of the context that a token covers.
        questions: the examples.
        optional: whether a question may have no answer: true if training shows such a question.
        num_truncated: questions that were cut; contexts are windowed, never cut.
    """

    rows: Rows
    example: np.ndarray
    spans: np.ndarray
    context: np.ndarray
    offsets: np.ndarray
    questions: Sequence[Question]
    optional: bool
    num_truncated: int

    @property
    def num_examples(self) -> int:
        return len(self.questions)


def features(dataset: Dataset, tokenizer: Tokenizer, length: int) -> Mapping[Split, Windows]:
    """Windows that overlap by a third of the row, so that an answer cut by one is whole in the next."""
    optional = any(not question.answers for question in dataset.examples[Split.TRAIN])
    return {split: _split(dataset.examples[split], optional, tokenizer, length) for split in Split}


def _split(questions: Sequence[Question], optional: bool, tokenizer: Tokenizer, length: int) -> Windows:
    asked, truncated = _shorten([question.question for question in questions], tokenizer, length // 2)
    tokenizer.enable_truncation(length, stride=length // 3, strategy="only_second")
    pairs = list(zip(asked, (question.context for question in questions), strict=True))
    encodings = tokenizer.encode_batch(pairs)
    tokenizer.no_truncation()
    windows: list[Encoding] = []
    example: list[int] = []
    for index, encoding in enumerate(encodings):
        windows += [encoding, *encoding.overflowing]
        example += [index] * (1 + len(encoding.overflowing))
    context = [np.array([part == 1 for part in window.sequence_ids]) for window in windows]
    offsets = [np.array(window.offsets, dtype=np.int64) for window in windows]
    spans = [_span(questions[example[i]], context[i], offsets[i]) for i in range(len(windows))]
    return Windows(
        rows_of(windows), np.array(example), np.array(spans), np.concatenate(context), np.concatenate(offsets),
        questions, optional, truncated,
    )  # fmt: skip


def _shorten(questions: list[str], tokenizer: Tokenizer, most: int) -> tuple[list[str], int]:
    """Cut questions to a number of tokens, so that at least half of a row is left to the context."""
    encodings = tokenizer.encode_batch(questions, add_special_tokens=False)
    long = [len(encoding.ids) > most - 4 for encoding in encodings]
    cut = [
        question[: encoding.offsets[most - 5][1]] if is_long else question
        for question, encoding, is_long in zip(questions, encodings, long, strict=True)
    ]
    return cut, sum(long)


def _span(question: Question, context: np.ndarray, offsets: np.ndarray) -> tuple[int, int]:
    """First and last token of the first answer, if all of it is in this window; else (0, 0)."""
    place = np.flatnonzero(context)
    if not question.answers or not len(place):
        return 0, 0
    start, text = question.answers[0]
    end = start + len(text)
    if offsets[place[0], 0] > start or offsets[place[-1], 1] < end:
        return 0, 0
    first = place[np.searchsorted(offsets[place, 1], start, side="right")]
    last = place[np.searchsorted(offsets[place, 0], end, side="left") - 1]
    return int(first), int(last)


def _scores(network: Network, features: Windows, batch: np.ndarray) -> Tensor:
    """(N, T, 2) scores of being the first and the last token of the answer; very low behind a row's end."""
    hidden, lengths = network.hidden(features.rows, batch)
    shown = torch.arange(int(lengths.max()), device=hidden.device)[None, :] < lengths[:, None]
    scores = hidden.new_full((*shown.shape, 2), torch.finfo(hidden.dtype).min)
    return scores.masked_scatter(shown[:, :, None], network.head(hidden))


def loss(network: Network, features: Windows, batch: np.ndarray) -> Loss:
    """Cross-entropy over the tokens of a window, summed over starts and ends; without the answer, token 0 is asked."""
    scores = _scores(network, features, batch)
    answers = torch.from_numpy(features.spans[batch]).to(scores.device)
    return Loss(functional.cross_entropy(scores, answers, reduction="sum"), 2 * len(batch))


def predict(network: Network, features: Windows) -> list[str]:
    """The answer to each question: the best span of at most LONGEST_ANSWER tokens over its windows.

    Where questions may go unanswered the answer is "" if token 0 of every window scores higher than the best span, as
    in transformers' SQuAD 2.0 example with a threshold of 0.
    """
    total = len(features.rows)
    best, nothing = np.full(total, -np.inf), np.full(total, np.inf)
    spans = np.zeros((total, 2), dtype=np.int64)
    for block in network.blocks(features.rows):
        scores = _scores(network, features, block)
        allowed = _pad(features, block, scores.shape[1]).to(scores.device)
        value, start, end = best_spans(scores, allowed)
        best[block] = value.cpu().numpy()
        nothing[block] = (scores[:, 0, 0] + scores[:, 0, 1]).cpu().numpy()
        spans[block] = torch.stack([start, end], 1).cpu().numpy()
    return [
        _answer(features, np.flatnonzero(features.example == index), best, nothing, spans)
        for index in range(len(features.questions))
    ]


def _pad(features: Windows, block: np.ndarray, width: int) -> Tensor:
    lengths = features.rows.lengths[block]
    allowed = np.zeros((len(block), width), dtype=bool)
    allowed[np.arange(width)[None, :] < lengths[:, None]] = features.context[features.rows.places(block)]
    return torch.from_numpy(allowed)


def best_spans(scores: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The span with the highest start plus end score, over all spans of at most LONGEST_ANSWER allowed tokens.

    Args:
        scores: (N, T, 2).
        allowed: (N, T) bool, tokens of the context; they stand together.

    Returns:
        (N,) score, first and last token; a window without allowed tokens has a very low score.
    """
    low = torch.finfo(scores.dtype).min / 4
    kept = scores.masked_fill(~allowed[:, :, None], low)
    ends = functional.pad(kept[:, :, 1], (0, LONGEST_ANSWER - 1), value=low).unfold(1, LONGEST_ANSWER, 1)
    # max over the ends of each start, then over the starts: exact, where an n-best list can miss the best pair.
    end_value, end_place = ends.max(-1)
    value, start = (kept[:, :, 0] + end_value).max(-1)
    return value, start, start + end_place.gather(1, start[:, None]).squeeze(1)


def _answer(features: Windows, windows: np.ndarray, best: np.ndarray, nothing: np.ndarray, spans: np.ndarray) -> str:
    window = int(windows[np.argmax(best[windows])])
    if features.optional and nothing[windows].min() > best[window]:
        return ""
    first, last = (features.rows.starts[window] + spans[window]).tolist()
    context = features.questions[int(features.example[window])].context
    return context[int(features.offsets[first, 0]) : int(features.offsets[last, 1])].strip()


def evaluate(network: Network, splits: Sequence[Windows]) -> list[dict[str, float]]:
    """F1 over words and exact match of each split, by SQuAD's rules."""
    found = []
    for split in splits:
        gold = [[text for _, text in question.answers] for question in split.questions]
        exact_match, f1 = metrics.squad(predict(network, split), gold)
        found.append({"f1": f1, "exact_match": exact_match})
    return found


FACE = Face(
    features=features,
    outputs=lambda dataset: 2,
    order=shuffled,
    micro=by_rows,
    count=lambda features, batch: 2 * len(batch),
    loss=loss,
    evaluate=evaluate,
    metrics=("f1", "exact_match"),
)
