"""Figures of texts, each a function from results to a figure; figures of single sentences: `maps`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from caesura.analysis.attention import AttentionStatistics
from caesura.analysis.characters import visible
from caesura.analysis.cost import Cost
from caesura.analysis.errors import Bucket
from caesura.analysis.fidelity import Bin
from caesura.analysis.gates import AROUND, PLACES, GateProfile, GateStatistics
from caesura.analysis.halting import BINS, HaltingStatistics, History
from caesura.analysis.means import ENOUGH
from caesura.analysis.plots import AXIS, COLOURS, INK, Figure, Look, blank, label_ends, looks, short, styled
from caesura.analysis.segments import Character, SegmentStatistics
from caesura.analysis.typos import Robustness

WIDTH = 4.7  # inches: it fits on a phone with text that can still be read
_LONGEST = 20  # characters of a segment; longer ones share the last bar
_SINGLES = 28  # characters whose bars stand side by side
_GAP = 0.15  # between labels of lines, in inches
_TALL, _LOW = 1.75, 1.1  # heights of several axes in one figure, in inches
FEW = 4  # models that are drawn as bars, and have a legend inside the axes


@styled
def length_figure(models: Mapping[str, SegmentStatistics], among: Sequence[str] = ()) -> Figure:
    """The share of segments of each length: one bar per model, or one line if there are many models.

    `among` are the names of all models, where others of them are drawn elsewhere: each keeps its look.
    """
    figure, axes = blank(WIDTH, 2.6)
    longest = min(max((s.longest for s in models.values()), default=1), _LONGEST)
    width = 0.84 / max(len(models), 1)
    look = dict(zip(among or models, looks(), strict=False))
    for i, (name, segments) in enumerate(models.items()):
        shares = [0.0] * longest
        for length, count in segments.histogram.items():
            shares[min(length, longest) - 1] += count / segments.segments
        if len(models) > FEW:
            _line(axes, name, look[name], range(1, longest + 1), shares)
            continue
        at = [n + 1 + (i - (len(models) - 1) / 2) * width for n in range(longest)]
        axes.bar(at, shares, width * 0.92, color=look[name].colour, label=_plain(name))
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(1, longest + 1))
    axes.tick_params(axis="x", labelsize=8.5)
    if longest == _LONGEST:
        axes.set_xticklabels([*map(str, range(1, longest)), f"{longest}+"])
    axes.set_xlabel("characters in a segment")
    _shares(axes, "segments")
    if len(models) > 1:
        _legend(figure, axes)
    return figure


@styled
def singles_figure(characters: Sequence[Character]) -> Figure:
    """How often each of the most frequent characters is a segment of its own, and how often a part of one."""
    shown = characters[:_SINGLES]
    figure, axes = blank(WIDTH, 2.5)
    at = range(len(shown))
    axes.bar(at, [c.alone for c in shown], 0.8, color=COLOURS[0], label="a segment of its own")
    axes.bar(
        at, [c.within for c in shown], 0.8, bottom=[c.alone for c in shown], color=COLOURS[4], alpha=0.55,
        label="part of a longer segment",
    )  # fmt: skip
    axes.set_xticks(list(at), [visible(c.text) for c in shown])
    axes.set_ylabel("occurrences")
    axes.yaxis.set_major_formatter(short)
    axes.grid(axis="x", visible=False)
    axes.margins(x=0.01)
    _legend(figure, axes)
    return figure


@styled
def scores_figure(scores: HaltingStatistics) -> Figure:
    """The distribution of scores: symbols that end a segment, and those that do not.

    If the halting unit learns, the others are the symbols that pass a gradient.
    """
    figure, axes = blank(WIDTH, 2.3)
    at = [(i + 0.5) / BINS for i in range(BINS)]
    on, off = ([n / scores.symbols for n in counts] for counts in (scores.going_on, scores.halting))
    goes, halts = ("goes on", "halts") if scores.unit else ("goes on", "ends a segment")
    if scores.unit and scores.learns:
        goes, halts = "goes on: has a gradient", "halts: has none"
    axes.bar(at, on, 0.9 / BINS, color=COLOURS[1], label=goes)
    axes.bar(at, off, 0.9 / BINS, bottom=on, color=COLOURS[0], alpha=0.75, label=halts)
    axes.set_xlim(0, 1)
    axes.set_xlabel("halting score h" if scores.unit else "score")
    _shares(axes, "symbols")
    _legend(figure, axes)
    return figure


@styled
def fidelity_figure(bins: Sequence[Bin]) -> Figure:
    """The scores' true gradient against that of training, in bins of gaps; equal ones on a line."""
    figure, axes = blank(WIDTH, 2.8)
    axes.axline((0, 0), slope=1, color=AXIS, linewidth=1.0, linestyle=(0, (4, 2)), label="equal")
    x, y = [b.autograd for b in bins], [b.truth for b in bins]
    axes.errorbar(
        x, y, [b.error or 0.0 for b in bins], fmt="o", markersize=4, linewidth=1.2, capsize=2,
        color=COLOURS[0], label="mean of a bin ± standard error",
    )  # fmt: skip
    axes.ticklabel_format(scilimits=(-3, 3))
    axes.set_xlabel("gradient in training, nats per target symbol")
    axes.set_ylabel("true gradient")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    _legend(figure, axes)
    return figure


@styled
def history_figure(runs: Mapping[str, History], score: Literal["bleu", "exact"] = "bleu") -> Figure:
    """Segment length, the live share of characters, a score and the penalty over training."""
    panels = [("sentences", "segment_length", "characters per segment", _TALL)]
    if any(run.live is not None for run in runs.values()):
        panels.append(("sentences", "live", "live\ncharacters", _LOW))
    panels.append(("sentences", score, {"bleu": "BLEU, dev", "exact": "exact match, dev"}[score], _TALL))
    if any(_penalised(run) for run in runs.values()):
        panels.append(("penalty_at", "penalty", "penalty R", _LOW))
    labelled = 1 < len(runs) <= _TALL / _GAP
    heights = [height for *_, height in panels]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.5), layout="constrained")
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (x, y, title, height) in zip(grid, panels, strict=True):
        axes.set_ylabel(title)
        ends = []
        for (name, run), look in zip(runs.items(), looks(), strict=False):
            places, values = getattr(run, x), getattr(run, y)
            if values is None or (y == "penalty" and not _penalised(run)):
                continue
            axes.plot(places, values, color=look.colour, linestyle=look.dashes, linewidth=1.6)
            finite = [(a, b) for a, b in zip(places, values, strict=True) if math.isfinite(b)]
            if finite:
                axes.plot(*finite[-1], marker=look.marker, markersize=3.5, color=look.colour)
                ends.append((_plain(name), look.colour, *finite[-1]))
        axes.margins(y=0.12)
        if y in ("live", "exact"):
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
        if y == "live":
            axes.set_ylim(-0.06, 1.06)
            axes.set_yticks([0, 0.5, 1])
        if labelled and height == _TALL:
            label_ends(axes, ends, _GAP / height)
    grid[-1].set_xlabel("training sentences seen")
    grid[-1].xaxis.set_major_formatter(short)
    grid[-1].set_xlim(left=0)
    figure.align_ylabels(grid)
    if len(runs) > 1 and not labelled:
        handles = [
            Line2D([], [], color=colour, linestyle=dashes, marker=marker, markersize=3.5)
            for (colour, dashes, marker), _ in zip(looks(), runs, strict=False)
        ]
        _legend_above(figure, handles, [_plain(name) for name in runs])
    return figure


def _penalised(run: History) -> bool:
    """Whether there is a penalty to draw: it is 0 where nothing halts, and nan where none is logged."""
    return any(value and math.isfinite(value) for value in run.penalty)


@styled
def gate_profiles_figure(gates: GateStatistics) -> Figure:
    """Mean gates around spaces, punctuation and gold boundaries, and by place in the word.

    Points of fewer than ENOUGH observations are not drawn.
    Forward gates are drawn solid, backward ones dashed; of several layers the lowest and the uppermost.
    """
    columns: list[tuple[str, str, Sequence[Any]]] = []
    around = list(range(-AROUND, AROUND + 1))
    for kind, title in (("space", "steps from\na space"), ("punctuation", "steps from\npunctuation")):
        if any(getattr(p, kind).counts[AROUND] >= ENOUGH for p in gates.profiles):
            columns.append((kind, title, around))
    columns.append(("place", "place in\nthe word", list(range(1, PLACES + 1))))
    if gates.gold_boundaries >= ENOUGH:
        columns.append(("gold", "steps from a\ngold boundary", around))
    layers = sorted({p.layer for p in gates.profiles})
    shown = sorted({layers[0], layers[-1]})
    figure = Figure(figsize=(WIDTH, 3.7), layout="constrained")
    grid = figure.subplots(2, len(columns), sharey="row", sharex="col", squeeze=False)
    for line, gate in zip(grid, ("reset", "update"), strict=True):
        line[0].set_ylabel(f"{gate} gate, mean")
        for axes, (kind, title, at) in zip(line, columns, strict=True):
            for p in (p for p in gates.profiles if p.gate == gate and p.layer in shown):
                _profile_line(axes, p, kind, at, shown)
            if kind != "place":
                axes.axvline(0, color=AXIS, linewidth=0.8, zorder=0)
                axes.set_xticks([-AROUND, 0, AROUND], [f"−{AROUND}", "0", f"+{AROUND}"])
            else:
                axes.set_xticks([1, 4, 8, PLACES], ["1", "4", "8", f"{PLACES}+"])
            if gate == "update":
                axes.set_xlabel(title)
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=4, frameon=False, fontsize=8.5)
    return figure


def _profile_line(axes: Axes, p: GateProfile, kind: str, at: Sequence[Any], layers: Sequence[int]) -> None:
    colour = COLOURS[0] if p.layer == layers[-1] else COLOURS[5]
    name = f"{p.direction}, layer {p.layer}" if len(layers) > 1 else p.direction
    axes.plot(
        at, getattr(p, kind).solid, color=colour, label=name, marker="o", markersize=2.4, linewidth=1.4,
        linestyle="solid" if p.direction == "forward" else (0, (3, 1.5)),
    )  # fmt: skip


@styled
def attention_place_figure(models: Mapping[str, AttentionStatistics]) -> Figure:
    """Attention by place in the word; 1 is the share of a step if all got the same."""
    figure, axes = blank(WIDTH, 2.4)
    lines = {name: attention.place.solid for name, attention in models.items()}
    longest = max(map(len, lines.values()), default=1)
    for (name, values), look in zip(lines.items(), looks(), strict=False):
        _line(axes, name, look, range(1, len(values) + 1), values)
    axes.axhline(1, color=AXIS, linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(1, longest + 1), [*map(str, range(1, longest)), f"{longest}+"])
    axes.set_xlabel("place in the word")
    axes.set_ylabel("attention,\nuniform = 1")
    if len(models) > 1:
        _legend(figure, axes)
    return figure


@styled
def buckets_figure(models: Mapping[str, Sequence[Bucket]], title: str) -> Figure:
    """BLEU of groups of sentences, one line per model."""
    figure, axes = blank(WIDTH, 2.4)
    names = list(dict.fromkeys(bucket.name for buckets in models.values() for bucket in buckets))
    for (name, buckets), look in zip(models.items(), looks(), strict=False):
        at = [names.index(bucket.name) for bucket in buckets]
        _line(axes, name, look, at, [bucket.bleu for bucket in buckets])
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.4, len(names) - 0.6)
    axes.set_ylim(0, 1.06 * max((b.bleu for buckets in models.values() for b in buckets), default=1) or 1)
    axes.set_xlabel(title)
    axes.set_ylabel("BLEU")
    if len(models) > 1:
        _legend(figure, axes)
    return figure


@styled
def robustness_figure(models: Mapping[str, Robustness]) -> Figure:
    """chrF2 as typos become more frequent: dropped, swapped and replaced letters."""
    figure = Figure(figsize=(WIDTH, 2.4), layout="constrained")
    kinds = list(next(iter(models.values())).chrf)
    grid = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for axes, kind in zip(grid, kinds, strict=True):
        for (name, scores), look in zip(models.items(), looks(), strict=False):
            _line(axes, name, look, scores.rates, scores.chrf[kind])
        axes.set_title(kind, fontsize=9.5, color=INK)
        axes.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
        axes.set_xticks(next(iter(models.values())).rates)
        axes.tick_params(axis="x", labelsize=8.5)
    grid[0].set_ylabel("chrF2")
    grid[len(grid) // 2].set_xlabel("words with a typo")
    if len(models) > 1:
        _legend(figure, grid[-1])
    return figure


@styled
def cost_figure(models: Mapping[str, tuple[float, Cost]]) -> Figure:
    """BLEU against the arithmetic of a sentence, one dot per model, its area the parameters."""
    many = len(models) > FEW
    height = max(2.6, _GAP * len(models) + 0.6)
    figure, axes = blank(WIDTH, height)
    most = max((cost.parameters for _, cost in models.values()), default=1)
    ends = []
    for (name, (bleu, cost)), look in zip(models.items(), looks(), strict=False):
        if cost.flops is None:
            continue
        x, size = sum(cost.flops.values()), 40 + 160 * cost.parameters / most
        axes.scatter([x], [bleu], s=size, color=look.colour, marker=look.marker, alpha=0.8, linewidths=0)
        ends.append((_plain(name), look.colour, x, bleu))
    axes.margins(x=0.08 if many else 0.25, y=0.12 if many else 0.3)
    if many:
        label_ends(axes, ends, _GAP / (height - 0.5))
    else:
        for name, colour, x, bleu in ends:
            axes.annotate(
                name, (x, bleu), xytext=(9, 0), textcoords="offset points", va="center", color=colour,
                fontsize=9,
            )  # fmt: skip
    axes.set_xlabel("FLOPs per sentence")
    axes.set_ylabel("BLEU")
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.xaxis.set_major_formatter(short)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return figure


def _line(axes: Axes, name: str, look: Look, at: Sequence[float], values: Sequence[float]) -> None:
    colour, dashes, marker = look
    axes.plot(at, values, color=colour, linestyle=dashes, marker=marker, markersize=3.5, label=_plain(name))


def _shares(axes: Axes, of: str) -> None:
    """The vertical axis of bars that are shares of something."""
    axes.set_ylabel(f"share of {of}")
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    axes.grid(axis="x", visible=False)


def _legend(figure: Figure, axes: Axes) -> None:
    """Inside the axes of a few models, above them of more."""
    handles, names = axes.get_legend_handles_labels()
    if len(names) > FEW:
        _legend_above(figure, handles, names)
    else:
        axes.legend(frameon=False, fontsize=8.5, handlelength=1.3)


def _legend_above(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Above all axes, for which the figure grows."""
    columns = max(1, int(WIDTH / (0.6 + 0.07 * max(map(len, names)))))
    figure.set_figheight(figure.get_figheight() + 0.18 * math.ceil(len(names) / columns))
    figure.legend(
        handles, names, loc="outside upper left", ncols=columns, frameon=False, fontsize=8.5, handlelength=3,
    )  # fmt: skip


def _plain(name: str) -> str:
    """A name that matplotlib shows unchanged: it would leave one that begins with _ out of the legend."""
    return f" {name}" if name.startswith("_") else name
