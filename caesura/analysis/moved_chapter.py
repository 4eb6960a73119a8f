"""The report's chapter on moving cuts: what it would change, and whether the gradient knows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from caesura.analysis import figures as draw
from caesura.analysis import maps, tables
from caesura.analysis.drawings import Figures, count, cut_off, key, names, place
from caesura.analysis.fidelity import Fidelity
from caesura.analysis.findings import Analysis
from caesura.analysis.flips import FlipStatistics
from caesura.analysis.moved import Moved
from caesura.analysis.page import fold, row, table_html


def moved(models: Sequence[Analysis], figures: Figures) -> str:
    """The gradient with respect to the scores beside the true one, and flips."""
    parts = []
    if any(a.moved for a in models):
        parts.append(
            "<p>A flip cuts one gap that the model joins, or joins one that it cuts; the other gaps stay as "
            "they are. The true gradient with respect to the scores is measured from losses of sentences "
            "that are cut anew. So it includes the jumps of the loss where a cut moves, which "
            "backpropagation cannot see. "
            "Losses are those of the references, in nats per target symbol.</p>"
        )
    parts += [_paragraph(a, a.moved) for a in models if a.moved]
    if still := names(a for a in models if a.moved is None):
        parts.append(
            f"<p>No cuts of {still} were moved: the segmenter takes none, no sentence of two symbols or more "
            "has a reference, or --moved is 0.</p>"
        )
    table = tables.moved(models)
    if table.rows:
        parts.append(table_html(table, note=_NOTE))
    parts.append(row([_gradient_figure(a, figures) for a in models]))
    parts.append(fold("Flips along lines", "".join(_flips_along(a, figures) for a in models)))
    return "".join(parts)


_NOTE = (
    "Cosine: between the gradient that training uses and the true one, ± its standard error. Sums: over a "
    "sentence’s gaps; positive means that longer segments lower the loss. Hardening: what it costs to make "
    "the model’s own cuts hard. Best and greedy flips: what they gain. Direction known: the share of flips "
    "for which the sign of the gradient is right."
)


def _paragraph(a: Analysis, m: Moved) -> str:
    parts = [f"The cuts of <strong>{escape(a.name)}</strong> were moved in {count(m.sentences, 'sentence')}."]
    if m.fidelity:
        parts.append(_gradient(m.fidelity))
    if m.flips:
        parts.append(_flips(m.flips))
    return f"<p>{' '.join(parts)}</p>"


def _gradient(g: Fidelity) -> str:
    if g.cosine is None:
        close = "Noise hides how close training’s gradient with respect to the scores comes to the true one."
    else:
        error = "" if g.cosine_error is None else f" ± {g.cosine_error:.2f}"
        close = (
            f"The cosine between training’s gradient with respect to the scores and the true one is "
            f"{g.cosine:.2f}{error}."
        )
    if g.estimated:
        source = "drawn cuts" if g.sigma is None else "shifted scores"
        close += f" Training estimates this gradient from {source}."
    if g.autograd_sum is None:
        return f"{close} Its segment length is set by the rate, not by this gradient."
    if g.signs_agree is None:
        return f"{close} Noise hides whether longer or shorter segments would lower the loss."
    way = "longer" if g.autograd_sum > 0 else "shorter"
    end = "and the loss would fall" if g.signs_agree else "but the loss would rise"
    return f"{close} Training pushes towards {way} segments, {end}."


def _flips(f: FlipStatistics) -> str:
    parts = [
        f"The best single flip of a sentence {_gain(f.best)} on average; greedy flips, {f.rounds:.1f} per "
        f"sentence: {f.greedy:.4f}."
    ]
    if f.hardening:
        parts.append(f"Making its own cuts hard {_gain(-f.hardening)}.")
    else:
        parts.append("Its own cuts are hard.")
    if f.agreeing is not None:
        of = count(f.compared, "flip")
        parts.append(f"The gradient points the right way for {f.agreeing:.0%} of the {of} that it reaches.")
    return " ".join(parts)


def _gain(gain: float) -> str:
    size = f"{abs(gain):.4f}"
    if not float(size):
        return "changes nothing"
    return f"{'gains' if gain > 0 else 'costs'} {size} nats per target symbol"


def _gradient_figure(a: Analysis, figures: Figures) -> str:
    if not (a.moved and a.moved.fidelity and a.moved.fidelity.bins):
        return ""
    g = a.moved.fidelity
    caption = (
        f"{escape(a.name)}: the true gradient against training’s, {count(g.positions, 'gap')} in bins "
        "by training’s. On the dashed line the two are equal."
    )
    return place(figures, f"gradient-{key(a)}", draw.fidelity_figure(g.bins), caption)


def _flips_along(a: Analysis, figures: Figures) -> str:
    parts = []
    for d in a.drawn:
        if d.flips:
            caption = (
                f"{escape(a.name)}, line {d.number}{cut_off(d.flips.symbols)}: what a flip of each gap adds "
                "to the loss. A gap without a bar cannot be flipped."
            )
            parts.append(place(figures, f"flips-{key(a)}-{d.number}", maps.flips_figure(d.flips), caption))
    return "".join(parts)
