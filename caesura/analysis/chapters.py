"""The chapters of a report: results in words, tables and figures; nothing is measured here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from matplotlib.figure import Figure

from caesura.analysis import figures as draw
from caesura.analysis import maps, tables
from caesura.analysis.attention_chapter import attention
from caesura.analysis.characters import visible
from caesura.analysis.drawings import Figures, count, cut_off, each, key, names, place, together
from caesura.analysis.findings import Analysis
from caesura.analysis.gates import AROUND, GateStatistics
from caesura.analysis.halting import HaltingStatistics
from caesura.analysis.moved_chapter import moved
from caesura.analysis.page import cut, fold, row, table_html
from caesura.analysis.segments_chapter import segments
from caesura.analysis.sentences import Reading
from caesura.analysis.tables import Table
from caesura.analysis.typos import Robustness

_BEYOND = 25  # rows of a long table
_SHOWN = 3  # sentences that are not in a fold


def sentences(models: Sequence[Analysis], figures: Figures) -> str:
    """The paper's Tables 3, 6 and 7."""
    parts = []
    if any(r.invented for a in models for r in a.readings):
        parts.append("<p>Words with a wavy line are not in the training text.</p>")
    order = sorted(
        models[0].readings,
        key=lambda r: _agreed([x for a in models for x in a.readings if x.number == r.number]),
    )
    shown = [_sentence(first, models) for first in order]
    rest = fold(count(len(shown) - _SHOWN, "more line"), "".join(shown[_SHOWN:]))
    return "".join([*parts, *shown[:_SHOWN], rest])


def _sentence(first: Reading, models: Sequence[Analysis]) -> str:
    """A line with its reference; models that cut and translate it alike together."""
    rows = []
    if first.reference is not None:
        rows.append(f'<dt>reference</dt><dd dir="auto">{escape(first.reference)}</dd>')
    readings = [(a, _reading(r)) for a in models for r in a.readings if r.number == first.number]
    for html, alike in together(readings):
        rows.append(f'<dt class="new">{names(alike)}</dt>{html}')
    return f'<dl class="pair" id="line-{first.number}">{"".join(rows)}</dl>'


def _reading(r: Reading) -> str:
    source = f'<dd class="new">{cut(r.pieces)}</dd>'
    if r.translation is None:
        return source
    right = ' <span class="ok">=</span>' if r.translation == r.reference else ""
    shown = cut(r.target_pieces) if r.target_pieces else _written(r.translation, r.invented)
    return f'{source}<dt></dt><dd dir="auto">{shown}{right}</dd>'


def _agreed(readings: Sequence[Reading]) -> bool:
    """Whether all models translate a line alike, and as the reference does where there is one."""
    written = {r.translation for r in readings} | {r.reference for r in readings if r.reference is not None}
    return len(written) == 1


def _written(text: str, invented: Sequence[str]) -> str:
    words = (f"<u>{escape(w)}</u>" if w in invented else escape(w) for w in text.split(" "))
    return " ".join(words) or '<span class="muted">(nothing)</span>'


def title(chapter: str, name: str, models: Sequence[Analysis]) -> str:
    """The name of a chapter; only the scores of halting units are called halting."""
    scored = [a.halting for a in models if a.halting]
    return "Scores" if chapter == "halting" and any(not h.unit for h in scored) else name


def halting(models: Sequence[Analysis], figures: Figures) -> str:
    """Scores along sentences, their distribution, the segmenters' figures, and training."""
    scored = [(a, a.halting) for a in models if a.halting]
    silent = [a for a in models if a.halting is None]
    parts = []
    if silent:
        parts.append(f"<p>{names(silent)} {'scores' if len(silent) == 1 else 'score'} no symbols.</p>")
    parts += [_scored(a, h) for a, h in scored]
    parts.append(row([_distribution(a, h, figures) for a, h in scored]))
    lines = [_along(a, "halting", figures) for a, _ in scored]
    parts.append(fold("Scores along lines", "".join(lines)))
    table = tables.figures(models)
    if table.rows:
        parts.append(table_html(table))
    return "".join([*parts, *_trained(models, figures)])


def _scored(a: Analysis, h: HaltingStatistics) -> str:
    threshold = next((d.halting.threshold for d in a.drawn if d.halting), None)
    if threshold is None:
        return f"<p>{_halts(a.name, h)}</p>"
    always = f", and after {escape(visible(h.cut_after))}" if h.cut_after else ""
    rest = "" if h.unit else "; what is more than that counts for the next segment"
    return (
        f"<p>{_halts(a.name, h)} A segment ends where the running sum of its scores reaches "
        f"{threshold:g}{always}{rest}.</p>"
    )


def _distribution(a: Analysis, h: HaltingStatistics, figures: Figures) -> str:
    caption = (
        f"{escape(a.name)}: scores of {count(h.symbols, 'symbol')}, {h.mean:.2f} on average; "
        f"{sum(h.going_on) / h.symbols:.0%} go on."
    )
    return place(figures, f"scores-{key(a)}", draw.scores_figure(h), caption)


_ALONG: dict[str, tuple[Callable[[Any], Figure], Callable[[Any], str]]] = {
    "halting": (maps.halting_figure, lambda part: cut_off(part.labels)),
    "gates": (maps.gates_figure, lambda part: cut_off(part.labels)),
}


def _along(a: Analysis, kind: str, figures: Figures) -> str:
    """The pictures of a model's drawn lines."""
    figure, missing = _ALONG[kind]
    return "".join(
        place(
            figures,
            f"{kind}-{key(a)}-{d.number}",
            figure(part),
            f"{escape(a.name)}, line {d.number}{missing(part)}.",
        )
        for d in a.drawn
        if (part := getattr(d, kind))
    )


def _trained(models: Sequence[Analysis], figures: Figures) -> list[str]:
    """How segments moved in training."""
    parts = []
    runs = {a.name: a.history for a in models if a.history}
    if runs:
        parts.append("<h3>Over training</h3>")
        moved = ((n, (run.segment_length[0], run.segment_length[-1])) for n, run in runs.items())
        changes = each((n, _went(first, last, ".2f")) for n, (first, last) in moved)
        caption = f"Training as the validations saw it; characters per segment: {changes}."
        parts.append(place(figures, "training", draw.history_figure(runs), caption))
        if any(a.history and a.halting and a.halting.learns and a.halting.unit for a in models):
            parts.append(
                "<p><strong>Without a halting gradient.</strong> A symbol that halts at once passes no "
                "gradient to its score. Where the live share above is 0, and the unit may learn, every "
                "symbol does: neither loss nor penalty moves the cuts then, except through the weights that "
                "the scores share with the segments. Some models stay at single characters, others come "
                "back.</p>"
            )
    else:
        parts.append("<p>The model folder has no log of its training (metrics.jsonl).</p>")
    return parts


def _halts(name: str, h: HaltingStatistics) -> str:
    ends = sum(h.halting) / h.symbols
    learnt = "no score gets a gradient" if h.live is None else f"{h.live:.0%} of the scores get a gradient"
    # Not all of them by its scores, where some characters always end one.
    halts = "segments end" if h.cut_after or not h.unit else "halts"
    unit = "halting unit" if h.unit else "cutter"
    return (
        f"The {unit} of <strong>{escape(name)}</strong> reads {count(h.symbols, 'symbol')} and {halts} after "
        f"{ends:.0%} of them; {learnt}."
    )


def gates(models: Sequence[Analysis], figures: Figures) -> str:
    """The paper's Figures 3 and 4, and their averages over a corpus; nothing where no model has gates."""
    gated = [(a, a.gates) for a in models if a.gates]
    if not gated:
        return ""
    parts = [
        f"<p>The encoder of {escape(a.name)} has no gates that could be shown.</p>"
        for a in models
        if a.gates is None
    ]
    profiles = []
    for a, g in gated:
        caption = (
            f"{escape(a.name)} over {count(g.sentences, 'sentence')} ({count(g.steps, 'step')}), forward "
            f"solid and backward dashed. {_gates_caption(g)}"
        )
        profiles.append(place(figures, f"profiles-{key(a)}", draw.gate_profiles_figure(g), caption))
    parts.append(row(profiles))
    if lines := "".join(_along(a, "gates", figures) for a, _ in gated):
        legend = (
            "<p>Mean reset and update gates at each step of a line, forward (→) and backward (←): dark is "
            "closed, bright is open, ∎ is the end. An open update gate takes the new state (the paper’s "
            "convention). The colours run over what occurs.</p>"
        )
        parts.append(fold("Gates along lines", legend + lines))
    table = tables.gates(models)
    if table.rows:
        parts.append(fold("All averages", table_html(table)))
    return "".join(parts)


def _gates_caption(gates: GateStatistics) -> str:
    """The largest step that the top layer's gates make, in words."""
    top = max(p.layer for p in gates.profiles)
    phrases = []
    for kind, name in (("space", "a space"), ("gold", "a gold boundary inside a word")):
        changes = []
        for p in (p for p in gates.profiles if p.layer == top):
            at = getattr(p, kind).solid[AROUND]
            if math.isfinite(at) and math.isfinite(p.inside):
                changes.append((abs(at - p.inside), p, at))
        if changes:
            _, p, at = max(changes, key=lambda change: change[0])
            phrases.append(
                f"at {name} the {p.direction} {p.gate} gate is at {at:.2f}, within words at {p.inside:.2f}"
            )
    sentence = "; ".join(phrases)
    cut_at, given = gates.gold_boundaries, gates.gold_given
    boundaries = "boundary" if cut_at == 1 else "boundaries"
    parts = [
        f"{sentence[:1].upper()}{sentence[1:]}." if phrases else "",
        f"Measured at the {cut_at:,} gold {boundaries} that it cut, of {given:,}." if cut_at else "",
        f"None of the {given:,} gold boundaries was cut." if given and not cut_at else "",
    ]
    return " ".join(part for part in parts if part)


def errors(models: Sequence[Analysis], figures: Figures) -> str:
    """Unknown, invented, copied and repeated words; length, rarity, typos."""
    translated = [a for a in models if a.errors]
    if not translated:
        return "<p>Nothing was translated (--translate 0).</p>"
    parts = [table_html(tables.errors(models), note=_errors_note(translated[0]))]
    listed = tables.inventions(models)
    if listed.rows:
        few = Table(listed.key, listed.title, listed.columns, listed.rows[:_BEYOND])
        beyond = f", the first {_BEYOND}" if len(listed.rows) > _BEYOND else ""
        parts.append(fold(count(len(listed.rows), "invented word") + beyond, table_html(few)))
    phrases = [(a, line, phrase) for a in translated if a.errors for line, phrase in a.errors.repetitions[:5]]
    if phrases:
        items = "".join(f"<li>{escape(a.name)}, line {n}: <bdi>{escape(p)}</bdi></li>" for a, n, p in phrases)
        parts.append(fold("Repeated phrases", f"<ul>{items}</ul>"))
    drawn = []
    for kind, head in (("length", "source characters"), ("rarity", "rare source words")):
        groups = {a.name: b for a in translated if (b := getattr(a.errors, f"by_{kind}"))}
        if groups and any(len(b) > 1 for b in groups.values()):
            numbers = each((n, _went(b[0].bleu, b[-1].bleu, ".1f")) for n, b in groups.items())
            caption = f"BLEU by {head}, from the first group to the last: {numbers}."
            drawn.append(place(figures, f"bleu-by-{kind}", draw.buckets_figure(groups, head), caption))
    robust = {a.name: a.robustness for a in translated if a.robustness}
    if robust:
        numbers = each((n, _fall(r.chrf)) for n, r in robust.items())
        r = next(iter(robust.values()))
        caption = (
            f"chrF2 against {r.against} as letters are dropped, swapped or replaced in more words; at "
            f"{r.rates[-1]:.0%} it {numbers}. {count(r.sentences, 'sentence')}, greedy, the same typos "
            f"for all; {_realised(r)} of all words have one then."
        )
        drawn.append(place(figures, "typos", draw.robustness_figure(robust), caption))
    return "".join([*parts, row(drawn)])


def _realised(r: Robustness) -> str:
    """How many words have a typo at the highest rate: some words can have none."""
    low, high = (f"{pick(values[-1] for values in r.realised.values()):.0%}" for pick in (min, max))
    return low if low == high else f"{low} to {high}"


def _fall(scores: Mapping[str, Sequence[float]]) -> str:
    """By how much a score falls for the kind of typo that harms most."""
    points = f"{max(values[0] - values[-1] for values in scores.values()):.1f}"
    return f"falls by up to {points} points" if float(points) > 0 else "does not fall"


def _went(first: float, last: float, form: str) -> str:
    """A change from one number to another, in words."""
    start, end = f"{first:{form}}", f"{last:{form}}"
    return f"{start} at both ends" if start == end else f"from {start} to {end}"


def _errors_note(a: Analysis) -> str:
    note = ["Invented: in neither the training text nor the source. Copied: in the source alone."]
    e = a.errors
    if e and e.unspaced:
        sides = " and the ".join(e.unspaced)
        note.append(
            f"The {sides} has about one word per line: unknown, invented and copied words mean nothing there."
        )
    elif e and e.invented is None:
        note.append(f"Counts of training words are missing or cut off ({escape(a.text.training)}).")
    if e and e.repeating_references:
        note.append(f"{e.repeating_references.share:.1%} of the references repeat a phrase too.")
    return " ".join(note)


def cost(models: Sequence[Analysis], figures: Figures) -> str:
    """Quality beside price."""
    note = " ".join(_speeds(models))
    if any(a.cost.flops for a in models):
        note += " FLOPs of one greedy pass; symbols, segments and target symbols are means per sentence."
    parts = [table_html(tables.cost(models), note=note)]
    priced = {a.name: (a.scores.bleu, a.cost) for a in models if a.scores and a.cost.flops}
    if len(priced) > 1:
        caption = "BLEU against operations per sentence; the area of a dot is the number of parameters."
        parts.append(place(figures, "price", draw.cost_figure(priced), caption))
    shares = (
        (a, ", ".join(f"{part} {n / sum(flops.values()):.0%}" for part, n in flops.items()))
        for a in models
        if (flops := a.cost.flops)
    )
    for split, alike in together(shares):
        parts.append(f"<p>Operations of {names(alike)}: {split}.</p>")
    return "".join(parts)


def _speeds(models: Sequence[Analysis]) -> list[str]:
    """How speeds were measured, and which are left out and why."""
    timed = [
        (a, done, speed)
        for a in models
        for done, speed in (("segmenting", a.cost.segmenting), ("translating", a.cost.translating))
        if speed
    ]
    unclear: dict[str, list[str]] = {}
    for a, done, speed in timed:
        if speed.problem:
            unclear.setdefault(speed.problem, []).append(f"{done} with {escape(a.name)}")
    notes = [f"No speed for {', '.join(works)}: {problem}." for problem, works in unclear.items()]
    if shown := [speed for _, _, speed in timed if not speed.problem]:
        how = f"{shown[0].repeats} repeats on {count(shown[0].sentences, 'sentence')}, ± half their range"
        notes.insert(0, f"Speeds: medians of {how}; {models[0].cost.device}, {models[0].text.search}.")
    return notes


Chapter = Callable[[Sequence[Analysis], Figures], str]
CHAPTERS: tuple[tuple[str, str, str, Chapter], ...] = (
    ("segments", "Segments", "lengths, boundaries beside others’, the most frequent, context", segments),
    ("sentences", "Sentences", "as they are cut and translated", sentences),
    ("halting", "Halting", "of symbols, the gradient, and how segments moved in training", halting),
    ("moved", "Moving cuts", "whether the gradient knows where cuts should go", moved),
    ("gates", "Gates", "of the encoder, at spaces, punctuation and boundaries", gates),
    ("attention", "Attention", "where the decoder looks", attention),
    ("errors", "Errors", "unknown, invented and repeated words, long sentences, typos", errors),
    ("cost", "Cost", "parameters, training time, speed, operations", cost),
)
