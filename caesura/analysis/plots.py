"""House style of figures, and the parts that several of them share; nothing is measured here, only drawn."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from io import BytesIO
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple, ParamSpec

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure as PlainFigure

from caesura.data.files import write_whole
from caesura.data.held import make_folder

# Okabe and Ito's palette, for all kinds of colour vision; its yellow is too faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
INK, AXIS, FAINT = "#333333", "#999999", "#DDDDDD"
# One font per script is enough; those that are not installed are passed over.
FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans JP",
    "Source Han Sans",
    "IPAexGothic",
    "Hiragino Sans",
    "Yu Gothic",
    "Microsoft YaHei",
    "WenQuanYi Zen Hei",
    "Arial Unicode MS",
)
_SAVED: dict[str, dict[str, Any]] = {
    "png": {"dpi": 160, "metadata": {"Software": None}},
    "svg": {"metadata": {"Date": None, "Creator": None}},
}

P = ParamSpec("P")


class Figure(PlainFigure):
    """A figure that a notebook shows when it is the value of a cell, in the house style."""

    def _repr_png_(self) -> bytes:
        return png_of(self)


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """The figure drawn in the house style."""

    @wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with style():
            return draw(*args, **kwargs)

    return wrapped


def blank(width: float, height: float, title: str = "") -> tuple[Figure, Axes]:
    """A figure of so many inches and its axes, under a title if there is one."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    if title:
        axes.set_title(title[0].upper() + title[1:], loc="left", fontsize=10.5, pad=9)
    return figure, axes


def label_ends(axes: Axes, ends: Sequence[tuple[str, str, float, float]], gap: float) -> None:
    """Name each line (name, colour, and its last point) at the right edge, the names `gap` apart."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)  # fixed now: the labels' heights are fractions of it
    heights = [(y - low) / (high - low) for _, _, _, y in ends]
    leader = {"arrowstyle": "-", "linewidth": 0.5, "alpha": 0.6, "relpos": (0, 0.5)}
    for (name, colour, x, y), place in zip(ends, spread(heights, gap), strict=True):
        axes.annotate(
            name, xy=(x, y), xytext=(1.03, place), textcoords="axes fraction", annotation_clip=False,
            color=colour, fontsize=9, va="center", ha="left",
            arrowprops=leader | {"color": colour, "shrinkA": 1, "shrinkB": 3},
        )  # fmt: skip


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Moves heights apart to at least `gap`, within 0 to 1 if they fit, by the least squared movement in all.

    With i * gap taken off the i-th height from below, "at least gap apart" reads "never falling": this is
    isotonic regression, solved by pooling neighbours that fall.
    """
    order = sorted(range(len(heights)), key=heights.__getitem__)
    pools: list[list[float]] = []
    for i, index in enumerate(order):
        pools.append([heights[index] - i * gap])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    room = 1 - gap * (len(heights) - 1)
    low, high = (0.0, room) if room >= 0 else (room / 2, room / 2)
    levels = [min(max(fmean(pool), low), high) for pool in pools for _ in pool]
    result = [0.0] * len(heights)
    for i, index in enumerate(order):
        result[index] = levels[i] + i * gap
    return result


class Look(NamedTuple):
    """The look of a run among others."""

    colour: str
    dashes: Any
    marker: str


def looks() -> Iterator[Look]:
    """The look of each run in turn; colours first, so that dashes and other markers come with the eighth."""
    for dashes, marker in cycle([("solid", "o"), ((0, (4, 1.5)), "s"), ((0, (1, 1.2)), "^")]):
        for colour in COLOURS:
            yield Look(colour, dashes, marker)


def short(number: float, _: object = None) -> str:
    """1234567 as 1.23M: a count that fits under a tick; a formatter of axes as well."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.3g}"


@contextmanager
def style() -> Iterator[None]:
    """House style and fonts for what is drawn and saved inside; the settings before come back afterwards."""
    installed = set(font_manager.get_font_names())
    settings: dict[Any, Any] = {
        "font.family": [font for font in FONTS if font in installed],
        "font.size": 9.5,
        "text.color": INK,
        "text.parse_math": False,  # names and segments are shown as they are
        "axes.labelcolor": INK,
        "axes.edgecolor": AXIS,
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": FAINT,
        "grid.linewidth": 0.6,
        "xtick.color": AXIS,
        "ytick.color": AXIS,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "svg.hashsalt": "caesura",
        "svg.fonttype": "none",  # text stays text: searchable, and the reader's fonts fill what ours lack
    }
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        # A letter that no installed font has becomes a box, which needs no warning.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        # On a busy machine placing a legend may take more than a second, which matplotlib warns of.
        warnings.filterwarnings("ignore", message='Creating legend with loc="best" can be slow')
        yield


def save(figure: PlainFigure, stem: Path) -> tuple[Path, Path]:
    """Writes PNG and SVG without date or version, so that a figure changes only when its contents do."""
    make_folder(stem.parent)
    png, svg = stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg")
    write_whole(png, _saved(figure, "png", bbox_inches="tight"))
    write_whole(svg, _saved(figure, "svg", bbox_inches="tight"))
    return png, svg


def svg_of(figure: PlainFigure) -> str:
    """The figure as SVG on no background, so that it can stand on any; equal input, equal text."""
    svg = _saved(figure, "svg", transparent=True).decode()
    figure.set_layout_engine("none")  # it is laid out now, which takes as long as drawing does
    return svg


def png_of(figure: PlainFigure) -> bytes:
    """The figure as PNG on white."""
    return _saved(figure, "png", facecolor="white")


def _saved(figure: PlainFigure, kind: Literal["png", "svg"], **options: Any) -> bytes:
    buffer = BytesIO()
    with style():
        figure.savefig(buffer, format=kind, **_SAVED[kind], **options)
    return buffer.getvalue()
