"""The first screen of a report: an example, and the four numbers of each model that matter most."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape

from caesura.analysis.agreement import Agreement
from caesura.analysis.drawings import together
from caesura.analysis.findings import Analysis
from caesura.analysis.page import cut
from caesura.analysis.plots import COLOURS
from caesura.evaluation.scores import Comparison

_MADE = ("white space", "white space, either side", "BPE")  # references that are made from the text itself
_ENTITY = re.compile(r"&(?:[a-z]+|#\d+|#x[0-9a-f]+);", re.IGNORECASE)


@dataclass(frozen=True)
class Bar:
    """A model's number, drawn from 0; a mark to hold it against, and the half-width of its interval."""

    value: float
    text: str
    beside: str = ""  # in small print
    mark: float | None = None
    interval: float | None = None


@dataclass(frozen=True)
class Gauge:
    """One number per model; None where a model has none."""

    title: str
    about: str
    bars: Sequence[Bar | None]
    full: float | None = None  # the value of a full bar; None: the largest


def glance(models: Sequence[Analysis], compared: Mapping[str, Comparison], baseline: str | None) -> str:
    """The gauges that are not empty, then the example."""
    gauges = [_quality(models, compared, baseline), _length(models), _places(models), _cost(models)]
    names = [a.name for a in models]
    shown = "".join(_gauge_html(names, gauge) for gauge in gauges if any(gauge.bars))
    return f'<div class="gauges">{shown}</div>{_example(models)}'


def _quality(models: Sequence[Analysis], compared: Mapping[str, Comparison], baseline: str | None) -> Gauge:
    bars: list[Bar | None] = []
    for a in models:
        pair = compared.get(a.name)
        if a.scores is None:
            bars.append(None)
            continue
        error = pair.bleu.interval if pair else None
        p = f"p {pair.bleu.p_value:.3f}" if pair and pair.bleu.p_value is not None else ""
        text = f"{a.scores.bleu:.2f}" + ("" if error is None else f" ± {error:.2f}")
        bars.append(Bar(a.scores.bleu, text, p, None, error))
    tested = f"; p: paired bootstrap against {baseline}" if baseline else ""
    return Gauge("Quality", f"BLEU{' ± 95% interval' if compared else ''}{tested}", bars)


def _length(models: Sequence[Analysis]) -> Gauge:
    bars = [
        Bar(a.segments.mean, f"{a.segments.mean:.2f}", f"asked {t:g}" if t else "", t)
        for a in models
        for t in [a.target_length]
    ]
    asked = "; the mark: what was asked for" if any(bar.mark for bar in bars) else ""
    return Gauge("Segment length", f"characters per segment{asked}", bars)


def reference(tables: Sequence[Agreement]) -> Agreement | None:
    """The segmentation that cuts are held against first: gold, else white space, else BPE."""
    gold = [table for table in tables if table.reference not in _MADE]
    return next(iter((*gold, *tables)), None)


def _places(models: Sequence[Analysis]) -> Gauge:
    first = [reference(a.agreements) for a in models]
    against = next((table.reference for table in first if table), "")
    bars = [
        Bar(f1, f"{f1:.2f}", f"chance {table.chance:.2f}", table.chance)
        if table and math.isfinite(f1 := table.rows["model"].f1)
        else None
        for table in first
    ]
    about = f"boundary F1 against {against}; the mark: as many cuts at random places"
    return Gauge("Where cuts fall", about, bars, full=1.0)


def _cost(models: Sequence[Analysis]) -> Gauge:
    bars: list[Bar | None] = []
    counted = all(a.cost.flops for a in models)
    for a in models:
        seconds = a.cost.training_seconds
        trained = "" if seconds is None else f"trained {seconds:,.0f} s"
        size = sum((a.cost.flops or {}).values()) / 1e6 if counted else a.cost.parameters / 1e6
        bars.append(Bar(size, f"{size:,.2f}", trained))
    what = "million operations per sentence, greedy" if counted else "million parameters"
    return Gauge("Cost", what, bars)


def _gauge_html(names: Sequence[str], gauge: Gauge) -> str:
    ends = [bar.value + (bar.interval or 0) for bar in gauge.bars if bar]
    most = gauge.full or max((*ends, *(bar.mark or 0 for bar in gauge.bars if bar))) or 1.0

    def share(value: float) -> str:
        return f"{100 * min(max(value / most, 0), 1):.1f}%"

    rows = []
    for i, (name, bar) in enumerate(zip(names, gauge.bars, strict=True)):
        if bar is None:
            rows.append(f'<div class="gauge"><span>{escape(name)}</span><small>none</small></div>')
            continue
        marks = "" if bar.mark is None else f'<s style="left:{share(bar.mark)}"></s>'
        if bar.interval is not None:
            low = share(bar.value - bar.interval)
            marks += f'<s style="left:{low};right:calc(100% - {share(bar.value + bar.interval)})"></s>'
        beside = f" <small>{escape(bar.beside)}</small>" if bar.beside else ""
        rows.append(
            f'<div class="gauge"><span>{escape(name)}</span><span>{bar.text}{beside}</span>'
            f'<i style="--to:{share(bar.value)};--c:var(--c{i % len(COLOURS) + 1})">{marks}</i></div>'
        )
    return f"<div><h2>{gauge.title}</h2><p>{escape(gauge.about)}</p>{''.join(rows)}</div>"


def _example(models: Sequence[Analysis]) -> str:
    """One line as every model cuts it; models that cut it alike together."""
    if not models[0].readings:
        return ""
    first = models[0].readings[0]
    cuts = [(a, tuple(r.pieces)) for a in models for r in a.readings if r.number == first.number]
    shown = "".join(
        f'<p class="who">{"; ".join(escape(f"{a.name}: {a.about}") for a in alike)}</p>'
        + cut(pieces, "cut hero")
        for pieces, alike in together(cuts)
    )
    texts = [t for a in models for r in a.readings for t in (r.source, r.reference, r.translation) if t]
    return f'<div class="example"><h2>An example: line {first.number}</h2>{shown}{_entities(texts)}</div>'


def _entities(texts: Sequence[str]) -> str:
    """What `&apos;` is, where the text has such things: models read them character by character."""
    named = (match.group() for text in texts for match in _ENTITY.finditer(text))
    entity = next((name for name in named if unescape(name) != name), None)
    if entity is None:
        return ""
    return (
        f'<p class="note">The text itself writes <code>{escape(entity)}</code> for '
        f"{escape(unescape(entity))}; such entities are shown as they are read, character by character.</p>"
    )
