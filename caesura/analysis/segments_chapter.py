"""The report's chapter on segments: lengths, the frequent ones, context, boundaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from caesura.analysis import figures as draw
from caesura.analysis import tables
from caesura.analysis.agreement import Agreement
from caesura.analysis.drawings import Figures, count, each, key, names, place, together
from caesura.analysis.findings import Analysis
from caesura.analysis.page import chip, cut, faint, fold, row, table_html
from caesura.analysis.segments import Segment, SegmentStatistics
from caesura.analysis.tables import Column, Table

_LENGTHS = 8  # whose segments are shown; the rest is in a fold
# The row that is the reference itself.
_ITSELF = {"white space": "whitespace", "white space, either side": "whitespace", "BPE": "BPE"}


def segments(models: Sequence[Analysis], figures: Figures) -> str:
    """Lengths, boundaries, frequent segments, context."""
    parts = [table_html(tables.summary(models), note=_missed(models))]
    parts.append(_lengths({a.name: a.segments for a in models}, models, figures, "lengths", "segments"))
    parts.append(_boundaries(models))
    cutting = [a for a in models if any(n > 1 for n in a.segments.top)]
    for html, alike in together((a, _frequent(a)) for a in cutting):
        parts.append(fold(f"The most frequent segments of each length: {names(alike)}", html))
    for html, alike in together((a, _varying(a)) for a in cutting):
        parts.append(fold(f"The same string, cut differently: {names(alike)}", html))
    singles = row([_singles(a, figures) for a in cutting])
    parts.append(fold("Characters alone and within longer segments", singles))
    return "".join([*parts, *_written(models, figures)])


def _lengths(
    segments: Mapping[str, SegmentStatistics],
    models: Sequence[Analysis],
    figures: Figures,
    name: str,
    what: str,
) -> str:
    # Models whose every symbol is a segment are left out, unless there are no others.
    cutting = {n: s for n, s in segments.items() if s.longest > 1} or segments
    drawn = {n: s for n, s in cutting.items() if s.segments}
    if not drawn:
        return ""
    modes = each((n, _mode(s.histogram)) for n, s in drawn.items())
    figure = draw.length_figure(drawn, [a.name for a in models])
    return place(figures, name, figure, f"How long {what} are: {modes}.")


def _missed(models: Sequence[Analysis]) -> str:
    counts = each((a.name, f"{a.segments.missed:,}") for a in models if a.segments.missed)
    note = f"Too many were distinct to count each: there are more, and a count may be too low by {counts}."
    return note if counts else ""


def _mode(histogram: dict[int, int]) -> str:
    length, most = max(histogram.items(), key=lambda item: item[1])
    return f"{most / sum(histogram.values()):.0%} have {count(length, 'character')}"


def _frequent(a: Analysis) -> str:
    """The paper's Table 5."""
    rows = []
    for n, listed in a.segments.top.items():
        chips = "".join(chip(s.text, s.count, _hint(s)) for s in listed)
        rows.append(f'<tr><td class="n">{n}</td><td class="chips">{chips}</td></tr>')
    head = '<thead><tr><th class="n">length</th><th>most frequent segments</th></tr></thead>'

    def table(lines: list[str]) -> str:
        return f'<div class="scroll"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>'

    more = rows[_LENGTHS:]
    rest = fold(count(len(more), "more length"), table(more)) if more else ""
    rarest = _rarest(a)
    note = (
        "The small number counts it as a segment. How often each is a part of longer ones, and how often it "
        f"stands in the training text, is in the list ({escape(a.text.training)}).{rarest}"
    )
    full = tables.segments([a])
    counts = Table(full.key, full.title, full.columns[1:], [cells[1:] for cells in full.rows])
    folded = fold("All counts", table_html(counts))
    return f'{table(rows[:_LENGTHS])}{rest}{folded}<p class="note">{note}</p>'


def _hint(s: Segment) -> str:
    within = "" if s.within is None else f"; {count(s.within, 'time')} within longer segments"
    trained = "" if s.training is None else f"; {count(s.training, 'time')} in the training text"
    return f"{count(s.count, 'time')} a segment{within}{trained}"


def _rarest(a: Analysis) -> str:
    """How many of the listed segments training never showed; in the paper, many long ones."""
    listed = [s for segments in a.segments.top.values() for s in segments if s.training is not None]
    absent = sum(s.training == 0 for s in listed)
    return (
        f" Of {len(listed)} listed, {absent or 'none'} {'is' if absent == 1 else 'are'} missing there."
        if listed
        else ""
    )


def _singles(a: Analysis, figures: Figures) -> str:
    shown = [c for c in a.segments.singles if c.alone + c.within]
    if not any(c.within for c in shown):
        return ""
    mixed = [c for c in shown if c.alone and c.within]
    example = ""
    if mixed:
        c = max(mixed, key=lambda c: min(c.alone, c.within))
        example = (
            f": {faint(c.text)} is {count(c.alone, 'time')} a segment of its own and "
            f"{count(c.within, 'time')} within one"
        )
    caption = f"{escape(a.name)}, the most frequent characters, alone and within longer segments{example}."
    return place(figures, f"characters-{key(a)}", draw.singles_figure(shown), caption)


def _varying(a: Analysis) -> str:
    if not a.contexts:
        return "<p>No string of three to eight letters comes twice: cuts in context were not compared.</p>"
    if not a.varying:
        what = "the one string" if a.contexts == 1 else f"each of {a.contexts:,} strings"
        return (
            f"<p>Cut the same way wherever it stands: {what} of three to eight letters that comes twice.</p>"
        )
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
    example = f"‘{escape(v.text)}’ occurs {count(v.occurrences, 'time')}, {v.unusual:,} of them cut otherwise"
    return (
        f"<p>Segments depend on their context: {example} than usual.</p>"
        f'<div class="scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'
    )


def _written(models: Sequence[Analysis], figures: Figures) -> list[str]:
    """The segments that decoders write."""
    cut = {a.name: a.target_segments for a in models if a.target_segments}
    if not cut:
        return []
    return [
        f"<h3>Segments of translations</h3>{table_html(tables.summary(models, written=True))}",
        _lengths(cut, models, figures, "output-lengths", "segments of translations"),
        fold("The most frequent ones", table_html(tables.segments(models, written=True))),
    ]


def _boundaries(models: Sequence[Analysis]) -> str:
    """A table per reference; references that give the same numbers share one."""
    merged: dict[Any, list[tuple[str, str]]] = {}
    for name in dict.fromkeys(t.reference for a in models for t in a.agreements):
        against = [(a.name, t) for a in models for t in a.agreements if t.reference == name]
        rows, note = _against(name, against, models[0].text.sentences)
        merged.setdefault(rows, []).append((name, note))
    shown = []
    for rows, references in merged.items():
        title = f"against {' and '.join(name for name, _ in references)}"
        columns = [Column(title), *(Column(head, ".3f") for head in ("precision", "recall", "F1"))]
        table = Table("boundaries", f"boundaries {title}", columns, [list(cells) for cells in rows])
        emphasis = models[0].name if len(models) == 1 else ""
        shown.append(f"<div>{table_html(table, emphasis, ' '.join(note for _, note in references))}</div>")
    return f"<h3>Boundaries beside others’</h3>{row(shown)}" if shown else ""


def _against(name: str, agreements: Sequence[tuple[str, Agreement]], lines: int) -> tuple[Any, str]:
    """The models first, then cuts that know nothing, those with the same numbers in one row; and a note."""
    first = agreements[0][1]
    models = [(model, table.rows["model"]) for model, table in agreements]
    others = [(n, s) for n, s in first.rows.items() if n not in ("model", _ITSELF.get(name)) and s.correct]
    cells: dict[tuple[float, ...], list[str]] = {}
    for label, s in (*models, *others):
        cells.setdefault((s.precision, s.recall, s.f1), []).append(label)
    gold, about = models[0][1].gold, escape(first.about[:1].upper() + first.about[1:])
    note = f"{about}, {gold:,} boundar{'y' if gold == 1 else 'ies'}"
    if not first.alone:
        note += f" on {first.sentences:,} of {count(lines, 'line')}"
    beside = max(others, key=lambda pair: pair[1].f1, default=None)
    than = f" Of the other cuts {beside[0]} comes closest, F1 {beside[1].f1:.2f}." if beside else ""
    return tuple((", ".join(labels), *values) for values, labels in cells.items()), f"{note}.{than}"
