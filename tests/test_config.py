"""Configs are frozen, closed at every level, and every field of one has a reader."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from pathlib import Path
from typing import Annotated

import pydantic
import pytest
from pydantic import Field

import antiphon
from antiphon.config import Config, UserError, fingerprint, nearest

SOURCES = Path(antiphon.__file__).parent


class Inner(Config):
    depth: int = 1


class Outer(Config):
    inner: Inner = Inner()
    width: Annotated[int, Field(ge=1)] = 3


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(pydantic.ValidationError):
        Outer().width = 4  # pyright: ignore[reportAttributeAccessIssue]


def test_configs_are_equal_by_content() -> None:
    assert Outer.read({"width": 4}) == Outer(width=4)
    assert Outer(width=4) != Outer()


@pytest.mark.parametrize(
    ("data", "place", "real"),
    [({"widht": 2}, "outer.yaml: ", "'width'"), ({"inner": {"detph": 2}}, "outer.yaml: inner: ", "'depth'")],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest_real_one(data: object, place: str, real: str) -> None:
    with pytest.raises(UserError) as caught:
        Outer.read(data, "outer.yaml")
    assert str(caught.value).startswith(place)
    assert real in str(caught.value)
    assert "did you mean" in str(caught.value)


def test_all_mistakes_are_told_at_once_with_place_and_value() -> None:
    with pytest.raises(UserError) as caught:
        Outer.read({"width": -3, "inner": {"depth": "deep"}}, "outer.yaml")
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert any("inner.depth" in line and "'deep'" in line for line in lines)
    assert any("width" in line and "-3" in line for line in lines)


def test_a_word_far_from_all_allowed_ones_lists_them() -> None:
    assert nearest("zzz", ["beta", "alpha"]) == "allowed: alpha, beta"


def test_the_fingerprint_is_of_what_differs_from_the_defaults() -> None:
    class Wider(Config):
        width: int = 3
        added: str = "later"

    Wider.__name__ = "Outer"
    assert Outer().fingerprint() == Outer(width=3).fingerprint() == Wider().fingerprint()
    assert Outer(width=4).fingerprint() != Outer().fingerprint()


def test_the_fingerprint_is_the_same_on_every_machine() -> None:
    # A fixed value: old results are found again only while this holds.
    assert fingerprint("a", 1, {"b": [0.5, None]}) == "de6b41adc75eb43b"
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})


def _configs() -> list[type[Config]]:
    for module in pkgutil.walk_packages(antiphon.__path__, "antiphon."):
        importlib.import_module(module.name)
    found, waiting = [], [Config]
    while waiting:
        children = [kind for kind in waiting.pop().__subclasses__() if kind.__module__.startswith("antiphon.")]
        found += children
        waiting += children
    return found


def _reads(tree: ast.AST, owner: str = "") -> set[tuple[str, str]]:
    """(class whose body it stands in, attribute) of every attribute that is read, and of every getattr by name."""
    found: set[tuple[str, str]] = set()
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.ClassDef) else owner
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add((owner, node.attr))
        found |= _reads(node, inside)
    return found


def test_every_field_has_a_reader() -> None:
    """By name alone; tests/study/test_fields.py watches who reads what while a study runs."""
    reads = {item for path in SOURCES.rglob("*.py") for item in _reads(ast.parse(path.read_text(encoding="utf-8")))}
    configs = _configs()
    assert {"Study", "Pretrain", "Finetune", "Machine", "Corpus", "Model"} <= {kind.__name__ for kind in configs}
    unread = []
    for kind in configs:
        # LearningRate.curve and the like are readers of their own class's fields: methods count, validators do not.
        validators = _validator_reads(kind)
        for name in kind.model_fields:
            outside = any(attribute == name and owner != kind.__name__ for owner, attribute in reads)
            inside = (kind.__name__, name) in reads and name not in validators
            if not (outside or inside):
                unread.append(f"{kind.__name__}.{name}")
    assert not unread


def _validator_reads(kind: type[Config]) -> set[str]:
    """Attributes read only in the private methods of a config's own body, which are its validators."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    private, public = set(), set()
    for node in body.body:
        if isinstance(node, ast.FunctionDef):
            names = {attribute for _, attribute in _reads(node)}
            if node.name.startswith("_"):
                private |= names
            else:
                public |= names
    return private - public
