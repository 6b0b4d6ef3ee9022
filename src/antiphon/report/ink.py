"""Drawing on paper of unknown colour: figures are drawn in marker colours, which become CSS variables in the SVG.

So one picture serves light and dark mode, takes the page's font, and prints the same bytes every time.
"""

from __future__ import annotations

import contextlib
import html
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010101"
FAINT = "#020202"
GRID = "#030303"
PAPER = "#040404"

WIDTH = 270  # points, drawn 360 CSS pixels wide: text of 9 points is 12 pixels on a phone
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "p")
# The same shapes as SVG paths in a box from -5 to 5, for the page's tables and keys.
SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.6 -3.6h7.2v7.2h-7.2z",
    "M0 -5L5 0L0 5L-5 0z",
    "M0 -4.4L4.6 4H-4.6z",
    "M0 4.4L4.6 -4H-4.6z",
    "M-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "M-4 -2l2 -2l2 2l2 -2l2 2l-2 2l2 2l-2 2l-2 -2l-2 2l-2 -2l2 -2z",
    "M0 -4.6L4.5 -1.3L2.8 4H-2.8L-4.5 -1.3z",
)
NUM_COLOURS = 8
NUM_SHADES = 5

# The page's style sheet gives these variables a value for each mode.
_VARIABLES = {
    INK: "currentColor",
    FAINT: "var(--faint)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{f"#0a0a{index:02x}": f"var(--arm-{index})" for index in range(NUM_COLOURS)},
    **{f"#0b0b{index:02x}": f"var(--shade-{index})" for index in range(NUM_SHADES)},
}

_SETTINGS: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar in an arm's name is a dollar
    "font.size": 9,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def colour(index: int) -> str:
    """The marker colour of an arm, by its place among the arms."""
    return f"#0a0a{index % NUM_COLOURS:02x}"


def shade(index: int) -> str:
    """The marker colour of a phase's background, by the place of its objective."""
    return f"#0b0b{index % NUM_SHADES:02x}"


def marker(index: int) -> str:
    """The marker shape of an arm, so that colour is never the only sign."""
    return MARKERS[index % len(MARKERS)]


@contextlib.contextmanager
def paper(height: float, left: float, right: float, top: float, bottom: float) -> Iterator[tuple[Figure, Axes]]:
    """An empty figure of the page's width with one set of axes, under this module's settings.

    Args:
        height: of the figure, in points, as all lengths.
        left, right, top, bottom: margins around the axes.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        # The reader's own matplotlibrc must not show in the page.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        figure = Figure(figsize=(WIDTH / 72, height / 72))
        width = WIDTH - left - right
        axes = figure.add_axes((left / WIDTH, bottom / height, width / WIDTH, (height - top - bottom) / height))
        yield figure, axes


def svg(figure: Figure, name: str, label: str) -> str:
    """The figure as an SVG element for a page; to be called while its `paper` is open.

    Args:
        figure: drawn in this module's marker colours.
        name: unique on the page; ids inside the picture are derived from it.
        label: what the picture shows, for readers who cannot see it.
    """
    import matplotlib

    stream = io.StringIO()
    matplotlib.rcParams["svg.hashsalt"] = name
    with warnings.catch_warnings():
        # The reader's browser brings the font; ours only measures.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style type=\"text/css\">.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # groups are never referred to; markers and clips are
    text = text.replace("xlink:href", "href")
    text = re.sub(r"font: (?:(\w+) )?([\d.]+)px [^;\"]*", _font, text)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), text)
    text = re.sub(r"#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), text)
    size = re.search(r'viewBox="([^"]*)"', text)
    assert size is not None
    body = re.sub(r"\n\s*", "\n", text[text.index(">") + 1 :].strip())
    return f'<svg role="img" aria-label="{html.escape(label)}" viewBox="{size[1]}">{body}'


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones, at least `gap` apart and inside [low, high] as far as there is room, order kept."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    groups: list[tuple[float, int]] = []  # (sum of wanted places, members); a group stands centred on its mean
    for index in order:
        groups.append((wanted[index], 1))
        while len(groups) > 1 and _top(groups[-2], gap) > _bottom(groups[-1], gap):
            (one, members), (other, others) = groups[-2:]
            groups[-2:] = [(one + other, members + others)]
    places = [_bottom(group, gap) + gap * (0.5 + step) for group in groups for step in range(group[1])]
    places = _pushed(places, gap, low)
    places = [-place for place in reversed(_pushed([-place for place in reversed(places)], gap, -high))]
    found = [0.0] * len(wanted)
    for place, index in zip(places, order, strict=True):
        found[index] = place
    return found


def _pushed(places: list[float], gap: float, low: float) -> list[float]:
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + gap if found else low))
    return found


def _bottom(group: tuple[float, int], gap: float) -> float:
    return group[0] / group[1] - gap * group[1] / 2


def _top(group: tuple[float, int], gap: float) -> float:
    return group[0] / group[1] + gap * group[1] / 2


def _font(found: re.Match[str]) -> str:
    weight = f"font-weight: {found[1]}; " if found[1] else ""
    return f"{weight}font-size: {found[2]}px"
