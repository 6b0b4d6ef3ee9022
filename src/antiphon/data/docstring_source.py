"""The raw docstrings in Python source, found with `ast`; nothing is imported or run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

_ADDED = re.compile(r"_?add_(?:docstr|newdoc)\w*")
_FIELD = re.compile(r"(?<!\{)\{\w*\}(?!\})")
_Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def raw_docstrings(source: bytes) -> Iterator[tuple[str, str]]:
    """The docstrings of one module in the order of their lines.

    Besides the usual place this looks where the libraries put documentation of compiled functions and of generated
    classes: `add_docstr(function, "...")`, `add_newdoc(place, name, "...")`, `__doc__ = "..."` in a class, and
    `@auto_docstring(custom_intro="...")`.

    Args:
        source: the bytes of the file.

    Yields:
        (qualified name inside the module, docstring as written); the name is "" for the module's own.

    Raises:
        SyntaxError: the file is not in the Python this runs on.
    """
    if b'"""' not in source and b"'''" not in source:
        return  # parsing is what costs; a file without long strings has no docstring worth it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the libraries' strings are their authors' business
        tree = ast.parse(source)
    yield from _of_scope(tree, "")


def _of_scope(scope: _Scope, name: str) -> Iterator[tuple[str, str]]:
    own = ast.get_docstring(scope, clean=False)
    if own:
        yield name, own
    for statement in _statements(scope.body):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}.{statement.name}".lstrip(".")
            for decorator in statement.decorator_list:
                yield from ((inner, text) for text in _introduction(decorator))
            yield from _of_scope(statement, inner)
        elif isinstance(statement, ast.Assign | ast.Expr):
            yield from _assigned(statement, name)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, those under `if`, `try` and `with` included."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _statements(statement.body)
            if not isinstance(statement, ast.With):
                yield from _statements(statement.orelse)
        else:
            yield statement


def _introduction(decorator: ast.expr) -> Iterator[str]:
    if isinstance(decorator, ast.Call) and _called(decorator) == "auto_docstring":
        for keyword in decorator.keywords:
            if keyword.arg == "custom_intro" and (text := _constant(keyword.value)):
                yield text


def _assigned(statement: ast.Assign | ast.Expr, name: str) -> Iterator[tuple[str, str]]:
    """Documentation given by a call or by assigning `__doc__`."""
    value = statement.value
    if isinstance(statement, ast.Assign) and name and ast.unparse(statement.targets[0]) == "__doc__":
        if text := _constant(value):
            yield name, text
    elif isinstance(value, ast.Call) and _ADDED.fullmatch(_called(value)) and len(value.args) > 1:
        target = _target(value.args[-2])
        last = value.args[-1]
        if isinstance(last, ast.Tuple) and len(last.elts) == 2:  # add_newdoc(place, class, (attribute, text))
            target, last = f"{target}.{_target(last.elts[0])}", last.elts[1]
        if text := _constant(last):
            yield target, text


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Name):
        return call.func.id
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _target(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def _constant(node: ast.expr) -> str:
    """The text of a string expression, as far as it is written out: fields to be filled in are left empty."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_constant, node.values))
    if isinstance(node, ast.BinOp):
        return _constant(node.left) + (_constant(node.right) if isinstance(node.op, ast.Add) else "")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        text = _constant(node.func.value)
        return _FIELD.sub("", text).replace("{{", "{").replace("}}", "}") if node.func.attr == "format" else text
    return ""
