"""The pocket corpus: what is read, how it is cleaned, what is left out, and that the splits share no text."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from antiphon.config import UserError
from antiphon.data import docstring_parts, docstrings
from antiphon.data.copies import Copies
from antiphon.data.docstring_markup import clean, reduce_math
from antiphon.data.docstring_source import raw_docstrings

NUMPY = '''
"""Evaluate a curve at some points.

The curve may be any `callable`, for instance
:func:`~fakelib.curves.line` or :class:`Spline <fakelib.Spline>` [1]_.

.. versionadded:: 1.2

.. note:: Points outside the interval are ``nan``.

Parameters
----------
points : array_like
    Where to evaluate.
degree : {1, 2, 3}, optional
    Degree of the curve.
    Default is 3.
rule : str, default='clamped'
    What happens at the *ends*:

    - 'clamped' : the curve stops.
    - 'free' : it goes on.

Returns
-------
values : ndarray
    The values at `points`.

Examples
--------
>>> evaluate([1, 2])
array([3., 4.])

References
----------
.. [1] A. Author, "Curves".
"""
'''

GOOGLE = '''
def fold(values, size=4):
    r"""Fold :math:`\\frac{n}{2}` values into rows. The rows are views.

    See https://example.org/folding for more.

    Args:
        values (Tensor): the values to fold, as in
            :meth:`Tensor.unfold`.
        size (int, optional): rows to make. Default: ``4``
        kind: whatever suits

    Returns:
        Tensor: the rows, of shape ``(size, n)``

    Example::

        >>> fold(x)
    """
'''

TRANSFORMERS = '''
class Folder:
    r"""
    Constructs a folder. This folder inherits from [`Sheet`] and from [paper](https://example.org).

    <Tip>

    Fold twice.

    </Tip>

    Args:
        num_folds (`int`, *optional*, defaults to 12):
            Number of folds.
        mode (`str` or [`~sheets.Mode`], *optional*, defaults to `"half"`):
            The mode, which
            matters.

    ```python
    >>> Folder()
    ```"""

    def forward(self):
        r"""
        sheets (`list[Sheet]` of length `(batch,)`, *optional*):
            Sheets to be folded by the folder, all at once.
        """
'''


def read(source: str) -> list[docstring_parts.Docstring]:
    return [docstring_parts.read(raw) for _, raw in raw_docstrings(source.strip().encode())]


def asked(part: docstring_parts.Docstring) -> list[tuple[str, str | None, str | None]]:
    """Each parameter with what its spans say."""
    return [
        (
            item.name,
            None if item.type is None else part.text[slice(*item.type)],
            None if item.default is None else part.text[slice(*item.default)],
        )
        for item in part.parameters
    ]


def code(part: docstring_parts.Docstring) -> list[str]:
    return [part.text[start:end] for start, end in part.code]


def test_a_numpy_docstring_is_cleaned_exactly():
    (part,) = read(NUMPY)
    assert part.text.split("\n") == [
        "Evaluate a curve at some points.",
        "The curve may be any callable, for instance line or Spline.",
        "Points outside the interval are nan.",
        "points (array_like): Where to evaluate.",
        "degree ({1, 2, 3}, optional): Degree of the curve. Default is 3.",
        "rule (str, default='clamped'): What happens at the ends: 'clamped': the curve stops. 'free': it goes on.",
        "values (ndarray): The values at points.",
    ]
    assert part.summary == "Evaluate a curve at some points."
    assert part.text[: part.prose].endswith("are nan.")
    assert code(part) == ["callable", "line", "Spline", "nan", "points"]
    assert asked(part) == [
        ("points", "array_like", None),
        ("degree", "{1, 2, 3}", "3"),
        ("rule", "str", "clamped"),
    ]
    assert [part.text[item.description : item.line[1]].split()[0] for item in part.parameters] == [
        "Where",
        "Degree",
        "What",
    ]


def test_a_google_docstring_is_cleaned_exactly():
    (part,) = read(GOOGLE)
    assert part.text.split("\n") == [
        "Fold (n) / (2) values into rows. The rows are views.",
        "See for more.",
        "values (Tensor): the values to fold, as in Tensor.unfold.",
        "size (int, optional): rows to make. Default: 4",
        "kind: whatever suits",
        "Tensor: the rows, of shape (size, n)",
    ]
    assert part.summary == "Fold (n) / (2) values into rows."
    assert code(part) == ["Tensor.unfold", "4", "(size, n)"]
    assert asked(part) == [("values", "Tensor", None), ("size", "int", "4"), ("kind", None, None)]


def test_a_transformers_docstring_is_cleaned_exactly():
    folder, forward = read(TRANSFORMERS)
    assert folder.text.split("\n") == [
        "Constructs a folder. This folder inherits from Sheet and from paper.",
        "Fold twice.",
        "num_folds (int, optional, defaults to 12): Number of folds.",
        'mode (str or Mode, optional, defaults to "half"): The mode, which matters.',
    ]
    assert code(folder) == ["Sheet", "int", "str", "Mode", '"half"']
    assert asked(folder) == [("num_folds", "int", "12"), ("mode", "str or Mode", "half")]
    assert (forward.summary, forward.prose) == ("", 0)
    assert asked(forward) == [("sheets", "list[Sheet] of length (batch,)", None)]


@pytest.mark.parametrize(
    ("marked", "plain", "spans"),
    [
        ("Use ``x`` or `y`.", "Use x or y.", ["x", "y"]),
        (":class:`~a.b.C` and :func:`a.b`", "C and a.b", ["C", "a.b"]),
        (":term:`label` of :ref:`the guide <guide>`", "label of the guide", []),
        ("see `Smith <https://x.org/a_b>`_ or `Jones`_", "see Smith or Jones", []),
        ("the **bold** and *weak* `*args`", "the bold and weak *args", ["*args"]),
        ("[`Trainer`] at [home](https://x.org)", "Trainer at home", ["Trainer"]),
        ("`a sentence of more than six words in all`", "a sentence of more than six words in all", []),
        ("It costs $5 or <s> 1 * 2 * 3 </s>", "It costs $5 or <s> 1 * 2 * 3 </s>", []),
        ("a <br/> b |version| c", "a b c", []),
        ("", "", []),
    ],
)
def test_inline_markup_goes_and_code_is_remembered(marked: str, plain: str, spans: list[str]):
    text, found = clean(marked)
    assert text == plain
    assert [text[start:end] for start, end in found] == spans


def test_formulas_become_readable():
    assert reduce_math(r"\text{out}_{i} = \frac{x_i}{2} \times \alpha^{n+1}") == "out_i = (x_i) / (2) x alpha^(n+1)"
    assert reduce_math(r"\left[ 0, \infty \right) \leq \sqrt{n}") == "[0, infinity) <= sqrt(n)"


def test_code_tables_and_formulas_are_left_out():
    (part,) = read('''
"""Do two things::

    do(1)
    do(2)

and then a third.

.. math::

    x = y

====  ====
one   two
====  ====

Last words here.
"""
''')
    assert part.text == "Do two things:\nand then a third.\none two\nLast words here."


def test_headings_of_one_s_own_cut_the_prose_and_are_dropped():
    (part,) = read('''
"""About the whole thing here.

Details
~~~~~~~
More words on it.
"""
''')
    assert part.text == "About the whole thing here.\nMore words on it."
    assert part.text[: part.prose] == "About the whole thing here."


def test_documentation_in_unusual_places_is_found_in_the_order_of_lines():
    source = textwrap.dedent('''
        """The module."""
        add_docstr(fake.absolute, r"""absolute(x) -> y""" + """ of {x} and {{1}}""".format(**common))
        add_newdoc("fake", "flat", ("base", """The base of it."""))
        if True:
            class Layer:
                __doc__ = """A layer.""" + note
                @auto_docstring(custom_intro="""Runs the layer.""")
                def run(self):
                    """Its own."""
    ''')
    assert list(raw_docstrings(source.encode())) == [
        ("", "The module."),
        ("fake.absolute", "absolute(x) -> y of  and {1}"),
        ("flat.base", "The base of it."),
        ("Layer", "A layer."),
        ("Layer.run", "Runs the layer."),
        ("Layer.run", "Its own."),
    ]


def test_a_copy_repeats_more_than_half_of_the_word_runs():
    copies = Copies()
    words = [f"w{number}" for number in range(40)]
    assert copies.accept(" ".join(words))
    assert not copies.accept(" ".join(words).upper() + "!")
    assert not copies.accept(" ".join([*words[:24], *(f"new{number}" for number in range(8))]))  # 17 of 25 runs
    assert copies.accept(" ".join([*words[:12], *(f"other{number}" for number in range(20))]))  # 5 of 25 runs


def letters(number: int) -> str:
    """A made-up word of its own for each number."""
    return "".join("bcdfghjklm"[int(digit)] + "aeiou"[int(digit) % 5] for digit in f"{number:02d}")


@pytest.fixture
def fakelib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed library of several modules that breaks when imported."""
    site = tmp_path / "site"
    folder = site / "fakelib"
    modules = {
        "__init__": 'raise RuntimeError("imported")\n"""not a docstring"""\n',
        "curves": NUMPY,
        "models/folder": TRANSFORMERS,
        "models/fold": GOOGLE,
        "tests/curves": '"""Tests of the curves that nobody should read as documentation."""',
        "short": '"""Too short to keep."""',
        "future": '"""The syntax below is of no Python known to anybody."""\nlet x = 1',
    }
    for number in range(60):
        prose = " ".join(letters(number) + letters(place) for place in range(12))
        copy = "These words are the same in each and every one of the sixty modules."
        modules[f"part{number}"] = f'"""{prose}."""\ndef same():\n    """{copy}"""\n'
    for name, source in modules.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    information = site / "fake_lib-2.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-lib\nVersion: 2.1\n")
    monkeypatch.syspath_prepend(str(site))
    return folder


FAKE = {"fake-lib": "fakelib"}


def test_a_library_is_read_without_importing_it(fakelib: Path, caplog: pytest.LogCaptureFixture):
    passages = docstrings.extract(FAKE)
    assert "fakelib" not in sys.modules
    assert [passage.module for passage in passages] == sorted(passage.module for passage in passages)
    names = {(passage.module, passage.name) for passage in passages}
    assert {
        ("fakelib.curves", ""),
        ("fakelib.models.fold", "fold"),
        ("fakelib.models.folder", "Folder"),
        ("fakelib.models.folder", "Folder.forward"),
    } <= names
    assert not {"fakelib.tests.curves", "fakelib.short", "fakelib.future"} & {module for module, _ in names}
    assert str(fakelib / "future.py") in caplog.text
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert docstrings.manifest(FAKE) == {
        "pocket corpus": str(docstrings.VERSION),
        "python": python,
        "fake-lib": "2.1",
    }


def test_the_number_of_workers_changes_nothing(fakelib: Path, monkeypatch: pytest.MonkeyPatch):
    alone = docstrings.extract(FAKE)
    monkeypatch.setattr(docstrings, "_FILES_AT_ONCE", 5)
    assert docstrings.extract(FAKE, workers=2) == alone


def test_a_text_that_occurs_in_train_occurs_nowhere_else(fakelib: Path):
    passages = docstrings.extract(FAKE)
    assert {passage.split for passage in passages} == {"train", "validation", "test"}
    (same,) = [passage for passage in passages if passage.name == "same"]
    assert same.split == "train"
    texts = [passage.text for passage in passages]
    assert len(set(texts)) == len(texts)


def test_pretraining_sees_no_test_module_and_trains_on_no_held_out_text(fakelib: Path):
    passages = docstrings.extract(FAKE)
    documents = list(docstrings.documents(passages))
    held_out = {passage.text for passage in passages if passage.split != "train"}
    assert held_out
    assert not held_out & {text for text, split in documents if split == "train"}
    assert [text for text, _ in documents] == [passage.text for passage in passages if passage.split != "test"]


def test_splits_are_fixed_and_keep_what_copies_from_each_other_together():
    split = docstrings.split_of
    names = [f"library.part{number}" for number in range(2000)]
    counts = {kind: sum(split(name) == kind for name in names) for kind in ("train", "validation", "test")}
    assert 1540 < counts["train"] < 1660  # 3.5 standard deviations of a binomial around 80%
    assert 150 < counts["validation"] < 250
    assert 150 < counts["test"] < 250
    for name in names[:50]:
        assert len({split(f"transformers.models.{name}.{kind}_{name}") for kind in ("modeling", "modular")}) == 1
    # A change of these would move modules between splits in the middle of somebody's study.
    assert [split(f"torch.nn.part{number}") for number in range(5)] == [
        "train",
        "train",
        "validation",
        "validation",
        "train",
    ]


def test_the_cache_is_read_back_unchanged_and_extracted_once(
    fakelib: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache = tmp_path / "cache"
    passages = docstrings.load(cache, libraries=FAKE)
    assert passages == docstrings.extract(FAKE)
    monkeypatch.setattr(docstrings, "extract", lambda *_: pytest.fail("extracted again"))
    assert docstrings.load(cache, libraries=FAKE) == passages
    assert len(os.listdir(cache)) == 1
    monkeypatch.setattr(docstrings, "VERSION", docstrings.VERSION + 1)
    with pytest.raises(BaseException, match="extracted again"):
        docstrings.load(cache, libraries=FAKE)
    assert len(os.listdir(cache)) == 1


def test_a_missing_library_is_named(tmp_path: Path):
    with pytest.raises(UserError, match="no-such-library: not installed"):
        docstrings.load(tmp_path, libraries={"no-such-library": "no_such_library"})
    with pytest.raises(UserError, match="no_such_library: not installed"):
        docstrings.modules("no_such_library")
    assert not list(tmp_path.iterdir())


def test_a_real_library_reads_well():
    passages = docstrings.extract({"jinja2": "jinja2"})
    assert len(passages) > 50
    assert sum(bool(passage.code) for passage in passages) > 20
    for passage in passages:
        assert "`" not in passage.text
        assert ">>>" not in passage.text
        assert passage.text.startswith(passage.summary)
        assert all(0 <= start < end <= len(passage.text) for start, end in passage.code)
