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

# What a figure's colours are called in the page, so that it follows light and dark.
_COLOURS = {
    INK: "--ink", AXIS: "--axis", FAINT: "--grid",
    **{colour: f"--c{i}" for i, colour in enumerate(COLOURS, 1)},
}  # fmt: skip


def page(title: str, head: str, sections: Sequence[tuple[str, str, str]], foot: str) -> str:
    """A whole page: (anchor, heading, body) of each section, linked from the top."""
    links = "".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name, _ in sections)
    bodies = "".join(
        f'<section id="{key}"><h2>{escape(name)}</h2>{body}</section>\n' for key, name, body in sections
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
    """A cut text: pieces in turning tints, spaces faint but there, in its own direction."""
    shown = "".join(f"<b>{faint(piece)}</b>" for piece in pieces)
    return f'<div class="{kind}" dir="auto">{shown}</div>'


def faint(text: str) -> str:
    """Text with its spaces visible."""
    return escape(visible(text)).replace("␣", "<i>␣</i>")


def chip(text: str, count: int, told: str) -> str:
    """A segment with its count; `told` is shown when it is pointed at."""
    return (
        f'<span class="chip" title="{escape(told)}"><bdi>{faint(text)}</bdi><small>{count:,}</small></span>'
    )


def table_html(table: Table, own: str = "", note: str = "") -> str:
    """A table that scrolls inside itself; rows whose first or third cell is `own` stand out."""
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
            kind for kind, yes in (("own", bool(own) and own in row), ("first", row[0] != before)) if yes
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
    """A figure inside the page: text stays text, colours are the page's; wide ones scroll."""
    shown = inline_svg(name, svg, caption)
    return f'<figure id="{name}"><div class="scroll">{shown}</div><figcaption>{caption}</figcaption></figure>'


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
    found = re.search(r'width="([\d.]+)pt"', svg)
    width = float(found[1]) * 4 / 3 if found else 0.0
    least = f"min-width:{width * 0.8:.0f}px;" if width > 832 else ""
    plain = escape(re.sub(r"<[^>]+>", "", label), quote=True)
    for size in ("width", "height"):
        svg = re.sub(rf'(<svg[^>]*?) {size}="[^"]+"', r"\1", svg, count=1)
    attributes = (
        f'role="img" aria-label="{plain}" style="--width:{width:.0f}px;{least}max-width:var(--width)"'
    )
    return svg.replace("<svg ", f"<svg {attributes} ", 1).strip()
