"""The pocket tasks: what is asked, that answers stand where they are said to be, that nothing leaks between splits."""

from __future__ import annotations

import random
import re

import pytest

from antiphon.data import docstring_parts, docstrings
from antiphon.data.docstrings import LIBRARIES, Passage
from antiphon.finetune import pocket, pocket_examples
from antiphon.finetune.task import Dataset, Question, Search, Split, Text, Words

FORBIDDEN = re.compile(r"torch|numpy|scipy|scikit|sklearn|hugging ?face|transformers|\bnp\b|\bhf\b", re.IGNORECASE)

RAW = """{a} the {b} of PyTorch tensors with NumPy arrays and of torch.nn.functional.{c} for {d}.

It {e} the `{b}` before the {f} and never `{c}` them {g}.

{shared}

Args:
    {a} (`{b}`, *optional*, defaults to `{c}`):
        The {d} of the {e} with the {f}.
    {h} (list of {g}):
        What the {a} {b} when `{d}` is {c}.
    {e} (int, optional): {f} {g} {h} {a}. Default: 3
"""


def word(number: int) -> str:
    """A made-up word of its own for each number below 10,000."""
    return "".join("bcdfghjklm"[int(digit)] + "aeiou"[int(digit) % 5] for digit in f"{number:04d}")


@pytest.fixture(scope="module")
def passages() -> list[Passage]:
    """Eighty modules of each library, with one docstring each; a sentence is the same in every second one."""
    made = []
    for place, (library, name) in enumerate(LIBRARIES.items()):
        for number in range(80):
            words = {letter: word(8 * (80 * place + number) + at) for at, letter in enumerate("abcdefgh")}
            shared = "These words about `nothing` are the same in all of them." if number % 2 else ""
            parts = docstring_parts.read(RAW.format(**words, shared=shared))
            module = f"{name}.part{number}"
            made.append(Passage(library, module, "", *(getattr(parts, field) for field in FIELDS)))
    return made


FIELDS = ("text", "summary", "prose", "code", "parameters")
MAKERS = (pocket.library, pocket.code, pocket.parameter, pocket.summary)


@pytest.fixture(scope="module")
def datasets(passages: list[Passage]) -> dict[str, Dataset]:
    return {make.__name__: make(passages) for make in MAKERS}


def test_every_split_of_every_task_has_examples(datasets: dict[str, Dataset]):
    kinds = {"library": Text, "code": Words, "parameter": Question, "summary": Search}
    for name, dataset in datasets.items():
        assert list(dataset.examples) == list(Split)
        for split in Split:
            assert len(dataset.examples[split]) > 10
            assert all(isinstance(example, kinds[name]) for example in dataset.examples[split])


def test_the_order_of_the_passages_changes_nothing(passages: list[Passage], datasets: dict[str, Dataset]):
    shuffled = list(passages)
    random.Random(1).shuffle(shuffled)
    for make in MAKERS:
        assert make(shuffled) == datasets[make.__name__]


def test_no_module_is_in_two_splits(passages: list[Passage], datasets: dict[str, Dataset]):
    modules = {
        split: {question.id.split(":")[0] for question in datasets["parameter"].examples[split]} for split in Split
    }
    for split in Split:
        assert modules[split] <= {passage.module for passage in passages if passage.split == split.value}
    assert not modules[Split.TRAIN] & modules[Split.VALIDATION]
    assert not (modules[Split.TRAIN] | modules[Split.VALIDATION]) & modules[Split.TEST]


def test_classification_passages_do_not_name_their_library(datasets: dict[str, Dataset]):
    dataset = datasets["library"]
    assert dataset.labels == tuple(LIBRARIES)
    for split in Split:
        labels = [example.label for example in dataset.examples[split]]
        assert max(map(labels.count, range(5))) - min(map(labels.count, range(5))) < len(labels) / 4
        for example in dataset.examples[split]:
            assert not FORBIDDEN.search(example.text)
            assert 12 <= len(example.text.split()) <= 40
            assert "(list of" not in example.text  # the parameters are not part of it


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("torch.nn.functional.relu of a torch.Tensor", "relu of a Tensor"),
        ("NumPy's arrays, np.ndarray or np", "library's arrays, ndarray or library"),
        ("scikit-learn and Hugging Face transformers", "library and library library"),
        ("github.com/pytorch/executorch, sklearn.", "github.library, library."),
        ("A Transformer transforms input", "A Transformer transforms input"),
        ("Read more in the User Guide. It fits.", "It fits."),
    ],
)
def test_names_of_libraries_are_masked(text: str, left: str):
    assert pocket_examples.masked(text) == left


def test_words_are_tagged_where_the_author_marked_them():
    parts = docstring_parts.read("It may be ``None`` (or `axis`), see :func:`~a.fit()`; use a plain axis-like word.")
    passage = Passage("numpy", "numpy.a", "", *(getattr(parts, field) for field in FIELDS))
    expected = "It may be None ( or axis ) , see fit() ; use a plain axis-like word ."
    sentence = pocket_examples.tagged(passage, (0, len(passage.text)))
    assert sentence.words == tuple(expected.split(" "))
    assert [word for word, tag in zip(sentence.words, sentence.tags, strict=True) if tag == "CODE"] == [
        "None",
        "axis",
        "fit()",
    ]


@pytest.mark.parametrize(
    "forgotten",
    [
        "The `axis` is the one along which an axis is taken as given.",
        "The `axis` is what along_this is taken as a given thing.",
        "The `axis` is what call() takes as a given thing here.",
        "Nothing in this sentence is marked as code by its author.",
        "`axis` is short.",
    ],
)
def test_sentences_with_forgotten_marks_are_passed_over(forgotten: str):
    parts = docstring_parts.read(forgotten)
    assert (
        pocket_examples.tagged_sentence(Passage("numpy", "numpy.a", "", *(getattr(parts, f) for f in FIELDS))) is None
    )


def test_tagged_sentences_have_both_tags_and_no_marks(datasets: dict[str, Dataset]):
    assert datasets["code"].labels == ("O", "CODE")
    for split in Split:
        for sentence in datasets["code"].examples[split]:
            assert len(sentence.words) == len(sentence.tags)
            assert 8 <= len(sentence.words) <= 40
            assert set(sentence.tags) == {"O", "CODE"}
            assert not any("`" in word or " " in word for word in sentence.words)


def test_answers_stand_at_their_offsets_among_other_parameters(passages: list[Passage], datasets: dict[str, Dataset]):
    texts = {passage.module: passage for passage in passages}
    kinds = set()
    for split in Split:
        for question in datasets["parameter"].examples[split]:
            ((offset, answer),) = question.answers
            assert question.context[offset : offset + len(answer)] == answer
            assert len(question.context.split("\n")) >= 3
            module, _, name, kind = question.id.split(":")
            assert question.question == f"What is the {kind} of {name}?"
            kinds.add(kind)
            line = question.context[: offset + len(answer)].split("\n")[-1]
            assert line.startswith(f"{name} (")
            (parameter,) = [item for item in texts[module].parameters if item.name == name]
            span = parameter.type if kind == "type" else parameter.default
            assert span is not None
            assert texts[module].text[slice(*span)] == answer
    assert kinds == {"type", "default"}


def test_long_entries_are_cut_but_never_the_answer():
    many = " ".join(word(number) for number in range(60))
    raw = "Args:\n" + "".join(f"    name{number} (int): {many} Default: ``{number}``\n" for number in range(5))
    parts = docstring_parts.read(raw)
    made = pocket_examples.question(Passage("numpy", "numpy.a", "", *(getattr(parts, field) for field in FIELDS)))
    assert made is not None
    question, source = made
    assert question.answers[0][1] == "int"  # the defaults are beyond the cut
    assert all(len(line.split()) == pocket_examples._ENTRY_WORDS for line in question.context.split("\n"))
    assert len(source.split()) == 64


def test_queries_are_answered_by_one_document_that_does_not_repeat_them(datasets: dict[str, Dataset]):
    dataset = datasets["summary"]
    queries = [search.query for split in Split for search in dataset.examples[split]]
    assert len(set(queries)) == len(queries)
    for split in Split:
        documents = dataset.documents[split]
        assert list(documents) == [search.id for search in dataset.examples[split]]
        for search in dataset.examples[split]:
            assert search.relevant == {search.id: 1}
            assert search.query.rstrip(".") not in documents[search.id]
            assert 12 <= len(documents[search.id].split()) <= pocket_examples._DOCUMENT_WORDS[1]


def test_no_held_out_example_repeats_a_training_line(passages: list[Passage], monkeypatch: pytest.MonkeyPatch):
    # No training examples, so that only the training text itself can keep its lines out of the other splits.
    for name in ("SIZES", "SEARCH_SIZES"):
        monkeypatch.setattr(pocket, name, {Split.TRAIN: 0, Split.VALIDATION: 300, Split.TEST: 300})
    learnt = {line for text, split in docstrings.documents(passages) if split == "train" for line in text.split("\n")}
    shared = "These words about nothing are the same in all of them."
    assert shared in learnt
    for split in (Split.VALIDATION, Split.TEST):
        sentences = pocket.code(passages).examples[split]
        assert sentences
        assert not any("nothing" in sentence.words for sentence in sentences)
        for make in (pocket.library, pocket.summary):
            examples = make(passages).examples[split]
            assert examples
            assert not any(shared in str(example) for example in examples)


def test_sizes_are_capped(passages: list[Passage], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pocket, "SIZES", {Split.TRAIN: 7, Split.VALIDATION: 5, Split.TEST: 3})
    dataset = pocket.library(passages)
    assert [len(dataset.examples[split]) for split in Split] == [7, 5, 3]
    assert sorted(example.label for example in dataset.examples[Split.VALIDATION]) == [0, 1, 2, 3, 4]
