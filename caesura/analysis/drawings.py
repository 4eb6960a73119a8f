"""Figures on their way into a report, and phrases that its chapters share."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib.figure import Figure

from caesura.analysis.findings import Analysis
from caesura.analysis.maps import STEPS
from caesura.analysis.page import figure_html
from caesura.analysis.plots import svg_of


@dataclass(frozen=True)
class Drawing:
    """A figure and its SVG."""

    figure: Figure
    svg: str


Figures = dict[str, Drawing]


def place(figures: Figures, name: str, figure: Figure, caption: str) -> str:
    """Add a figure under its own name; returns its HTML."""
    while name in figures:
        name += "-2"
    figures[name] = Drawing(figure, svg_of(figure))
    return figure_html(name, figures[name].svg, caption)


def key(a: Analysis) -> str:
    """A model's name as a part of file names and anchors."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", a.name).rstrip("-")


def each(phrases: Iterable[tuple[str, str]]) -> str:
    """Something said of each model; of a single one without its name."""
    pairs = list(phrases)
    return pairs[0][1] if len(pairs) == 1 else ", ".join(f"{text} ({escape(name)})" for name, text in pairs)


def cut_off(*sides: Sequence[str]) -> str:
    """A note if a picture does not show all of a line."""
    most = max(map(len, sides))
    return f" (the first {STEPS} of {most:,} steps)" if most > STEPS else ""


def together(pairs: Iterable[tuple[Analysis, Hashable]]) -> list[tuple[Any, list[Analysis]]]:
    """Models with the same content together: each content with its models, in their order."""
    groups: dict[Any, list[Analysis]] = {}
    for a, content in pairs:
        groups.setdefault(content, []).append(a)
    return list(groups.items())


def names(alike: Iterable[Analysis]) -> str:
    """The names of models that share a drawing."""
    return ", ".join(escape(a.name) for a in alike)


def count(n: int, what: str) -> str:
    """A number of things: 1 segment, 2,000 segments."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"
