"""Markup out, words kept: one paragraph of a docstring as plain text, with the places the author marked as code.

Covers what Python documentation is written in: reStructuredText roles and literals (Sphinx, numpydoc), Markdown links
and back-ticks, the HTML tags of the transformers pages, and LaTeX, which is reduced to something readable.

Source: docutils' reStructuredText markup specification; Sphinx' "Roles"; numpydoc's style guide.
"""

from __future__ import annotations

import re

Span = tuple[int, int]

# Private marks around code while a paragraph is being cleaned; no docstring holds them (`clean` removes them first).
_OPEN, _CLOSE = "\x02", "\x03"

_CODE_ROLES = frozenset(
    (
        *("attr", "attribute", "class", "code", "const", "data", "envvar", "exc", "func", "function", "literal"),
        *("meth", "method", "mod", "module", "obj", "samp"),
    )
)
_TAGS = "a|b|br|center|code|div|em|frameworkcontent|hfoptions?|i|iframe|img|jax|li|ol|p|pre|pt|small|span|strong|su[bp]"
_TAG = re.compile(rf"</?(?:{_TAGS}|table|td|tf|th|Tip|tr|u|ul|Youtube)\b[^<>]*/?>", re.IGNORECASE)
_FOOTNOTE = re.compile(r"\s*\[[\w.+#*-]+\]_(?!\w)")
_ROLE = re.compile(r":([A-Za-z][\w:+.-]*):`([^`]*)`")
_BROKEN_ROLE = re.compile(r":(?:py:)?(?:attr|class|func|math|meth|mod|obj|ref|term):[ '\"]?(?=\S)")
_LITERAL = re.compile(r"``(.+?)``(?!`)")
_HYPERLINK = re.compile(r"`([^`<>]+?)\s*<[^`<>]*>`_{0,2}")
_PHRASE_REFERENCE = re.compile(r"`([^`]+)`__?(?!\w)")
_MARKDOWN_CODE_LINK = re.compile(r"\[`([^`\]]+)`\](?:\([^()\s]*\))?")
_MARKDOWN_LINK = re.compile(r"!?\[([^\[\]]+)\]\((?:https?:|\.|/|#)[^()\s]*\)")
_BACK_TICKS = re.compile(r"`([^`]+)`")
_URL = re.compile(r"<?\b(?:https?|ftp)://[^\s<>]*[^\s<>.,;:!?)\]'\"]/?>?")
_BOLD = re.compile(r"\*\*(?=[^\s*])(.+?)(?<=[^\s*])\*\*(?!\w)")
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=[^\s*])\*(?![\w*])")
_DOLLARS = re.compile(r"\$\$(.+?)\$\$|(?<![\w$])\$(?=\S)([^$]{1,200}?)(?<=\S)\$(?![\w$])")
_PLACEHOLDER = re.compile(r"%\(\w+\)s|(?<!\{)\{[a-z]\w*(?:note|doc|args?)\w*\}|\|\w[\w ]*\|_?")
_SPACE_AFTER = re.compile(r"\(\s+")
_SPACE_BEFORE = re.compile(rf"\s+(?=[,;.:!?)](?:[\s{_CLOSE}]|$))")

# A span longer than this is a sentence somebody quoted, not code.
_LONGEST_CODE_WORDS = 6


def clean(paragraph: str) -> tuple[str, tuple[Span, ...]]:
    """One paragraph without its markup.

    Args:
        paragraph: text of one paragraph; line breaks count as spaces.

    Returns:
        The plain text with single spaces, and the (start, end) character spans of what was marked as code in it.
    """
    text = paragraph.replace(_OPEN, " ").replace(_CLOSE, " ").replace("\\`", "`")
    text = " ".join(text.split())
    if "]_" in text:
        text = _FOOTNOTE.sub("", text)
    if "`" in text:
        text = _ROLE.sub(_role, text)
        text = _LITERAL.sub(lambda found: _code(found[1]), text)
        text = _HYPERLINK.sub(r"\1", text)
        text = _PHRASE_REFERENCE.sub(r"\1", text)
        text = _MARKDOWN_CODE_LINK.sub(lambda found: _code(_last_of_tilde(found[1])), text)
    text = _MARKDOWN_LINK.sub(r"\1", text)
    text = _BACK_TICKS.sub(lambda found: _code(_last_of_tilde(found[1])), text)
    if re.search(r"[\\*$<%{|`]|://", text):
        text = _outside_code(text, _prose)
    return _plain(_BROKEN_ROLE.sub("", text))


def reduce_math(latex: str) -> str:
    r"""LaTeX as readable text: `\frac{a}{b}` gives "(a) / (b)", `\text{out}_i` "out_i", `\alpha` "alpha"."""
    text = re.sub(r"\\(?:begin|end)\s*\{\w+\*?\}|\\label\{[^{}]*\}|&|\\\\", " ", latex)
    for _ in range(4):  # nested braces, from the inside out
        text = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"(\1) / (\2)", text)
        text = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r"sqrt(\1)", text)
        text = _STYLED.sub(r"\1", text)
        text = re.sub(r"([_^])\{([\w\\]*)\}", r"\1\2", text)
        text = re.sub(r"([_^])\{([^{}]*)\}", r"\1(\2)", text)
        text = re.sub(r"(?<!\\)\{([^{}\\]*)\}", r"\1", text)
    for pattern, word in _SYMBOLS:
        text = pattern.sub(word, text)
    text = re.sub(r"\\([A-Za-z]+)\s*", r" \1 ", text)
    text = re.sub(r"\\[,;:!> ]", " ", text).replace("\\", "")
    text = re.sub(r"([_^])\s+", r"\1", text)
    text = re.sub(r"\s+([,.;)\]_^])", r"\1", re.sub(r"([(\[])\s+", r"\1", text))
    return " ".join(text.split())


_STYLED = re.compile(r"\\(?:text|math|operator|bo?ld|rm|bm|hat|bar|tilde|vec|over|under)\w*\s*\{([^{}]*)\}")
_SYMBOLS = tuple(
    (re.compile(rf"\\(?:{commands})(?![A-Za-z])\s?"), word)
    for commands, word in (
        ("left|right|[bB]ig+[lr]?|displaystyle|limits|quad|qquad|mathbf|mathrm|nonumber|hspace|rm|bf|it", " "),
        ("times", " x "),
        ("cdot|ast|star", " * "),
        ("leq?", " <= "),
        ("geq?", " >= "),
        ("neq?", " != "),
        ("approx|sim", " ~ "),
        ("equiv", " = "),
        ("infty", "infinity"),
        ("[lcd]?dots", "..."),
        ("(?:long)?(?:right|left)?arrow|to", " -> "),
        ("lVert|rVert|Vert|[lr]?vert|mid", "|"),
        ("lfloor", "floor("),
        ("lceil", "ceil("),
        ("rfloor|rceil", ")"),
        ("lbrace", "{"),
        ("rbrace", "}"),
    )
)


def _role(found: re.Match[str]) -> str:
    role, body = found[1].rsplit(":", 1)[-1], found[2]
    if role in ("math", "sup", "sub"):
        return reduce_math(body)
    titled = re.fullmatch(r"(.+?)\s*<[^<>]*>", body)
    body = titled[1] if titled else _last_of_tilde(body)
    if role in _CODE_ROLES:
        return _code(body)
    if role == "ref" and not titled and not body.startswith("sphx_"):
        return re.sub(r"[_-]+", " ", body)  # Sphinx shows the title of the section, which the label abbreviates
    return body if titled or role in ("term", "dfn", "any") else ""


def _last_of_tilde(target: str) -> str:
    """What Sphinx shows of a target: `~a.b.C` shows C, `!C` shows C."""
    target = target.strip().removeprefix("!")
    return re.sub(r"^[\w.]*\.(?=\w)", "", target[1:]) if target.startswith("~") else target


def _code(body: str) -> str:
    body = body.strip(" `")
    if re.search(r"\\[a-zA-Z]{2,}|[_^]\{", body):
        return reduce_math(body)
    if not re.search(r"\w", body) or len(body.split()) > _LONGEST_CODE_WORDS:
        return body
    return f"{_OPEN}{body}{_CLOSE}"


def _prose(text: str) -> str:
    text = _DOLLARS.sub(lambda found: reduce_math(found[1] or found[2]), text)
    text = _URL.sub("", text)
    text = _TAG.sub(" ", text)
    text = _BOLD.sub(r"\1", text)
    text = _EMPHASIS.sub(r"\1", text)
    text = _PLACEHOLDER.sub("", text)
    if re.search(r"\\(?:[dt]?frac|text|math\w+|sum|sqrt|left|right|times|cdot|leq?|geq?|in|infty)\b", text):
        text = reduce_math(text)
    return re.sub(r"\\(?=[^\w\s]|_|\s)", "", text).replace("`", "")


def _outside_code(text: str, change) -> str:
    """Apply `change` to what lies between the code spans, code standing in as an opaque mark."""
    codes: list[str] = []

    def hide(found: re.Match[str]) -> str:
        codes.append(found[0])
        return f"{_OPEN}{len(codes) - 1}{_CLOSE}"

    hidden = change(re.sub(f"{_OPEN}[^{_OPEN}{_CLOSE}]*{_CLOSE}", hide, text))
    return re.sub(f"{_OPEN}(\\d+){_CLOSE}", lambda found: codes[int(found[1])], hidden)


def _plain(marked: str) -> tuple[str, tuple[Span, ...]]:
    """Take the private marks out of a marked text and say where they were."""
    marked = _SPACE_BEFORE.sub("", _SPACE_AFTER.sub("(", " ".join(marked.split()))).replace(" ()", "")
    pieces: list[str] = []
    spans: list[Span] = []
    length = start = 0
    for piece in re.split(f"([{_OPEN}{_CLOSE}])", marked):
        if piece == _OPEN:
            start = length
        elif piece == _CLOSE:
            spans.append((start, length))
        else:
            pieces.append(piece)
            length += len(piece)
    return "".join(pieces), tuple(spans)
