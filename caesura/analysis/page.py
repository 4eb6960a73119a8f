"""The parts that a report's page is made of: style, tables, figures, segments. HTML in, nothing fetched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from caesura.analysis.characters import visible
from caesura.analysis.plots import AXIS, COLOURS, FAINT, INK
from caesura.analysis.tables import Table

_STYLE = Path(__file__).with_name("report.css").read_text(encoding="utf-8")

NARROW = 500  # pixels: figures up to here shrink by SHRINKS on a phone, wider ones scroll there
SHRINKS = 0.8

# Names of a figure's colours in the page, so that they follow light and dark mode.
_COLOURS = {
    INK: "--ink", AXIS: "--axis", FAINT: "--grid",
    **{colour: f"--c{i}" for i, colour in enumerate(COLOURS, 1)},
}  # fmt: skip


def page(title: str, head: str, sections: Sequence[tuple[str, str, str, str]], foot: str) -> str:
    """A whole page: (anchor, heading, what is in it, body) of each section, folded and linked from the top.

    A link to what is inside a fold opens it, so the anchors are inside; printing opens all.
    """
    links = "".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name, *_ in sections)
    bodies = "".join(
        f"<section><details><summary><h2>{escape(name)}</h2> {escape(about)}</summary>"
        f'<div id="{key}">{body}</div></details></section>\n'
        for key, name, about, body in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>"
        f'<header>{head}</header>\n<nav aria-label="Sections"><ol>{links}</ol></nav>\n'
        f"<main>{bodies}</main>\n<footer>{foot}</footer></body></html>\n"
    )


def cut(pieces: Sequence[str], kind: str = "cut") -> str:
    """A cut text: pieces in turning tints, spaces faint but there, in its own direction.

    Lines break between pieces and never inside one.
    """
    shown = "<wbr>".join(f"<b>{faint(piece)}</b>" for piece in pieces)
    return f'<div class="{kind}" dir="auto">{shown}</div>'


def faint(text: str) -> str:
    """Text with its spaces visible."""
    return escape(visible(text)).replace("␣", "<i>␣</i>")


def chip(text: str, count: int, hint: str) -> str:
    """A segment with its count; a pointer over it shows the hint."""
    return (
        f'<span class="chip" title="{escape(hint)}"><bdi>{faint(text)}</bdi><small>{count:,}</small></span>'
    )


def fold(name: str, body: str) -> str:
    """Something to open; nothing where there is nothing inside."""
    return f"<details><summary>{name}</summary>{body}</details>" if body else ""


def row(parts: Sequence[str]) -> str:
    """Figures or tables side by side, as many as fit."""
    shown = "".join(parts)
    return f'<div class="row">{shown}</div>' if shown else ""


def table_html(table: Table, emphasis: str = "", note: str = "") -> str:
    """A table that scrolls inside itself; rows whose first or third cell is the `emphasis` stand out."""
    head = "".join(
        f'<th scope="col"{_kind(column.form)}>{escape(column.name)}</th>' for column in table.columns
    )
    rows, before = [], None
    for row in table.rows:
        cells = "".join(
            f"<td{_kind(column.form, len(shown))}><bdi>{escape(shown)}</bdi></td>"
            for column, cell in zip(table.columns, row, strict=True)
            for shown in [column.show(cell)]
        )
        kinds = [
            kind
            for kind, yes in (("own", bool(emphasis) and emphasis in row), ("first", row[0] != before))
            if yes
        ]
        rows.append(f'<tr class="{" ".join(kinds)}">{cells}</tr>' if kinds else f"<tr>{cells}</tr>")
        before = row[0]
    under = f'<p class="note">{note}</p>' if note else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table aria-label="{escape(table.title)}">{body}</table></div>{under}'


def _kind(form: str, length: int = 0) -> str:
    if form:
        return ' class="n"'
    return ' class="wide"' if length > 60 else ""


def figure_html(name: str, svg: str, caption: str) -> str:
    """A figure inside the page: text stays text, colours are the page's.

    It shrinks no further than its text can be read; where that is too wide it scrolls, and says so.
    """
    size = re.search(r'width="([\d.]+)pt"', svg)
    width = float(size[1]) * 4 / 3 if size else 0.0
    least = width * SHRINKS if width <= NARROW else width
    shown = inline_svg(name, svg, caption)
    return (
        f'<figure id="{name}" style="--least:{least:.0f}px;--width:{width:.0f}px">'
        f'<div class="scroll">{shown}</div>'
        f'<span class="more">scroll →&nbsp; </span><figcaption>{caption}</figcaption></figure>'
    )


def inline_svg(name: str, svg: str, label: str) -> str:
    """An SVG file as an element of the page, with names of its own and the page's colours and fonts."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: var(--sans)", svg)
    for colour, variable in _COLOURS.items():
        svg = re.sub(re.escape(colour), f"var({variable})", svg, flags=re.IGNORECASE)
    svg = re.sub(
        r'(<text style="[^"]*fill: )var\(--c', r"\1var(--t", svg
    )  # text wants more contrast than lines
    plain = escape(re.sub(r"<[^>]+>", "", label), quote=True)
    for size in ("width", "height"):
        svg = re.sub(rf'(<svg[^>]*?) {size}="[^"]+"', r"\1", svg, count=1)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{plain}" ', 1).strip()
