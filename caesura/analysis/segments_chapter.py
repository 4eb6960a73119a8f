"""The report's chapter on segments: lengths, the frequent ones, context, boundaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from caesura.analysis import figures as draw
from caesura.analysis import tables
from caesura.analysis.agreement import Agreement
from caesura.analysis.drawings import Figures, each, key, place
from caesura.analysis.findings import Analysis
from caesura.analysis.page import chip, cut, faint, table_html
from caesura.analysis.segments import Segment, SegmentStatistics
from caesura.analysis.tables import Cell, Column, Table

_LENGTHS = 8  # whose segments are shown; the rest is in a fold
# The row that is the reference itself.
_ITSELF = {"white space": "whitespace", "white space, either side": "whitespace", "BPE": "BPE"}


def segments(found: Sequence[Analysis], figures: Figures) -> str:
    """Lengths, frequent segments, context, boundaries."""
    parts = []
    for a in found:
        s = a.segments
        few = f"{s.distinct:,}" if not s.missed else f"at least {s.distinct:,}"
        parts.append(
            f"<p><strong>{escape(a.name)}</strong> made {s.segments:,} segments of {s.characters:,} "
            f"characters, {few} of them different: {s.mean:.2f} characters on average, {s.median:g} in the "
            f"median, {s.longest} at most.{_missed(s.missed)}</p>"
        )
    parts.append(_lengths({a.name: a.segments for a in found}, found, figures, "lengths", "segments"))
    for a in found:
        if any(n > 1 for n in a.segments.top):
            parts += [_frequent(a), _singles(a, figures), _varying(a)]
    written = {a.name: a.target_segments for a in found if a.target_segments}
    parts += [_written(name, s) for name, s in written.items()]
    parts.append(_lengths(written, found, figures, "output-lengths", "segments of translations"))
    listed = tables.segments(found, written=True)
    if listed.rows:
        parts.append(f"<details><summary>The most frequent ones</summary>{table_html(listed)}</details>")
    return "".join(parts) + _boundaries(found)


def _lengths(
    models: Mapping[str, SegmentStatistics],
    found: Sequence[Analysis],
    figures: Figures,
    name: str,
    what: str,
) -> str:
    # A bar at 1 says nothing of a model whose every symbol is a segment, unless there is no other.
    cutting = {n: s for n, s in models.items() if s.longest > 1} or models
    known = {n: s for n, s in cutting.items() if s.segments}
    if not known:
        return ""
    told = each((n, _mode(s.histogram)) for n, s in known.items())
    figure = draw.length_figure(known, [a.name for a in found])
    return place(figures, name, figure, f"How long {what} are: {told}.")


def _missed(missed: int) -> str:
    return f" There were too many to count each: a count may be too low by {missed:,}." if missed else ""


def _mode(histogram: dict[int, int]) -> str:
    length, count = max(histogram.items(), key=lambda item: item[1])
    return f"{count / sum(histogram.values()):.0%} have {length} character{'s' if length > 1 else ''}"


def _frequent(a: Analysis) -> str:
    """The paper's Table 5."""
    rows = []
    for n, listed in a.segments.top.items():
        chips = "".join(chip(s.text, s.count, _told(s)) for s in listed)
        rows.append(f'<tr><td class="n">{n}</td><td>{chips}</td></tr>')
    head = '<thead><tr><th class="n">length</th><th>most frequent segments</th></tr></thead>'

    def table(some: list[str]) -> str:
        return f'<div class="scroll"><table>{head}<tbody>{"".join(some)}</tbody></table></div>'

    more = len(rows) - _LENGTHS
    rest = (
        f"<details><summary>{more} more lengths</summary>{table(rows[_LENGTHS:])}</details>"
        if more > 0
        else ""
    )
    rarest = _rarest(a)
    note = (
        "The small number counts it as a segment. How often each is a part of longer ones, and how often it "
        f"stands in the training text, is in the list ({escape(a.text.training)}).{rarest}"
    )
    title = f"<h3>The most frequent segments of each length: {escape(a.name)}</h3>"
    folded = f"<details><summary>All counts</summary>{table_html(tables.segments([a]))}</details>"
    return f'{title}{table(rows[:_LENGTHS])}{rest}{folded}<p class="note">{note}</p>'


def _told(s: Segment) -> str:
    within = "" if s.within is None else f"; {s.within:,} times within longer segments"
    trained = "" if s.training is None else f"; {s.training:,} times in the training text"
    return f"{s.count:,} times a segment{within}{trained}"


def _rarest(a: Analysis) -> str:
    """How many of the listed segments training never showed, as the paper found for long ones."""
    listed = [s for some in a.segments.top.values() for s in some if s.training is not None]
    absent = sum(s.training == 0 for s in listed)
    return f" Of the {len(listed)} listed, {absent} never occur there." if listed else ""


def _singles(a: Analysis, figures: Figures) -> str:
    shown = [c for c in a.segments.singles if c.alone + c.within]
    if not any(c.within for c in shown):
        return ""
    both = [c for c in shown if c.alone and c.within]
    told = ""
    if both:
        c = max(both, key=lambda c: min(c.alone, c.within))
        told = (
            f": {faint(c.text)} is {c.alone:,} times a segment of its own and {c.within:,} times within one"
        )
    caption = f"{escape(a.name)}, the most frequent characters, alone and within longer segments{told}."
    return place(figures, f"characters-{key(a)}", draw.singles_figure(shown), caption)


def _varying(a: Analysis) -> str:
    if not a.contexts:
        return "<p>No string of three to eight letters comes twice: cuts in context were not compared.</p>"
    if not a.varying:
        what = f"each of {a.contexts:,} strings of three to eight letters"
        return f"<p>{escape(a.name)} cuts {what} the same way wherever it stands.</p>"
    rows = []
    for v in a.varying[:10]:
        cells = "".join(f'<td>{cut(p)}<small class="muted">{n:,}×</small></td>' for p, n in v.cuts[:3])
        cells += "<td></td>" * (3 - len(v.cuts[:3]))
        share = v.unusual / v.occurrences
        rows.append(
            f'<tr><td><bdi>{escape(v.text)}</bdi></td><td class="n">{v.occurrences:,}</td>'
            f'<td class="n">{share:.0%}</td>{cells}</tr>'
        )
    head = (
        '<thead><tr><th>string</th><th class="n">occurs</th><th class="n">cut otherwise</th>'
        "<th>usual cut</th><th>second</th><th>third</th></tr></thead>"
    )
    v = a.varying[0]
    said = f"of {v.occurrences:,} times that ‘{escape(v.text)}’ occurs, {v.unusual:,} are not cut as usual"
    return (
        f"<h3>The same string, cut differently: {escape(a.name)}</h3>"
        f"<p>Segments depend on their context: {said}.</p>"
        f'<div class="scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'
    )


def _written(name: str, s: SegmentStatistics) -> str:
    return (
        f"<p>The decoder of <strong>{escape(name)}</strong> writes {s.mean:.2f} characters a segment "
        f"(longest {s.longest}), {s.distinct:,} different ones.</p>"
    )


def _boundaries(found: Sequence[Analysis]) -> str:
    """A table a reference: the models first, then cuts that know nothing."""
    names = list(dict.fromkeys(t.reference for a in found for t in a.agreements))
    parts = ["<h3>Boundaries beside others’</h3>"] if names else []
    for name in names:
        parts.append(
            _against(
                name,
                [(a.name, t) for a in found for t in a.agreements if t.reference == name],
                found[0].text.sentences,
            )
        )
    return "".join(parts)


def _against(name: str, found: Sequence[tuple[str, Agreement]], lines: int) -> str:
    first = found[0][1]
    models = [(model, table.rows["model"]) for model, table in found]
    others = [
        (row, s) for row, s in first.rows.items() if row not in ("model", _ITSELF.get(name)) and s.correct
    ]
    rows: list[list[Cell]] = [[row, s.precision, s.recall, s.f1] for row, s in (*models, *others)]
    columns = [Column(f"against {name}"), *(Column(head, ".3f") for head in ("precision", "recall", "F1"))]
    beside = max(others, key=lambda pair: pair[1].f1, default=None)
    than = f"; of the others {beside[0]} comes closest with {beside[1].f1:.2f}" if beside else ""
    about = f"{escape(first.about[:1].upper() + first.about[1:])}, {models[0][1].gold:,} boundaries"
    if not first.alone:
        about += f" on {first.sentences:,} of {lines:,} lines"
    reached = " and ".join(f"{escape(model)} {s.f1:.2f}" for model, s in models)
    note = f"{about}. F1: {reached}{than}."
    own = models[0][0] if len(found) == 1 else ""
    return table_html(Table("boundaries", f"boundaries against {name}", columns, rows), own, note)
