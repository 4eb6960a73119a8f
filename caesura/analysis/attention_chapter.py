"""The report's chapter on attention: shares over a sample, maps of lines, and a choice of layer and head."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape

from caesura.analysis import figures as draw
from caesura.analysis import maps, tables
from caesura.analysis.attention import AttentionMap, AttentionStatistics, HeadStatistics
from caesura.analysis.drawings import Figures, cut_off, each, key, place
from caesura.analysis.findings import Analysis
from caesura.analysis.page import fold, table_html

_IMAGE = re.compile(r'<image xlink:href="[^"]*" id="[^"]*"([^>]*)/>')  # matplotlib's, of a map


def attention(models: Sequence[Analysis], figures: Figures) -> str:
    """Heat maps, and the paper's observation as a number."""
    statistics = {a.name: a.attention for a in models if a.attention}
    if not statistics:
        return (
            "<p>No attention: there is neither a reference nor a translation, or the decoder shows none.</p>"
        )
    targets = next(iter(statistics.values())).targets
    note = (
        f"The share of attention that falls on each place, beside its share if spread evenly; on {targets}. "
        "Entropy: of the weights of one output symbol. Off the diagonal: how far from its own place in the "
        "sentence a symbol looks, as a share of the sentence."
    )
    parts = [table_html(tables.attention(models), note=note)]
    if any(s.heads for s in statistics.values()):
        listed = table_html(tables.heads(models))
        parts += [_means(statistics), fold("Every layer and head", listed)]
    firsts = {n: s.place.solid[0] for n, s in statistics.items() if math.isfinite(s.place.solid[0])}
    intro = each((n, f"{first:.1f} times") for n, first in firsts.items())
    caption = "Attention by place in the word"
    caption += f": first characters get {intro} their even share." if firsts else "."
    parts.append(place(figures, "attention-places", draw.attention_place_figure(statistics), caption))
    if lines := "".join(_along(a, figures) for a in models):
        intro = "<p>Where each output symbol (rows) looked in the source (columns):</p>"
        parts.append(fold("Attention along lines", intro + lines))
    return "".join(parts)


def _means(statistics: dict[str, AttentionStatistics]) -> str:
    """The layer that the table shows of decoders with several heads; the closest and the widest head."""
    phrases = []
    for name, s in statistics.items():
        if s.heads:
            close, wide = (pick(s.heads, key=lambda one: one.entropy) for pick in (min, max))
            phrases.append(
                f"The decoder of <strong>{escape(name)}</strong> has {_count(s.heads)}. The table has their "
                f"mean in layer {s.layer}. Of all, {_named(close)} looks most closely "
                f"({close.entropy:.1f} bits), {_named(wide)} most widely ({wide.entropy:.1f} bits)."
            )
    return f"<p>{' '.join(phrases)}</p>"


def _count(heads: Sequence[HeadStatistics]) -> str:
    last = heads[-1]
    layers = f"{last.layer} layer{'s' if last.layer > 1 else ''}"
    return f"{layers} of {last.head} head{'s' if last.head > 1 else ''}"


def _named(one: HeadStatistics) -> str:
    return f"head {one.head} of layer {one.layer}"


def _along(a: Analysis, figures: Figures) -> str:
    """The maps of a model's drawn lines."""
    parts = []
    for d in a.drawn:
        if (seen := d.attention) is None:
            continue
        name, line = f"{key(a)}-{d.number}", f"{escape(a.name)}, line {d.number}"
        caption = f"{line}{cut_off(seen.source, seen.target)}."
        html = place(figures, f"attention-{name}", maps.attention_figure(seen), caption)
        if seen.heads is None:
            parts.append(html)
            continue
        parts.append(_choosable(html, next(reversed(figures)), seen))
        caption = f"{line}, every head: output symbols from top to bottom, the source from left to right."
        parts.append(place(figures, f"heads-{name}", maps.heads_figure(seen), caption))
    return "".join(parts)


def _choosable(html: str, name: str, seen: AttentionMap) -> str:
    """A map's figure with buttons for layer and head. No script: the checked buttons show one of its images.

    A browser without `:has` shows the figure as it was drawn.
    """
    heads = seen.heads
    assert heads is not None
    layers, count = range(1, heads.shape[0] + 1), range(heads.shape[1] + 1)  # 0: the mean over heads
    image = _IMAGE.search(html)
    assert image is not None
    rules = [f"#{name} .maps g,#{name} .maps image{{display:none}}#{name}:has(:checked) .own{{display:none}}"]
    rules += [f'#{name}:has(.layer [value="{i}"]:checked) .l{i}{{display:inline}}' for i in layers]
    rules += [f'#{name}:has(.head [value="{j}"]:checked) .h{j}{{display:inline}}' for j in count]
    groups = "".join(
        f'<g class="l{i}">{"".join(_image(seen, i, j, image[1]) for j in count)}</g>' for i in layers
    )
    drawn = f'<g class="own">{image[0]}</g><g class="maps"><style>{"".join(rules)}</style>{groups}</g>'
    buttons = _buttons("layer", name, [(i, str(i)) for i in layers], seen.layer or 1)
    buttons += _buttons("head", name, [(j, str(j) if j else "mean") for j in count], 0)
    html, scroll = html[: image.start()] + drawn + html[image.end() :], '<div class="scroll">'
    return html.replace(scroll, f'<div class="choices">{buttons}</div>{scroll}', 1)


def _image(seen: AttentionMap, layer: int, head: int, attributes: str) -> str:
    content = b64encode(maps.pixels(seen.of(layer, head or None))).decode()
    return f'<image class="h{head}" xlink:href="data:image/png;base64,{content}"{attributes}/>'


def _buttons(what: str, name: str, values: Iterable[tuple[int, str]], checked: int) -> str:
    """Radio buttons: one stop for the Tab key, arrows choose."""
    shown = "".join(
        f'<label><input type="radio" name="{name}-{what}" value="{value}"'
        f"{' checked' if value == checked else ''}/>{text}</label>"
        for value, text in values
    )
    return f'<div class="{what}" role="radiogroup" aria-label="{what}"><span>{what}</span>{shown}</div>'
